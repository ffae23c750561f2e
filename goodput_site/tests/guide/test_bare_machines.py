"""The installer on bare Debian 12 and 13 as root and as an ordinary user: deploy/install/tests/install.bats in roots.

What it does there, it does to a whole machine: it installs through a pipe, upgrades, uninstalls and purges, and is
refused what it must refuse. Roots are made once and kept in GOODPUT_ROOTS (/var/tmp/goodput-roots without it).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from goodput_site.launcher.processes import free_port
from goodput_site.tests.guide.tools import tool

pytestmark = [pytest.mark.full, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]
BARE_ROOT = ROOT / ".ci/bare-root"
ROOTS = Path(os.environ.get("GOODPUT_ROOTS", "/var/tmp/goodput-roots"))  # noqa: S108 - root's own folder, mode 0755


@pytest.fixture(scope="module", params=["bookworm", "trixie"])
def machine(request: pytest.FixtureRequest) -> Path:
    """The folder of a bare Debian."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a bare machine")
    tool("debootstrap")
    folder = ROOTS / str(request.param)
    ROOTS.mkdir(mode=0o755, exist_ok=True)
    made = subprocess.run([BARE_ROOT, "make", request.param, folder], capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    shutil.copy(ROOT / "deploy/install/tests/install.bats", folder / "tmp/install.bats")
    return folder


@pytest.mark.parametrize(
    ("user", "flags", "ways"),
    [("root", "", "agent-only"), ("somebody", "--user", "agent-only"), ("somebody", "", "embedded")],
    ids=["agent as root", "agent for a user", "server for a user"],
)
@pytest.mark.django_db(transaction=True)
def test_the_installer_on_a_bare_machine(
    machine: Path, user: str, flags: str, ways: str, live_server: Any, release: Path, settings: Any, tmp_path: Path
) -> None:
    if ways == "embedded" and machine.name == "bookworm":
        pytest.skip("the whole server is installed on the newer Debian only: it takes a minute or two")
    (tmp_path / "releases").symlink_to(release)
    settings.GOODPUT_VAR = tmp_path
    shutil.rmtree(f"{machine}.changes", ignore_errors=True)
    given = f"GOODPUT_ORIGIN={live_server.url} SCRIPT_FLAGS={flags} PORT={free_port()}"
    done = subprocess.run(
        [BARE_ROOT, "run", machine, "--as", user, f"{given} bats --filter {ways} /tmp/install.bats"],
        capture_output=True,
        text=True,
        timeout=1800,
    )
    shutil.rmtree(f"{machine}.changes", ignore_errors=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not ok" not in done.stdout
    assert "skip" not in done.stdout
    assert done.stdout.count("\nok ") >= 5
