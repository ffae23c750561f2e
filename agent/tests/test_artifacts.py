"""The single file and the executable against the real server: pages, database and all."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys

import pytest

from agent import build


@pytest.fixture(scope="module")
def executable(tmp_path_factory):
    if importlib.util.find_spec("PyInstaller") is None:
        pytest.skip("PyInstaller is not installed")
    return build.binary(tmp_path_factory.mktemp("executable"))


@pytest.fixture
def deliver(live_server, alpha, key_of, tmp_path):
    """Runs `once` of a command against the server with a key; what the outbox says of it afterwards."""
    key = tmp_path / "token"
    key.write_text(key_of(alpha, "ingest") + "\n")
    key.chmod(0o600)

    def once(command):
        state = str(tmp_path / "state")
        flags = ["--source", "sim", "--endpoint", f"{live_server.url}/v1/batches", "--state-dir", state]
        done = subprocess.run(
            [*command, "once", *flags, "--token-file", str(key)], capture_output=True, timeout=120, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr.decode()
        found = subprocess.run([*command, "status", "--state-dir", state], capture_output=True, timeout=60, check=True)
        (node,) = json.loads(found.stdout)["nodes"]
        return node

    return once


@pytest.mark.django_db(transaction=True)
def test_the_server_receipts_what_the_single_file_sends(deliver, tmp_path):
    target = tmp_path / build.NAME
    target.write_bytes(build.archive())
    node = deliver([sys.executable, "-I", str(target)])
    assert (node["delivered"], node["batches_queued"]) == (1, 0)


@pytest.mark.full
@pytest.mark.django_db(transaction=True)
def test_the_executable_is_reproducible_and_the_server_receipts_what_it_sends(deliver, executable, tmp_path):
    assert executable.read_bytes() == build.binary(tmp_path / "two").read_bytes()
    node = deliver([str(executable)])
    assert (node["delivered"], node["batches_queued"]) == (1, 0)


@pytest.mark.full
def test_the_executable_reads_nvml_in_its_own_child(executable, tmp_path, stub_driver):
    flags = ["--source", "nvml", "--dry-run", "--sysfs", str(tmp_path), "--kmsg", str(tmp_path / "none")]
    done = subprocess.run([str(executable), "once", *flags], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    (interval,) = json.loads(done.stdout)["intervals"]
    assert len(interval["gpus"]) == 8
