"""A corpus of tampered packs: each takes the files and gives a tampered set, and the check that is named must fail."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from agent import wire
from claims.domain.merkle import Checkpoint
from claims.inputs import canonical_json
from claims.tests.packs import Files, Made, agents, edited, first_batch, healthy_runs, note_name, verdict
from claims.verify.batches import gunzip
from claims.verify.checks import FAIL, PASS

pytestmark = pytest.mark.django_db


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


def result(path: str, value: Any) -> Callable[[Files], Files]:
    def change(files: Files) -> Files:
        def put(document: Any) -> None:
            *way, last = path.split(".")
            for step in way:
                document = document[int(step) if step.isdigit() else step]
            document[last] = value

        return edited(files, "result.json", put)

    return change


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
