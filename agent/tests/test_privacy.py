"""Nothing that a process could have chosen leaves the node: proved over every outgoing byte, the logs and the disk."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import subprocess
import sys

import msgpack
import pytest

from agent import wire
from agent.replay import build_tree
from agent.tests.rig import Rig

NAME = "canary-comm-77"
SECRETS = {
    "name": NAME,
    "argument": "canary-argument-f00d",
    "environment": "canary-environment-beef",
    "pid": "4242999",
    "serial": "1650000000777",
    "address": "0x6f6f_320c2000",
    "file": "canary-model.safetensors",
}
RECORDS = f"""\
4,1,1000,c;NVRM: GPU at PCI:0000:3b:00: GPU-0b1c2d3e-1111-2222-3333-444455556666
4,2,1001,c;NVRM: GPU Board Serial Number: {SECRETS["serial"]}
4,3,1002,c;NVRM: Xid (PCI:0000:3b:00): 31, pid={SECRETS["pid"]}, name={NAME}, Ch 1 faulted @ {SECRETS["address"]}
4,4,1003,c;NVRM: Xid (PCI:0000:3b:00): 145, pid={SECRETS["pid"]}, name={NAME}, RLW_REMAP Nonfatal XC0 i0 Link 02
6,5,1004,-;oom-kill: task={NAME},pid={SECRETS["pid"]} file={SECRETS["file"]}
4,6,1005,c;NVRM: Xid (PCI:0000:3b:00): abc, pid={SECRETS["pid"]}, name={NAME}
"""


def forms(secret):
    """The secret as it is, in base64 at each alignment, in hex, and hashed."""
    raw = secret.encode()
    yield raw
    yield raw.hex().encode()
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + raw)
        yield encoded[4:-4] if len(encoded) > 12 else encoded
    for algorithm in ("md5", "sha1", "sha256"):
        digest = hashlib.new(algorithm, raw)
        yield digest.hexdigest().encode()
        yield digest.digest()


@pytest.fixture
def node_with_canaries(tmp_path, stub_driver):
    """A machine with canary processes beside the agent, and canaries in every line that a driver could print."""
    stub_driver.answers(gpu__0__serial=SECRETS["serial"])
    (tmp_path / "kmsg").write_text(RECORDS)
    build_tree(tmp_path, ["/sys/class/infiniband/mlx5_0/ports/1/state:4: ACTIVE"])
    beside = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(60)", SECRETS["argument"], SECRETS["file"]],
        env={**os.environ, "CANARY": SECRETS["environment"]},
    )
    yield tmp_path
    beside.kill()
    beside.wait()


def test_no_canary_in_any_byte_that_leaves(node_with_canaries, backend):
    tmp_path = node_with_canaries
    flags = [
        "--source", "nvml", "--endpoint", backend.url, "--state-dir", str(tmp_path / "state"), "--log-level", "debug",
        "--sysfs", str(tmp_path / "sys"), "--kmsg", str(tmp_path / "kmsg"), "--cluster", "c", "--node-id", "n",
    ]  # fmt: skip
    environment = {**os.environ, "CANARY_OF_AGENT": SECRETS["environment"]}
    command = [sys.executable, "-m", "agent", "once", *flags]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    (batch,) = backend.batches.values()
    assert [x["code"] for x in batch["intervals"][0]["xids"]] == [31, 145]
    assert batch["intervals"][0]["gpus"][0]["serial_hash"]
    seen = [done.stdout, done.stderr]
    for path, headers, body in backend.requests:
        seen += [path.encode(), repr(headers).encode(), gzip.decompress(body)]
    assert backend.enrolments
    for path, headers, body in backend.enrolments:
        assert set(json.loads(body)) <= set(wire.ENROLMENT)  # no key that the contract page does not list
        seen += [path.encode(), repr(headers).encode(), body]
    for file in (tmp_path / "state").rglob("outbox*"):
        seen.append(file.read_bytes())
    for what, secret in SECRETS.items():
        for form in forms(secret):
            for data in seen:
                assert form not in data, what


def test_every_key_that_can_be_sent_is_in_the_contract(tmp_path, backend):
    """`encode` refuses an unlisted key; every key of real and simulated samples is listed."""
    listed = {(table, field.key) for table, field in wire.listed_keys()}
    rig = Rig(tmp_path, backend.url, "ecc_storm")
    for _ in range(15):
        rig.minute()
    rig.store.assemble(rig.now_ms)
    rig.drain()
    for _path, _headers, body in backend.requests:
        batch = msgpack.unpackb(gzip.decompress(body), raw=False)
        assert {("BATCH", key) for key in batch} <= listed
        for interval in batch["intervals"]:
            assert {("INTERVAL", key) for key in interval} <= listed
    with pytest.raises(wire.WireError):
        wire.encode({**batch, "process_name": "x"})
    rig.close()


def test_a_batch_is_signed_by_the_installations_own_key(tmp_path, backend):
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    from agent.identity import Signer, private_dir

    private_dir(tmp_path / "s")
    signer = Signer(tmp_path / "s")
    assert (tmp_path / "s/signing.key").stat().st_mode & 0o777 == 0o600
    assert Signer(tmp_path / "s").public_key == signer.public_key
    rig = Rig(tmp_path / "s", backend.url, sign=signer.sign)
    rig.sample()
    rig.drain()
    _path, headers, body = backend.requests[0]
    signature = headers[wire.HEADER_SIGNATURE]
    key = ed25519.Ed25519PublicKey.from_public_bytes(base64.b64decode(signer.public_key))
    digest = hashlib.sha256(gzip.decompress(body)).digest()
    key.verify(base64.b64decode(signature), wire.signed_message(digest))
    rig.close()


def test_secrets_of_the_agent_are_private_files(tmp_path, backend):
    from agent.errors import ConfigError, PermissionProblem
    from agent.identity import read_private

    token = tmp_path / "token"
    token.write_text("gp_ingest_1\n")
    token.chmod(0o644)
    with pytest.raises(PermissionProblem, match="chmod 600"):
        read_private(token)
    token.chmod(0o600)
    assert read_private(token) == b"gp_ingest_1\n"
    with pytest.raises(ConfigError):
        read_private(tmp_path / "missing")
    flags = ["--source", "sim", "--endpoint", backend.url, "--state-dir", str(tmp_path / "state")]
    done = subprocess.run(
        [sys.executable, "-m", "agent", "once", *flags, "--token-file", str(token)], capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert backend.requests[0][1]["Authorization"] == "Bearer gp_ingest_1"
    state = tmp_path / "state"
    assert state.stat().st_mode & 0o777 == 0o700
    for file in state.iterdir():
        assert file.stat().st_mode & 0o077 == 0, file
        assert b"gp_ingest_1" not in file.read_bytes()
