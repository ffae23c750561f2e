"""What docs/scale-out.md hands out: units that systemd takes, variables, a balancer that asks the right thing."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "scale-out"
UNITS = sorted(FOLDER.glob("*.service"))
DOCS = "\n".join((ROOT / "docs" / name).read_text() for name in ("settings.md", "scale-out.md", "launcher.md"))


def test_every_part_has_a_unit() -> None:
    assert [unit.name for unit in UNITS] == [
        *("goodput-alerts.service", "goodput-beat.service", "goodput-web@.service", "goodput-worker.service"),
    ]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_takes_the_unit(unit: Path, tmp_path: Path) -> None:
    """Checked with programs that exist here in place of those that will."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze here")
    text = unit.read_text().replace("/opt/goodput/.venv/bin/python", "/bin/true").replace("/opt/goodput", "/tmp")
    copy = tmp_path / unit.name.replace("@", "@8080")
    copy.write_text(text)
    done = subprocess.run([program, "verify", str(copy)], capture_output=True, text=True)
    ours = [line for line in done.stderr.splitlines() if unit.name.split("@")[0].split(".")[0] in line]
    assert ours == []


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_start_what_the_launcher_starts(unit: Path) -> None:
    """The same programs with the same options, so that both are run by the same tests."""
    launcher = (ROOT / "goodput_site" / "launcher" / "up.py").read_text()
    line = next(line for line in unit.read_text().splitlines() if line.startswith("ExecStart="))
    for option in re.findall(r"--[a-z-]+", line):
        assert f'"{option}"' in launcher, option


def test_the_variables_are_described() -> None:
    names = re.findall(r"^#? ?([A-Z_]+)=", (FOLDER / "server.env").read_text(), re.MULTILINE)
    assert {"DATABASE_URL", "REDIS_URL", "GOODPUT_SECRET_KEY", "GOODPUT_CITUS"} <= set(names)
    assert [name for name in names if f"`{name}`" not in DOCS and name != "DJANGO_SETTINGS_MODULE"] == []


def test_the_balancer_asks_for_readiness_and_believes_no_sender() -> None:
    text = (FOLDER / "haproxy.cfg").read_text()
    assert "uri /readyz" in text
    assert text.index("del-header X-Forwarded-For") < text.index("set-header X-Forwarded-For")
    assert "set-header X-Forwarded-Proto https" in text
