"""Fleet and Node in WebKitGTK at the size of an iPhone: the engine of Safari, though not Safari itself."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.full, pytest.mark.slow]

SNAPSHOT = Path(__file__).with_name("webkit_snapshot.py")
SYSTEM_PYTHON = "/usr/bin/python3"
PACKAGES = "xvfb xauth gir1.2-webkit2-4.1 python3-gi python3-gi-cairo gir1.2-gtk-3.0"
PROBE = "import gi; gi.require_version('Gtk', '3.0'); gi.require_version('WebKit2', '4.1')"


@pytest.fixture(scope="module")
def webkit() -> list[str]:
    """The command that takes a picture; skips where the packages are missing."""
    has_bindings = (
        Path(SYSTEM_PYTHON).exists()
        and subprocess.run([SYSTEM_PYTHON, "-c", PROBE], capture_output=True, timeout=60).returncode == 0
    )
    xvfb = shutil.which("xvfb-run")
    if not has_bindings or xvfb is None:
        pytest.skip(f"no WebKitGTK here: apt-get install --no-install-recommends {PACKAGES}")
    return [xvfb, "-a", SYSTEM_PYTHON, str(SNAPSHOT)]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/o/local/", ("Fleet", "GPUs available now", "90 days")),
        ("/o/local/nodes/1/", ("sim-000", "Kernel events", "Identity", "90 days")),
        ("/o/local/nodes/1/gpus/0/", ("GPU 0 of", "Facts as received")),
        ("/o/local/incidents/", ("Incidents",)),
    ],
)
def test_it_fits_an_iphone(
    webkit: list[str], server: Any, tmp_path: Path, path: str, expected: tuple[str, ...]
) -> None:
    picture = tmp_path / "page.png"
    command = [*webkit, server.url + path, str(picture), "390", "844"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert "error" not in found, found
    assert found["width"] <= found["viewport"] == 390
    for words in expected:
        assert words in found["title"] + found["words"]
    assert found["localised"], "the page's script did not run to its end"
    assert picture.stat().st_size > 10_000
