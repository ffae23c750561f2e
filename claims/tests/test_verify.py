"""A simulated claim's pack verifies offline, with and without packages, in one process and in two."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from claims.domain.contract_load import contract_from_json, digest
from claims.errors import PackError
from claims.inputs import canonical_json
from claims.tests.from_slots import check as check_from_slots
from claims.tests.packs import Files, Made, agents, healthy_runs, verdict
from claims.verify.batches import gunzip
from claims.verify.build import build
from claims.verify.checks import FAIL, NOT_PROVEN, PASS, Finding, answers, check_pack
from claims.verify.ed25519 import verify, verify_plain
from claims.verify.pack_file import read_pack
from claims.verify.recompute import result_of
from claims.verify.unpack import decode as plain_decode
from claims.verify.work import MEMORY, Work

pytestmark = pytest.mark.django_db


def test_the_pack_gives_four_answers_and_never_one_pass(made: Made) -> None:
    findings = check_pack(made.files)
    assert [one for one in findings if one.verdict == FAIL] == []
    assert answers(findings) == {"arithmetic": PASS, "integrity": PASS, "anchors": NOT_PROVEN, "source": NOT_PROVEN}
    assert "SIMULATED" in next(one.detail for one in findings if one.check == "agent")
    signed = next(one for one in findings if one.check == "signed")
    assert signed.verdict == NOT_PROVEN
    assert signed.detail.startswith("100.0 % of the claimed batches (")
    assert "not in the log" not in signed.detail
    assert made.files["VERIFY.md"].startswith(b"# Unanchored statement")


def test_a_weight_that_nobody_knows_is_an_empty_cell_of_slots_csv(made: Made) -> None:
    rows = list(csv.DictReader(io.StringIO(made.files["slots.csv"].decode(), newline="")))
    assert {row["nominal"] for row in rows if row["state"] == "unknown"} == {""}
    assert all(row["nominal"].isdigit() for row in rows if row["state"] != "unknown")


def test_the_second_implementation_comes_to_the_same_from_slots_csv(made: Made) -> None:
    check_from_slots(made.files)
    head, first, *rest = made.files["slots.csv"].split(b"\r\n")
    row = first.decode().split(",")
    row[4:] = ["observed", "0", "0", "0", "XID_79", ""]
    forged = {**made.files, "slots.csv": b"\r\n".join([head, ",".join(row).encode(), *rest])}
    with pytest.raises(AssertionError):
        check_from_slots(forged)


@pytest.mark.parametrize("owns_driver", [True, False])
def test_of_a_firmware_hang_the_verifier_and_the_second_implementation_ask_who_owns_the_driver(
    made: Made, owns_driver: bool
) -> None:
    files = {
        name: raw.replace(b"XID_79", b"XID_119") if name == "slots.csv" or name.startswith("runs/") else raw
        for name, raw in made.files.items()
    }
    assert b"XID_119" in files["slots.csv"]
    terms = {**json.loads(files["contract.json"]), "counts": ["firmware"], "owns_driver": owns_driver}
    files["contract.json"] = canonical_json(terms)
    frozen = json.loads(files["inputs.json"])
    frozen["contract"]["digest"] = digest(contract_from_json(files["contract.json"]))
    for one in frozen["node_months"]:
        one["digest"] = hashlib.sha256(files[f"runs/{one['id']}-{one['month']}.json"]).hexdigest()
    files["inputs.json"] = canonical_json(frozen)
    files["result.json"] = canonical_json(result_of(files))
    assert verdict(files, "result") == PASS
    check_from_slots(files)
    reading = json.loads(files["result.json"])["assessment"]["result"]["units"][0]["readings"]["lower"]
    assert (reading["down_seconds"] != "0") is owns_driver


def test_the_zipapp_verifies_it_without_packages_or_the_server(made: Made, tmp_path: Path) -> None:
    app, pack = tmp_path / "goodput-verify", tmp_path / "pack.zip"
    app.write_bytes(build())
    pack.write_bytes(made.body)
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(app), str(pack), "--json", "--jobs", "2"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["answers"]["integrity"] == PASS
    pack.write_bytes(made.body[:5000])
    assert subprocess.run([sys.executable, "-I", "-S", str(app), str(pack)], capture_output=True).returncode == 2


def in_two(files: Files, memory: int = MEMORY, only: tuple[str, ...] = ()) -> list[Finding]:
    work = Work(files, 2, memory=memory)
    work.begin()
    try:
        return check_pack(files, only=only, work=work)
    finally:
        work.end()


def test_two_processes_find_what_one_finds(made: Made) -> None:
    twice = {**made.files, "windows.json": canonical_json(json.loads(made.files["windows.json"]) * 2)}
    assert in_two(twice) == check_pack(twice)
    tampered = made.signed(healthy_runs(made.files, True))
    found = in_two(tampered)
    assert found == check_pack(tampered)
    assert "fold" in [one.check for one in found if one.verdict == FAIL]


def test_a_worker_that_dies_or_lacks_memory_fails_the_check(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("claims.verify.work.fold_one", lambda files, number: len(bytearray(512 << 20)))
    (starved,) = in_two(made.files, memory=64 << 20, only=("fold",))
    assert (starved.verdict, "MemoryError" in starved.detail) == (FAIL, True)
    monkeypatch.setattr("claims.verify.work.fold_one", lambda files, number: os.kill(os.getpid(), signal.SIGKILL))
    assert in_two(made.files, only=("fold",))[0].verdict == FAIL


def test_the_zipapp_is_the_same_bytes_every_time() -> None:
    assert build() == build()


def test_the_standard_librarys_decoder_reads_what_the_server_reads(made: Made) -> None:
    from fleet.decode import decode_trusted

    for name in [one for one in made.files if one.startswith("batches/")][:40]:
        raw = gunzip(made.files[name])
        mine, theirs = plain_decode(raw), decode_trusted(raw)
        assert _plain(mine) == _plain(theirs)


def _plain(value: Any) -> Any:
    if hasattr(value, "__struct_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if hasattr(value, "__dict__") and not isinstance(value, tuple):
        return {name: _plain(one) for name, one in vars(value).items()}
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def test_plain_integers_verify_signatures_as_the_library_does() -> None:
    for number in range(4):
        private = Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
        public = private.public_key().public_bytes_raw()
        signature = private.sign(b"message")
        assert verify(public, b"message", signature)
        assert verify_plain(public, b"message", signature)
        for wrong in (b"massage", b""):
            assert not verify_plain(public, wrong, signature)
        assert not verify_plain(public, b"message", signature[:63] + bytes([signature[63] ^ 1]))
    assert not verify_plain(bytes(31), b"", bytes(64))


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "a/../../b", "a\\b", "C:/x", "", "a/b/c/d"])
def test_a_name_that_leaves_the_pack_is_refused(made: Made, name: str) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), b"x")
    with pytest.raises(PackError):
        read_pack(io.BytesIO(out.getvalue()))


def test_bombs_and_doubles_are_refused() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("claim.json", bytes(50 << 20))
    with pytest.raises(PackError, match=r"suspiciously|lacks"):
        read_pack(io.BytesIO(out.getvalue()))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a", b"1")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a", b"2")
    with pytest.raises(PackError, match="twice"):
        read_pack(io.BytesIO(out.getvalue()))


def test_batches_without_a_signature_or_an_enrolled_key_are_told_and_not_called_false(made: Made) -> None:
    def told(change: Callable[[Any], None]) -> str:
        (finding,) = check_pack(made.signed(agents(change)(made.files)), only=("signed",))
        assert finding.verdict == NOT_PROVEN
        return finding.detail

    number = len(json.loads(made.files["agents.json"])["signatures"])
    assert told(lambda one: one.update(signatures={})) == (
        f"0.0 % of the claimed batches (0 of {number}) are signed by an enrolled key. {number} unsigned"
    )
    assert f"{number} signed where no key was enrolled" in told(lambda one: one.update(keys=[]))
    unlogged = {"index": None, "path": []}
    assert "not in the log" in told(lambda one: one["keys"][0].update(unlogged))
    assert "enrolled only after they came" in told(lambda one: one["keys"][0].update(unlogged, enrolled_us=str(10**17)))
    assert f"{number} signed by a key that was revoked before" in told(
        lambda one: one["keys"][0].update(revoked_us=one["keys"][0]["enrolled_us"])
    )
    older = {name: raw for name, raw in made.files.items() if name != "agents.json"}
    (finding,) = check_pack(made.signed(older), only=("signed",))
    assert (finding.verdict, finding.detail) == (NOT_PROVEN, "the pack names no keys of agents")


def test_a_fold_of_another_release_is_not_proven_and_not_called_false(made: Made) -> None:
    manifest = json.loads(made.files["manifest.json"])
    other = {**made.files, "manifest.json": canonical_json({**manifest, "fold": manifest["fold"] + 1})}
    (finding,) = check_pack(other, only=("fold",))
    assert finding.verdict == NOT_PROVEN
    assert f"of format {manifest['fold'] + 1}" in finding.detail
    assert verdict(other, "signature") == FAIL  # it can't be said afterwards


def test_states_of_another_release_are_not_proven_and_not_called_false(made: Made) -> None:
    name = next(one for one in made.files if one.startswith("states/"))
    raw = made.files[name]
    end = 3 + int.from_bytes(raw[:3], "big")
    tree = json.loads(raw[3:end])
    head = json.dumps([2, *tree[1:]]).encode()
    older = {**made.files, name: len(head).to_bytes(3, "big") + head + raw[end:]}
    (finding,) = check_pack(made.signed(older), only=("fold",))
    assert finding.verdict == NOT_PROVEN
    assert "of format 2" in finding.detail
    assert verdict(older, "manifest") == FAIL  # nobody but the key's holder makes one
