"""Programs that the tests of `--full` call: those of the virtual environment first, then the machine's."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

BESIDE = Path(sys.executable).parent
# What a missing program comes from. Those from pip are in requirements-dev.lock.
COMES_FROM = {
    "helm": "python .ci/helm.py",
    "debootstrap": "apt-get install debootstrap",
    "nginx": "apt-get install nginx",
    "caddy": "apt-get install caddy",
}


def tool(name: str) -> str:
    """The path of a program; skips the test where there is none, and says what brings it."""
    found = os.environ.get(name.upper().replace("-", "_")) or shutil.which(name, path=f"{BESIDE}{os.pathsep}{_path()}")
    if not found:
        pytest.skip(f"{name} is not here: {COMES_FROM.get(name, 'pip install -r requirements-dev.txt')}")
    return found


def _path() -> str:
    return os.environ.get("PATH", os.defpath)
