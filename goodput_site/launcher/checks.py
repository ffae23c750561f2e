"""`test` and `check`: the tests on a database and a broker of their own, and everything else that must be green."""

import os
import sys
from collections.abc import Sequence

from . import services

MOST_PROCESSES = 4  # each makes a database of its own
STATIC_CHECKS = (
    ("format", ["-m", "ruff", "format", "--check", "."]),
    ("lint", ["-m", "ruff", "check", "."]),
    ("types", ["-m", "mypy", "."]),
    ("Django", ["manage.py", "check", "--deploy", "--fail-level", "WARNING"]),
    ("migrations", ["manage.py", "makemigrations", "--check", "--dry-run"]),
)


def test(arguments: Sequence[str]) -> int:
    """Run pytest on a throw-away database and broker; without --full what needs more than pip is left out.

    The whole suite runs on several cores; given arguments of its own, pytest gets them and one process. With --full the
    tests of one file stay together, for what they share is costly: a server with its data, a browser.
    """
    if "--attacks" in arguments:
        return _attacks([word for word in arguments if word != "--attacks"])
    is_full = "--full" in arguments
    chosen = [] if is_full else ["-m", "not full"]
    rest = [word for word in arguments if word != "--full"]
    cores = _processes()
    if not rest and cores > 1:
        rest = ["-n", str(cores), *(["--dist", "loadfile"] if is_full else [])]
    with services.throwaway() as env:
        return services.run([sys.executable, "-m", "pytest", *chosen, *rest], env)


def _attacks(arguments: Sequence[str]) -> int:
    """The tests that try an attack of the list, the full ones as well, and the table of how they ended."""
    file, *rest = arguments or ["docs/security-tests.md"]
    spread = ["-n", str(_processes()), "--dist", "loadfile"] if _processes() > 1 else []
    with services.throwaway() as env:
        return services.run(
            [sys.executable, "-m", "pytest", "-m", "attack", "--attack-table", file, *spread, *rest], env
        )


def _processes() -> int:
    return min(os.cpu_count() or 1, MOST_PROCESSES)


def check(arguments: Sequence[str]) -> int:
    """Format, lint, types, Django's checks and migrations, then the tests unless --no-tests is given."""
    failed = []
    with services.throwaway() as env:
        # as strict as it gets: the checks of a public deployment
        strict = {**env, "GOODPUT_EXPOSE": "public", "GOODPUT_PUBLIC_URL": "https://goodput.example"}
        strict["GOODPUT_SECRET_KEY"] = "checks-only-" + "0123456789abcdefghijklmnopqrstuvwxyz" * 2
        for name, command in STATIC_CHECKS:
            print(f"== {name}: {' '.join(command)}", flush=True)
            if services.run([sys.executable, *command], strict):
                failed.append(name)
    if "--no-tests" not in arguments and test([]):
        failed.append("tests")
    print(f"\nFailed: {', '.join(failed)}" if failed else "\nAll checks are green.")
    return 1 if failed else 0
