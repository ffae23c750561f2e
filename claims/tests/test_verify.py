"""A simulated claim's pack verifies offline; a corpus of tampered ones fails, each on its named check."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agent import wire
from claims.domain.contract_load import contract_from_json, digest
from claims.domain.merkle import Checkpoint
from claims.domain.month_runs import decode, encode
from claims.errors import PackError
from claims.inputs import canonical_json
from claims.tests.from_slots import check as check_from_slots
from claims.verify.batches import gunzip
from claims.verify.build import build
from claims.verify.checks import FAIL, NOT_PROVEN, PASS, Finding, answers, check_pack
from claims.verify.ed25519 import verify, verify_plain
from claims.verify.pack_file import MANIFEST_TAG, read_pack
from claims.verify.recompute import result_of
from claims.verify.unpack import decode as plain_decode
from claims.verify.work import MEMORY, Work
from fleet.domain.verdicts import HEALTHY

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 9, 8, tzinfo=UTC)
Files = dict[str, bytes]


def agents(change: Callable[[Any], None]) -> Callable[[Files], Files]:
    return lambda files: edited(files, "agents.json", change)


def other_signature(document: Any) -> None:
    """One batch bears another one's signature."""
    first, second = sorted(document["signatures"])[:2]
    document["signatures"][first] = document["signatures"][second]


def other_key(document: Any) -> None:
    """A key that the forger holds, under the old one's place in the log."""
    private = Ed25519PrivateKey.generate()
    document["keys"][0]["public_key"] = private.public_key().public_bytes_raw().hex()
    for sha in document["signatures"]:
        raw = private.sign(wire.signed_message(bytes.fromhex(sha)))
        document["signatures"][sha] = base64.b64encode(raw).decode()


def foreign_signature(document: Any) -> None:
    document["signatures"]["00" * 32] = next(iter(document["signatures"].values()))


class Made:
    """A pack, its files, and the key that signed it."""

    def __init__(self, body: bytes, key: Any) -> None:
        self.body, self.key = body, key
        self.files = read_pack(io.BytesIO(body))

    def signed(self, files: Files, key: Any = None) -> Files:
        """The files with a manifest and a signature that fit them: what a forger who holds a key would do."""
        key = key or self.key
        manifest = json.loads(files["manifest.json"])
        manifest["files"] = {
            name: hashlib.sha256(raw).hexdigest()
            for name, raw in files.items()
            if name not in ("manifest.json", "manifest.sig")
        }
        raw = canonical_json(manifest)
        signature = base64.b64encode(key.private.sign(MANIFEST_TAG + raw))
        return {**files, "manifest.json": raw, "manifest.sig": signature}


@pytest.fixture(scope="module")
def made(django_db_setup: None, django_db_blocker: Any, tmp_path_factory: Any) -> Iterator[Made]:
    """The pack of the simulated claim, made once; nothing of it stays in the database."""
    from django.test import override_settings

    from claims.demo import make_demo_pack
    from claims.ledger import load_key
    from orgs.models import Org

    with django_db_blocker.unblock(), override_settings(GOODPUT_VAR=tmp_path_factory.mktemp("var")):
        body = make_demo_pack(NOW)
        assert not Org.objects.filter(slug__startswith="demo-claim").exists()
        yield Made(body, load_key())


def verdict(files: Files, check: str, key: str = "") -> str:
    return check_pack(files, key, only=(check,))[0].verdict


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


# The corpus. Each takes the files and the maker of packs and gives a tampered set and the check that must fail.


def edited(files: Files, name: str, change: Callable[[Any], None]) -> Files:
    document = json.loads(files[name])
    change(document)
    return {**files, name: canonical_json(document)}


def result(path: str, value: Any) -> Callable[[Files], Files]:
    def change(files: Files) -> Files:
        def put(document: Any) -> None:
            *way, last = path.split(".")
            for step in way:
                document = document[int(step) if step.isdigit() else step]
            document[last] = value

        return edited(files, "result.json", put)

    return change


def first_batch(files: Files) -> str:
    return next(name for name in sorted(files) if name.startswith("batches/"))


def other_batch(files: Files) -> Files:
    names = sorted(name for name in files if name.startswith("batches/"))
    return {**files, names[0]: files[names[1]]}


def renamed_batch(files: Files) -> Files:
    """A changed batch under its own new name everywhere: it is no leaf of the log."""
    old = first_batch(files)
    raw = gunzip(files[old]).replace(b"sim-0001", b"sim-0009")
    was, sha = old[len("batches/") :].partition(".")[0], hashlib.sha256(raw).hexdigest()
    out = {name: body for name, body in files.items() if name != old}
    out[f"batches/{sha}.msgpack.gz"] = gzip.compress(raw, mtime=0)
    for name in ("windows.json", "skeleton.json", "proofs.json"):
        out[name] = out[name].replace(was.encode(), sha.encode())
    return out


def without_half_of_the_batches(files: Files) -> Files:
    windows = json.loads(files["windows.json"])
    gone = set(windows[0]["batches"][::2])
    windows[0]["batches"] = windows[0]["batches"][1::2]
    out = {name: raw for name, raw in files.items() if name[8:72] not in gone or not name.startswith("batches/")}
    return {**out, "windows.json": canonical_json(windows)}


def healthy_runs(files: Files, fits: bool) -> Files:
    """Verdicts as a forger would like them, with the digests that fit; `fits`: the result too."""
    out = dict(files)
    inputs = json.loads(files["inputs.json"])
    for one in inputs["node_months"]:
        name = f"runs/{one['id']}-{one['month']}.json"
        runs = decode(files[name])
        bad = next(v for _, _, v in runs["g0"] + [r for s in runs for r in runs[s]] if v.lower == 0)
        runs = {s: [(a, b, bad if v == HEALTHY and s == "g1" else v) for a, b, v in line] for s, line in runs.items()}
        out[name] = encode(runs)
        one["digest"] = hashlib.sha256(out[name]).hexdigest()
    if fits:
        out["inputs.json"] = canonical_json(inputs)
        out["result.json"] = canonical_json(result_of(out))
    return out


def skeleton(change: Callable[[dict[str, Any]], None], which: int = 0) -> Callable[[Files], Files]:
    def run(files: Files) -> Files:
        wanted = first_batch(files)[len("batches/") :].partition(".")[0]

        def put(document: Any) -> None:
            lines = [one for one in document if one["sha256"] == wanted] + [
                one for one in document if one["sha256"] != wanted
            ]
            change(lines[which])

        return edited(files, "skeleton.json", put)

    return run


def proofs(change: Callable[[dict[str, Any]], None]) -> Callable[[Files], Files]:
    def run(files: Files) -> Files:
        return edited(files, "proofs.json", lambda document: change(sorted(document["inclusion"].items())[0][1]))

    return run


def note_name(files: Files) -> str:
    return next(name for name in files if name.endswith(".note"))


def made_anchor(files: Files) -> dict[str, str]:
    """A mail that never was."""
    size = note_name(files)[len("checkpoints/") :].partition(".")[0].lstrip("0")
    at = "2026-10-30T00:00:00.000+00:00"
    return {"kind": "mail", "size": size, "at": at, "who": "x@y.example", "reference": "", "file": "claim.json"}


def swapped_contract(files: Files) -> Files:
    """Better tiers, with a digest that fits."""
    from claims.domain.contract_load import contract_from_json, digest

    raw = files["contract.json"].replace(b'["99.9","10"]', b'["99.99","20"]')
    assert raw != files["contract.json"]
    out = {**files, "contract.json": raw}
    return edited(out, "inputs.json", lambda one: one["contract"].update(digest=digest(contract_from_json(raw))))


def lighter_rules(files: Files) -> Files:
    name = next(one for one in files if one.startswith("rules/"))
    return {**files, name: files[name] + b"\n# a word more\n"}


def wider_row(files: Files) -> Files:
    return edited(files, "inputs.json", lambda one: one["overlays"][0].update(first_slot="1"))


RESIGNED: list[tuple[str, str, Callable[[Files], Files]]] = [
    ("a higher amount", "amount", lambda f: edited(f, "claim.json", lambda one: one.update(amount="99999.00"))),
    ("another currency", "amount", lambda f: edited(f, "claim.json", lambda one: one.update(currency="USD"))),
    ("a result without a claim", "amount", result("assessment.result.claim", None)),
    ("a status that is not ok", "amount", result("assessment.result.status", "insufficient_data")),
    ("a higher claim in the result", "result", result("assessment.result.claim", "99999.00")),
    (
        "an incident that began earlier",
        "result",
        result("assessment.result.units.0.incidents.0.start_utc", "2026-10-30T00:00:00Z"),
    ),
    ("other reasons", "result", result("assessment.result.units.0.incidents.0.reasons", {"XID_48": "15"})),
    ("another coverage", "result", result("assessment.result.coverage.known_slots", "1")),
    ("another capability", "result", result("capability.gpus", "9")),
    ("a day that counted more", "result", result("days.0.counted_seconds", "86400")),
    ("another fee", "result", result("assessment.result.units.0.fee_charged", "1000000")),
    ("a simulated pack that says it is real", "fold", lambda f: {**healthy_runs(f, True)}),
    ("another provider", "result", result("contract.provider", "Somebody else")),
    ("better tiers", "result", swapped_contract),
    (
        "better tiers without their digest",
        "result",
        lambda f: {**f, "contract.json": f["contract.json"].replace(b'"480"', b'"4800"')},
    ),
    ("other rules", "result", lighter_rules),
    ("a wider entitlement", "result", wider_row),
    ("a row taken away", "result", lambda f: edited(f, "inputs.json", lambda one: one.update(overlays=[]))),
    ("rows that the report did not use", "tables", lambda f: {**f, "overlays.json": b"[]"}),
    ("a list with another incident", "tables", lambda f: {**f, "incidents.csv": f["incidents.csv"] + b"x,a,b,1,,\r\n"}),
    (
        "a list without incidents",
        "tables",
        lambda f: {**f, "incidents.csv": f["incidents.csv"].split(b"\r\n")[0] + b"\r\n"},
    ),
    (
        "a better coverage",
        "tables",
        lambda f: edited(f, "coverage.json", lambda one: one["contract"].update(known_slots="9")),
    ),
    ("verdicts that nobody digested", "result", lambda f: healthy_runs(f, False)),
    ("verdicts that fit everything but the batches", "fold", lambda f: healthy_runs(f, True)),
    ("a batch in another's place", "batches", other_batch),
    ("bytes after a batch", "batches", lambda f: {**f, first_batch(f): f[first_batch(f)] + b"x"}),
    ("a batch cut short", "batches", lambda f: {**f, first_batch(f): f[first_batch(f)][:-4]}),
    ("a batch that is named and absent", "batches", lambda f: {n: b for n, b in f.items() if n != first_batch(f)}),
    ("a batch that is there and not named", "batches", lambda f: {**f, "batches/" + "0" * 64 + ".msgpack.gz": b"x"}),
    ("a made batch under its own name", "inclusion", renamed_batch),
    ("half of the batches", "fold", without_half_of_the_batches),
    ("another time of receipt", "inclusion", skeleton(lambda one: one.update(received_us="1"))),
    ("another node", "inclusion", skeleton(lambda one: one.update(node="sim-0002"))),
    ("another number", "inclusion", skeleton(lambda one: one.update(seq="7"))),
    ("another place in the log", "inclusion", skeleton(lambda one: one.update(leaf="0"))),
    ("one place twice", "sequence", skeleton(lambda one: one.update(leaf="1"), 5)),
    ("a better clock", "clock", lambda f: {**f, "clock.csv": f["clock.csv"].replace(b"synchronised", b"perfect", 1)}),
    ("a changed proof", "inclusion", proofs(lambda one: one["path"].__setitem__(0, "00" * 32))),
    ("a short proof", "inclusion", proofs(lambda one: one["path"].pop())),
    ("a long proof", "inclusion", proofs(lambda one: one["path"].append("00" * 32))),
    ("a proof of another size", "inclusion", lambda f: edited(f, "proofs.json", lambda one: one.update(size="2879"))),
    (
        "a checkpoint with another size",
        "checkpoints",
        lambda f: {**f, note_name(f): re.sub(rb"\n(\d+)\n", rb"\n1\1\n", f[note_name(f)], count=1)},
    ),
    (
        "a checkpoint without a signature",
        "checkpoints",
        lambda f: {**f, note_name(f): f[note_name(f)].split(b"\n\n")[0]},
    ),
    (
        "hours that the claim does not need",
        "windows",
        lambda f: edited(f, "windows.json", lambda one: one[0].update(first_hour=one[0]["last_hour"])),
    ),
    (
        "no windows at all",
        "windows",
        lambda f: {**{n: b for n, b in f.items() if not n.startswith("batches/")}, "windows.json": b"[]"},
    ),
    (
        "another state to begin with",
        "fold",
        lambda f: edited(f, "windows.json", lambda one: one[0].update(state="claim.json")),
    ),
    (
        "an anchor that is none",
        "anchors",
        lambda f: edited(f, "anchors.json", lambda one: one.append(made_anchor(f))),
    ),
    (
        "an anchor of a checkpoint that is not there",
        "anchors",
        lambda f: edited(f, "anchors.json", lambda one: one.append({**made_anchor(f), "size": "7"})),
    ),
    (
        "a document that the log does not hold",
        "terms",
        lambda f: edited(f, "adoptions.json", lambda one: one[0].update(name="contract Something else")),
    ),
    ("another batch's signature", "signed", agents(other_signature)),
    (
        "a signature cut short",
        "signed",
        agents(lambda one: one["signatures"].update(dict.fromkeys(one["signatures"], "AA=="))),
    ),
    ("a signature of a batch that is not there", "signed", agents(foreign_signature)),
    ("a key of the forger's own", "signed", agents(other_key)),
    ("a key enrolled earlier", "signed", agents(lambda one: one["keys"][0].update(enrolled_us="1"))),
    ("a key of another installation", "signed", agents(lambda one: one["keys"][0].update(agent="a" * 32))),
    (
        "a title that promises more",
        "anchors",
        lambda f: edited(f, "manifest.json", lambda one: one.update(title="Anchored")),
    ),
]


@pytest.mark.parametrize(("what", "check", "change"), RESIGNED, ids=[one[0] for one in RESIGNED])
def test_who_holds_the_key_and_tampers_is_found(made: Made, what: str, check: str, change: Any) -> None:
    assert verdict(made.signed(change(made.files)), check) == FAIL
    assert verdict(made.files, check) != FAIL


def test_forging_with_the_key_leaves_the_manifest_intact(made: Made) -> None:
    """The corpus above is signed as a forger would: only the named checks find it."""
    files = made.signed(RESIGNED[0][2](made.files))
    assert verdict(files, "manifest") == PASS
    assert verdict(files, "signature") == PASS


def respelled(files: Files, reverse: bool = False, **spelling: Any) -> Files:
    """The same result in other bytes."""
    result = json.loads(files["result.json"])
    if reverse:
        result = dict(reversed(result.items()))
    text = json.dumps(result, **spelling).encode()
    assert json.loads(text) == json.loads(files["result.json"])
    return {**files, "result.json": text}


UNSIGNED: list[tuple[str, str, Callable[[Files], Files]]] = [
    ("a changed file", "manifest", lambda f: {**f, "result.json": f["result.json"] + b" "}),
    ("the same JSON spelled otherwise", "manifest", lambda f: respelled(f, ensure_ascii=True, indent=1)),
    ("its keys in another order", "manifest", lambda f: respelled(f, sort_keys=True, reverse=True)),
    ("a file more", "manifest", lambda f: {**f, "extra.txt": b"x"}),
    ("a file less", "manifest", lambda f: {n: b for n, b in f.items() if n != "slots.csv"}),
    ("a changed manifest", "signature", lambda f: {**f, "manifest.json": f["manifest.json"].replace(b"Un", b"un")}),
    ("a changed signature", "signature", lambda f: {**f, "manifest.sig": base64.b64encode(bytes(64))}),
    ("a signature that is none", "signature", lambda f: {**f, "manifest.sig": b"?"}),
    ("another key", "signature", lambda f: edited(f, "keys.json", lambda one: one.update(log="x+00000000+AQ=="))),
]


@pytest.mark.parametrize(("what", "check", "change"), UNSIGNED, ids=[one[0] for one in UNSIGNED])
def test_who_tampers_without_the_key_is_found(made: Made, what: str, check: str, change: Any) -> None:
    assert verdict(change(made.files), check) == FAIL


def test_a_pack_made_with_another_key_is_found_by_whoever_knows_the_key(made: Made) -> None:
    from claims.ledger import LogKey

    other = LogKey(made.key.name, Ed25519PrivateKey.generate())
    files = edited(made.files, "keys.json", lambda one: one.update(log=other.verifier()))
    files = made.signed(files, other)
    assert verdict(files, "signature") == PASS
    assert verdict(files, "key", made.key.verifier()) == FAIL
    assert verdict(files, "checkpoints") == FAIL  # the notes still bear the old signature
    assert verdict(made.files, "key", made.key.verifier()) == PASS


def test_a_forked_log_is_found(made: Made) -> None:
    name = note_name(made.files)
    origin = made.files[name].decode().split("\n")[0]
    forged = made.key.sign(Checkpoint(origin, 100, os.urandom(32)).text())
    files = {
        **made.files,
        "checkpoints/000000000100.note": forged.encode(),
        "checkpoints/000000000100.json": canonical_json({"size": "100", "proof": []}),
    }
    assert verdict(made.signed(files), "checkpoints") == PASS
    assert verdict(made.signed(files), "consistency") == FAIL


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
