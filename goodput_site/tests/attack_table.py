"""A pytest plugin: marks each test with the attacks that it tries (attacks.toml) and writes their table from a run.

./goodput test --attacks docs/security-tests.md
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

LIST = Path(__file__).parent / "attacks.toml"
KINDS = {
    "I": "Ingest", "T": "Tenancy", "P": "Documents and downloads", "W": "Web", "A": "Agent", "S": "Supply chain",
    "E": "Evidence: tampered claim packs",
}  # fmt: skip


@dataclass(frozen=True)
class Attack:
    """One attack of the list; `tests` are patterns over `path::name` without `test_`, `open` what is not tried."""

    id: str
    attack: str
    expected: str
    tests: tuple[str, ...]
    open: str = ""

    def is_tried_by(self, nodeid: str) -> bool:
        """Whether a collected test belongs to it."""
        path, _, name = nodeid.partition("::")
        name = name.rpartition("::")[2] if "[" not in name else name
        whole = f"{path}::{name.removeprefix('test_')}"
        bare = whole.partition("[")[0]
        return any(fnmatchcase(whole, pattern) or fnmatchcase(bare, pattern) for pattern in self.tests)


def attacks() -> Iterator[Attack]:
    """The list, in its order."""
    for kind in tomllib.loads(LIST.read_text()).values():
        for key, row in kind.items():
            yield Attack(key, row["attack"], row["expected"], tuple(row["tests"]), row.get("open", ""))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--attack-table", metavar="FILE", help="write the table of attacks from this run")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "attack(id): an attack of goodput_site/tests/attacks.toml that this test tries")
    if not hasattr(config, "workerinput") and config.getoption("--attack-table", None):
        config.pluginmanager.register(_Table(Path(config.getoption("--attack-table"))), "attack-table")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    known = list(attacks())
    for item in items:
        for attack in known:
            if attack.is_tried_by(item.nodeid):
                item.add_marker(pytest.mark.attack(attack.id))


class _Table:
    """Gathers how each test ended, on whatever worker, and writes the table at the end."""

    def __init__(self, file: Path) -> None:
        self._file = file.absolute()
        self._ends: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed or report.skipped or report.when == "call":
            self._ends[report.nodeid] = "failed" if report.failed else "skipped" if report.skipped else "passed"

    def pytest_sessionfinish(self) -> None:
        self._file.write_text(table(self._ends))


def table(ends: dict[str, str]) -> str:
    """The page: a line per attack with what the run said of its tests."""
    lines = [
        "# Attacks, and what the tests say of them",
        "",
        "Made by `./goodput test --attacks docs/security-tests.md`; not written by hand. The list of attacks and the",
        "tests of each stand in `goodput_site/tests/attacks.toml`. `n passed` counts single cases; `skipped` are those",
        "for which the machine lacked something, such as a second Python.",
        "What is left open is said in the last column; THREAT_MODEL.md says what that means.",
    ]
    kind = ""
    for attack in attacks():
        if attack.id[0] != kind:
            kind = attack.id[0]
            lines += ["", f"## {KINDS[kind]}", "", "| id | attack | expected | run | open |", "|---|---|---|---|---|"]
        lines.append(f"| {attack.id} | {attack.attack} | {attack.expected} | {_result(attack, ends)} | {attack.open} |")
    return "\n".join(lines) + "\n"


def _result(attack: Attack, ends: dict[str, str]) -> str:
    mine = [end for nodeid, end in ends.items() if attack.is_tried_by(nodeid)]
    counts = [(word, mine.count(word)) for word in ("failed", "passed", "skipped")]
    return ", ".join(f"{count} {word}" for word, count in counts if count) or "not tried"
