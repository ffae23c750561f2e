"""What the agent's tests share."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from agent.tests.backend import Backend
from agent.tests.stub_driver import StubDriver

STUB_SOURCE = Path(__file__).parent / "stub" / "fakenvml.c"


@pytest.fixture
def backend():
    server = Backend()
    yield server
    server.close()


@pytest.fixture(scope="session")
def stub_libraries(tmp_path_factory):
    """Directories with a stand-in libnvidia-ml.so.1: of a driver of today, and of one before 535."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler: the NVML stand-in cannot be built")
    found = {}
    for name, flags in (("today", []), ("old", ["-DNO_EVENT_REASONS"])):
        directory = tmp_path_factory.mktemp(f"nvml-{name}")
        target = directory / "libnvidia-ml.so.1"
        command = [compiler, "-shared", "-fPIC", "-O1", "-Wl,-soname,libnvidia-ml.so.1", *flags]
        subprocess.run([*command, "-o", str(target), str(STUB_SOURCE)], check=True)
        found[name] = directory
    return found


@pytest.fixture
def stub_driver(stub_libraries, tmp_path, monkeypatch):
    """A driver whose answers a test writes; found by child processes through LD_LIBRARY_PATH."""
    driver = StubDriver(stub_libraries, tmp_path, monkeypatch)
    yield driver
    driver.close()
