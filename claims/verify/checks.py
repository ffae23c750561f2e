"""The checks of a pack, each with a name. None of them is enough, and no single PASS is given."""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any

from claims.domain.merkle import leaf_hash, read_checkpoint, verify_consistency, verify_inclusion
from claims.domain.periods import ms_of
from claims.errors import ClaimsError, PackError, ProofError
from claims.verify.adoptions import adopted
from claims.verify.agents import BAD, VALID, WORDS, check_signed, sentence
from claims.verify.anchors import Share, percent, read_anchors, shares
from claims.verify.clocks import clock_lines
from claims.verify.documents import enclosed, read
from claims.verify.ed25519 import verify
from claims.verify.notes import leaf_bytes, open_note, public_key
from claims.verify.pack_file import ANCHORED, MANIFEST_TAG, UNANCHORED
from claims.verify.recompute import hash_of_batch, other_state_format, result_of
from claims.verify.work import Work

PASS, FAIL, NOT_PROVEN = "PASS", "FAIL", "NOT PROVEN"
ARITHMETIC, INTEGRITY, ANCHORS, SOURCE = "arithmetic", "integrity", "anchors", "source"
ANSWERS = (ARITHMETIC, INTEGRITY, ANCHORS, SOURCE)
Files = Mapping[str, bytes]
MANIFESTED = ("manifest.json", "manifest.sig")


@dataclass(frozen=True)
class Finding:
    """One check: its name, the answer that it belongs to, PASS, FAIL or NOT PROVEN, and a sentence."""

    check: str
    answer: str
    verdict: str
    detail: str


class _Wrong(Exception):
    """A check that fails, with its sentence."""


def check_pack(
    files: Files,
    known_key: str = "",
    progress: Callable[[int, int], None] = lambda done, of: None,
    only: tuple[str, ...] = (),
    work: Work | None = None,
) -> list[Finding]:
    """Every check in order, or `only` those named; a check that breaks is a FAIL, never an escape.

    `work`: what folds and checks signatures, in this process unless it is told; who made it ends it.
    """
    work = work or Work(files, progress=progress)
    out = []
    for name, answer, run in CHECKS:
        if only and name not in only:
            continue
        try:
            verdict, detail = run(files, known_key, work)
        except _Wrong as wrong:
            verdict, detail = FAIL, str(wrong)
        except (ClaimsError, ValueError, KeyError, TypeError, IndexError, AttributeError, ArithmeticError) as error:
            verdict, detail = FAIL, f"{type(error).__name__}: {error}"
        except Exception as error:
            verdict, detail = FAIL, f"can't be checked: {type(error).__name__}: {error}"
        out.append(Finding(name, answer, verdict, detail[:500]))
    return out


def answers(findings: list[Finding]) -> dict[str, str]:
    """The four answers: FAIL where one check of it fails, NOT PROVEN where one is not, else PASS."""
    out = {}
    for answer in ANSWERS:
        verdicts = {one.verdict for one in findings if one.answer == answer}
        out[answer] = FAIL if FAIL in verdicts else NOT_PROVEN if NOT_PROVEN in verdicts else PASS
    return out


_json = read


def _canonical(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


# Integrity


def _manifest(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    listed = _json(files, "manifest.json")["files"]
    for name in sorted({*files, *listed} - set(MANIFESTED)):
        if name not in listed:
            raise _Wrong(f"{name} is in the pack and not in the manifest.")
        if name not in files:
            raise _Wrong(f"{name} is in the manifest and not in the pack.")
        if hashlib.sha256(files[name]).hexdigest() != listed[name]:
            raise _Wrong(f"{name} is not what the manifest says.")
    return PASS, f"{len(listed)} files have the hashes of the manifest"


def _log_key(files: Files) -> tuple[str, bytes]:
    return public_key(_json(files, "keys.json")["log"])


def _signature(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    _, public = _log_key(files)
    try:
        signature = base64.b64decode(files["manifest.sig"].strip(), validate=True)
    except (binascii.Error, ValueError) as error:
        raise _Wrong("The signature is no base64.") from error
    if not verify(public, MANIFEST_TAG + files["manifest.json"], signature):
        raise _Wrong("The manifest does not bear the signature of the log's key.")
    return PASS, "the manifest bears the signature of the log's key"


def _known_key(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    own = _json(files, "keys.json")["log"]
    if not known_key:
        return PASS, f"compare it with the key that you know: {own}"
    if own.strip() != known_key.strip():
        raise _Wrong("The pack is signed with another key than the one you named.")
    return PASS, "it is the key that you named"


def _notes(files: Files) -> list[tuple[Any, dict[str, Any]]]:
    name, public = _log_key(files)
    out = []
    for file in sorted(one for one in files if one.startswith("checkpoints/") and one.endswith(".note")):
        text, signature = open_note(files[file].decode(), name, public)
        if not verify(public, text.encode(), signature):
            raise _Wrong(f"{file} does not bear the log's signature.")
        out.append((read_checkpoint(text), _json(files, file.replace(".note", ".json"))))
    return out


def _checkpoints(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    notes = _notes(files)
    if not notes:
        return NOT_PROVEN, "the log has no checkpoint"
    if len({one.origin for one, _ in notes}) != 1:
        raise _Wrong("The checkpoints are of different logs.")
    return PASS, f"{len(notes)} checkpoints of {notes[0][0].origin} bear its signature"


def _consistency(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    notes = _notes(files)
    for (old, _), (new, more) in pairwise(notes):
        if old.size >= new.size:
            raise _Wrong("The checkpoints do not grow.")
        verify_consistency(old.size, old.root, new.size, new.root, [bytes.fromhex(one) for one in more["proof"]])
    return PASS, "each checkpoint continues the one before"


def _batches(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    wanted = set(enclosed(files))
    there = {name[len("batches/") :].partition(".")[0] for name in files if name.startswith("batches/")}
    if wanted != there:
        raise _Wrong(f"{len(wanted ^ there)} batches are named and not enclosed, or enclosed and not named.")
    for sha in sorted(wanted):
        if hash_of_batch(files[f"batches/{sha}.msgpack.gz"]) != sha:
            raise _Wrong(f"Batch {sha[:16]} is not the bytes that its name says.")
    return PASS, f"{len(wanted)} batches are the bytes that their names say"


def _inclusion(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    notes = _notes(files)
    proofs = _json(files, "proofs.json")
    skeleton = {one["sha256"]: one for one in _json(files, "skeleton.json")}
    wanted = enclosed(files)
    if not notes:
        return NOT_PROVEN, "the log has no checkpoint"
    last = notes[-1][0]
    if int(proofs["size"]) != last.size:
        raise _Wrong("The proofs are of another size than the last checkpoint.")
    outside = []
    for sha in wanted:
        proof = proofs["inclusion"].get(sha)
        if sha not in skeleton:
            raise _Wrong(f"Batch {sha[:16]} is not in the skeleton.")
        if proof is None:
            outside.append(sha)
            continue
        one = skeleton[sha]
        seq = None if one["seq"] is None else int(one["seq"])
        leaf = leaf_hash(leaf_bytes(sha, int(one["received_us"]), one["cluster"], one["node"], one["agent"], seq))
        if one["leaf"] != proof["index"]:
            raise _Wrong(f"Batch {sha[:16]} has two places in the log.")
        path = [bytes.fromhex(part) for part in proof["path"]]
        try:
            verify_inclusion(leaf, int(proof["index"]), last.size, path, last.root)
        except ProofError as error:
            raise _Wrong(f"Batch {sha[:16]}: {error}") from error
    if outside:
        return NOT_PROVEN, f"{len(outside)} of {len(wanted)} batches came after the last checkpoint"
    return PASS, f"{len(wanted)} batches are leaves of the log of {last.size}"


def _sequence(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    seen: dict[tuple[str, str], str] = {}
    leaves: set[str] = set()
    by_agent: dict[str, list[int]] = {}
    for one in _json(files, "skeleton.json"):
        if one["leaf"] is not None:
            if one["leaf"] in leaves:
                raise _Wrong(f"Two batches have the place {one['leaf']} in the log.")
            leaves.add(one["leaf"])
        if one["agent"] is None or one["seq"] is None:
            continue
        key = (one["agent"], one["seq"])
        if seen.setdefault(key, one["sha256"]) != one["sha256"]:
            raise _Wrong(f"Two different batches of one agent have the number {one['seq']}.")
        by_agent.setdefault(one["agent"], []).append(int(one["seq"]))
    gaps = sum(max(seqs) - min(seqs) + 1 - len(set(seqs)) for seqs in by_agent.values())
    return PASS, f"{len(seen)} numbered batches in the month, {gaps} missing between their first and last numbers"


def _clock(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    """clock.csv is what the batches say; a sample later than its receipt is told."""
    said = list(csv.reader(io.StringIO(files["clock.csv"].decode())))[1:]
    found = [[cell.removeprefix("'") for cell in line] for line in clock_lines(files)]
    if [[cell.removeprefix("'") for cell in line] for line in said] != found:
        raise _Wrong("clock.csv is not what the batches say of their clocks.")
    loose = sum(line[6] != "synchronised" for line in found)
    ahead = sum(line[8].startswith("-") for line in found)
    worst = max((int(line[7]) for line in found if line[7]), default=0)
    return PASS, (
        f"{len(found)} batches: {loose} without a synchronised clock, {ahead} with a sample later than its receipt,"
        f" stated error at most {worst} ms"
    )


# Arithmetic


def _result(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    found = result_of(files)
    if _canonical(found) != _canonical(_json(files, "result.json")):
        where = _first_difference(found, _json(files, "result.json"))
        raise _Wrong(f"result.json is not what contract, rows, rules and verdicts come to: {where}")
    return PASS, "result.json is what contract, dated rows, rules and verdicts come to"


def _first_difference(one: Any, other: Any, path: str = "") -> str:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            if one.get(key) != other.get(key):
                return _first_difference(one.get(key), other.get(key), f"{path}.{key}")
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (a, b) in enumerate(zip(one, other, strict=True)):
            if a != b:
                return _first_difference(a, b, f"{path}[{number}]")
    return f"{path.lstrip('.')}: computed {str(one)[:80]}, stated {str(other)[:80]}"


def _amount(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    claim, result = _json(files, "claim.json"), _json(files, "result.json")["assessment"]["result"]
    if result["status"] != "ok" or result["claim"] is None:
        raise _Wrong("The result gives no claim.")
    if Decimal(claim["amount"]) > Decimal(result["claim"]) or claim["currency"] != result["currency"]:
        raise _Wrong(f"Claimed are {claim['amount']} {claim['currency']}, the result is {result['claim']}.")
    if Decimal(result["claim"]) != min(Decimal(one) for one in result["credits"].values()):
        raise _Wrong("The claim is not the least of the three readings.")
    return PASS, f"{claim['amount']} {claim['currency']} is not more than the least of the three readings"


def _tables(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    result = _json(files, "result.json")["assessment"]["result"]
    stated = [
        (unit["name"], one["start_utc"], one["end_utc"], one["counted_seconds"])
        for unit in result["units"]
        for one in unit["incidents"]
    ]
    shown = [
        (row["unit"].removeprefix("'"), row["start_utc"], row["end_utc"], row["counted_seconds"])
        for row in csv.DictReader(io.StringIO(files["incidents.csv"].decode()))
    ]
    if stated != shown:
        raise _Wrong("incidents.csv is not the list of result.json.")
    coverage = {"contract": result["coverage"], **{unit["name"]: unit["coverage"] for unit in result["units"]}}
    if _json(files, "coverage.json") != coverage:
        raise _Wrong("coverage.json is not what result.json says.")
    if _json(files, "overlays.json") != _json(files, "inputs.json")["overlays"]:
        raise _Wrong("overlays.json is not what the report rests on.")
    return PASS, f"incidents.csv has the {len(shown)} incidents of result.json; coverage and rows are the same"


def _windows(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    """Every counted incident lies in a window."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for one in _json(files, "windows.json"):
        spans.setdefault(one["node"], []).append((one["first_hour"] * 240, one["last_hour"] * 240))
    for unit in _json(files, "result.json")["assessment"]["result"]["units"]:
        for one in unit["incidents"]:
            a, b = ms_of(one["start_utc"]) // 15_000, ms_of(one["end_utc"]) // 15_000
            for name in {subject.partition("/")[0] for subject in one["subjects"] or [unit["name"]]}:
                if not any(low <= a and b <= high for low, high in spans.get(name, ())):
                    raise _Wrong(f"The incident of {name} at {one['start_utc']} has no enclosed batches.")
    return PASS, "every counted incident has its batches"


def _fold(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    slots = 0
    if other := other_state_format(files):
        return NOT_PROVEN, f"the pack's states are of format {other}: fold them with the verifier of its own release"
    for found in work.folded():
        if found.wrong:
            raise _Wrong(found.wrong)
        slots += found.slots
    if not slots:
        return NOT_PROVEN, "the pack encloses no batch to fold: its verdicts are the claimant's word"
    return PASS, f"the batches of the claimed time fold to the verdicts that the report used ({slots} slots)"


# What a pack alone can't answer


def _anchors(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    """The share of the claimed seconds between outside anchors, and whose."""
    whole, proved, parties = shares(files)
    title = _json(files, "manifest.json")["title"]
    if not whole.between and title != UNANCHORED:
        raise _Wrong("No claimed second lies between outside anchors, and the title does not say so.")
    if whole.between and title != ANCHORED:
        raise _Wrong("The title is not the one of a pack with outside anchors.")
    if not whole.between:
        return NOT_PROVEN, "0 % of the claimed seconds lie between outside anchors: an unanchored statement"
    hours = -(-whole.widest_ms // 3_600_000)
    words = "; ".join(f"{percent(one)} {who}" for who, one in parties)
    said = f"{percent(whole)} of the claimed seconds lie between outside anchors at most {hours} h apart: {words}"
    if proved.between == proved.claimed:
        return PASS, f"{said}. Compare the certificates or keys with those that you know"
    return NOT_PROVEN, f"{said}. Signatures prove {percent(proved)}; mails and tickets prove it to who received them"


def _terms(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    """Contract, rules and amendments were in the log, and since which anchor."""
    try:
        found = adopted(files, read_anchors(files))
    except ProofError as error:
        raise _Wrong(str(error)) from error
    beside = _json(files, "result.json").get("unamended")
    more = "" if beside is None else f". {_beside(files, beside)}"
    late = [one.name for one in found if one.is_late]
    if not late:
        return PASS, f"{len(found)} documents (contract, rules, amendments) were anchored before they counted{more}"
    return NOT_PROVEN, f"not anchored before they counted: {', '.join(late)}{more}"


def _beside(files: Files, beside: Any) -> str:
    """What the month comes to without amendments, in words."""
    own, other = _json(files, "result.json")["assessment"]["result"], beside["assessment"].get("result")
    if other is None or other["claim"] is None:
        return f"The rules are amended; without amendments the month gives no claim ({beside['assessment']['status']})"
    return f"The rules are amended; without amendments {other['claim']} {other['currency']} instead of {own['claim']}"


def _source(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    simulated = "; the nodes are SIMULATED" if _json(files, "result.json")["is_simulated"] else ""
    return NOT_PROVEN, f"the agents ran under the claimant's root{simulated}"


def _signed(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    """Which share of the claimed batches the keys that their agents enrolled signed."""
    try:
        found = check_signed(files, work.judged)
    except ProofError as error:
        raise _Wrong(str(error)) from error
    if found is None:
        return NOT_PROVEN, "the pack names no keys of agents"
    if not found.batches:
        return NOT_PROVEN, "the pack encloses no batch"
    said = sentence(found, percent(Share(found.batches, found.states[VALID], 0)))
    if found.states[BAD]:
        raise _Wrong(f"{found.states[BAD]} batches are {WORDS[BAD]}. {said}")
    return NOT_PROVEN, said


def _states(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    number = sum(name.startswith("states/") for name in files)
    return NOT_PROVEN, f"the {number} states from which the folding starts are the claimant's own"


CHECKS = (
    ("manifest", INTEGRITY, _manifest),
    ("signature", INTEGRITY, _signature),
    ("key", INTEGRITY, _known_key),
    ("checkpoints", INTEGRITY, _checkpoints),
    ("consistency", INTEGRITY, _consistency),
    ("inclusion", INTEGRITY, _inclusion),
    ("sequence", INTEGRITY, _sequence),
    ("result", ARITHMETIC, _result),
    ("amount", ARITHMETIC, _amount),
    ("tables", ARITHMETIC, _tables),
    ("windows", ARITHMETIC, _windows),
    ("fold", ARITHMETIC, _fold),
    ("batches", INTEGRITY, _batches),  # after the fold, which unpacks every batch
    ("clock", INTEGRITY, _clock),
    ("anchors", ANCHORS, _anchors),
    ("terms", ANCHORS, _terms),
    ("agent", SOURCE, _source),
    ("signed", SOURCE, _signed),
    ("states", SOURCE, _states),
)


def lines(findings: list[Finding]) -> Iterator[str]:
    """The findings and the four answers, as text."""
    for one in findings:
        yield f"{one.verdict:10s} {one.answer:10s} {one.check:11s} {one.detail}"
    yield ""
    for answer, verdict in answers(findings).items():
        yield f"{answer:10s} {verdict}"


__all__ = ["ANSWERS", "CHECKS", "FAIL", "NOT_PROVEN", "PASS", "Finding", "PackError", "answers", "check_pack", "lines"]
