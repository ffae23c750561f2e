"""Integrity: nothing in the pack was changed, and its batches are what the log committed to."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from functools import lru_cache
from itertools import pairwise
from typing import Any

from claims.domain.merkle import Checkpoint, Inclusions, leaf_hash, root_with, verify_consistency
from claims.errors import ProofError
from claims.verify.agents import check_revocations
from claims.verify.batches import facts_of_batch, hash_of_batch
from claims.verify.clocks import HEAD, clock_lines
from claims.verify.documents import MOST_CHECKPOINTS, checkpoints, enclosed, last_checkpoint, read
from claims.verify.ed25519 import verify
from claims.verify.finding import NOT_PROVEN, PASS, Files, Wrong
from claims.verify.notes import leaf_bytes, open_note, public_key
from claims.verify.pack_file import MANIFEST_TAG
from claims.verify.tables import is_sheet
from claims.verify.work import Work

MANIFESTED = ("manifest.json", "manifest.sig")


def manifest_check(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    listed = read(files, "manifest.json")["files"]
    for name in sorted({*files, *listed} - set(MANIFESTED)):
        if name not in listed:
            raise Wrong(f"{name} is in the pack and not in the manifest.")
        if name not in files:
            raise Wrong(f"{name} is in the manifest and not in the pack.")
        if hashlib.sha256(files[name]).hexdigest() != listed[name]:
            raise Wrong(f"{name} is not what the manifest says.")
    return PASS, f"{len(listed)} files have the hashes of the manifest"


def _log_key(files: Files) -> tuple[str, bytes]:
    return public_key(read(files, "keys.json")["log"])


def signature_check(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    _, public = _log_key(files)
    try:
        signature = base64.b64decode(files["manifest.sig"].strip(), validate=True)
    except (binascii.Error, ValueError) as error:
        raise Wrong("The signature is no base64.") from error
    if not verify(public, MANIFEST_TAG + files["manifest.json"], signature):
        raise Wrong("The manifest does not bear the signature of the log's key.")
    return PASS, "the manifest bears the signature of the log's key"


def known_key_check(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    own = read(files, "keys.json")["log"]
    if not known_key:
        return PASS, f"compare it with the key that you know: {own}"
    if own.strip() != known_key.strip():
        raise Wrong("The pack is signed with another key than the one you named.")
    return PASS, "it is the key that you named"


def _signed(files: Files) -> dict[str, Checkpoint]:
    """The checkpoints by the names of their notes, the smallest first. Raises Wrong where the log signed one not."""
    name, public = _log_key(files)
    found = checkpoints(files)
    for file in found:
        if not _bears(files[file], name, public):
            raise Wrong(f"{file} does not bear the log's signature.")
    return found


def _last_signed(files: Files) -> Checkpoint | None:
    _signed(files)
    return last_checkpoint(files)


@lru_cache(maxsize=MOST_CHECKPOINTS)
def _bears(note: bytes, name: str, public: bytes) -> bool:
    """Whether a note bears this key's signature: four checks ask. Raises ProofError where none is said to be."""
    text, signature = open_note(note.decode(), name, public)
    return verify(public, text.encode(), signature)


def checkpoints_check(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    notes = _signed(files)
    if not notes:
        return NOT_PROVEN, "the log has no checkpoint"
    origins = {one.origin for one in notes.values()}
    if len(origins) != 1:
        raise Wrong("The checkpoints are of different logs.")
    return PASS, f"{len(notes)} checkpoints of {origins.pop()} bear its signature"


def consistency_check(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    for (_, old), (file, new) in pairwise(_signed(files).items()):
        if old.size >= new.size:
            raise Wrong("The checkpoints do not grow.")
        proof = json.loads(files[file.replace(".note", ".json")])["proof"]
        verify_consistency(old.size, old.root, new.size, new.root, [bytes.fromhex(one) for one in proof])
    return PASS, "each checkpoint continues the one before"


def revocations_check(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    """No end of an agent's key was left out of the pack."""
    try:
        found = check_revocations(files)
    except ProofError as error:
        raise Wrong(str(error)) from error
    if found is None:
        return NOT_PROVEN, "the checkpoints commit to no revocations: whether one was left out is not proved"
    return PASS, f"the {found} revocations of agents' keys are all that the last checkpoint commits to"


def batches_check(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    wanted = set(enclosed(files))
    there = {name[len("batches/") :].partition(".")[0] for name in files if name.startswith("batches/")}
    if wanted != there:
        raise Wrong(f"{len(wanted ^ there)} batches are named and not enclosed, or enclosed and not named.")
    for sha in sorted(wanted):
        if hash_of_batch(files[f"batches/{sha}.msgpack.gz"]) != sha:
            raise Wrong(f"Batch {sha[:16]} is not the bytes that its name says.")
    return PASS, f"{len(wanted)} batches are the bytes that their names say"


def inclusion_check(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    last = _last_signed(files)
    proofs = read(files, "proofs.json")
    skeleton = {one["sha256"]: one for one in read(files, "skeleton.json")}
    wanted = enclosed(files)
    if last is None:
        return NOT_PROVEN, "the log has no checkpoint"
    if int(proofs["size"]) != last.size:
        raise Wrong("The proofs are of another size than the last checkpoint.")
    outside = []
    inclusions = Inclusions(last.size, last.root)
    for sha in wanted:
        proof = proofs["inclusion"].get(sha)
        if sha not in skeleton:
            raise Wrong(f"Batch {sha[:16]} is not in the skeleton.")
        if proof is None:
            outside.append(sha)
            continue
        one = skeleton[sha]
        leaf = _leaf(one)
        if one["leaf"] != proof["index"]:
            raise Wrong(f"Batch {sha[:16]} has two places in the log.")
        path = [bytes.fromhex(part) for part in proof["path"]]
        try:
            inclusions.verify(leaf, int(proof["index"]), path)
        except ProofError as error:
            raise Wrong(f"Batch {sha[:16]}: {error}") from error
    if outside:
        return NOT_PROVEN, f"{len(outside)} of {len(wanted)} batches came after the last checkpoint"
    return PASS, f"{len(wanted)} batches are leaves of the log of {last.size}"


def _leaf(one: dict[str, Any]) -> bytes:
    """The leaf hash of a line of the skeleton."""
    seq = None if one["seq"] is None else int(one["seq"])
    return leaf_hash(leaf_bytes(one["sha256"], int(one["received_us"]), one["cluster"], one["node"], one["agent"], seq))


def skeleton_check(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    """Every line of the month's list is the leaf that it says, by one proof for all of them."""
    last = _last_signed(files)
    if last is None:
        return NOT_PROVEN, "the log has no checkpoint"
    nodes = read(files, "proofs.json").get("skeleton")
    if nodes is None:
        return NOT_PROVEN, "the pack is of an older release: of batches that are not enclosed nothing is proved"
    lines = read(files, "skeleton.json")
    leaves = {int(one["leaf"]): _leaf(one) for one in lines if one["leaf"] is not None}
    if leaves and root_with(last.size, leaves, (bytes.fromhex(one) for one in nodes)) != last.root:
        raise Wrong("The list of the month's batches is not what the log holds.")
    if len(leaves) < len(lines):
        return NOT_PROVEN, f"{len(lines) - len(leaves)} of {len(lines)} batches came after the last checkpoint"
    return PASS, f"each of the {len(lines)} listed batches of the month is the leaf that the list says"


def nodes_check(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    """The enclosed batches are of the node whose hours they stand for."""
    months = {one["id"]: one["node"] for one in read(files, "inputs.json")["node_months"]}
    said = {one["sha256"]: one["node"] for one in read(files, "skeleton.json")}
    others = set()
    for window in read(files, "windows.json"):
        if months.get(window["node_id"]) != window["node"]:
            raise Wrong(f"A window of {window['node']} is told of another node's verdicts.")
        for sha in window["batches"]:
            own = facts_of_batch(files[f"batches/{sha}.msgpack.gz"]).node
            if own != said[sha]:
                raise Wrong(f"Batch {sha[:16]} says that it is of {own}, and the list says {said[sha]}.")
            if own != window["node"]:
                others.add(f"{own} for {window['node']}")
    if others:
        return NOT_PROVEN, f"batches of one name stand for another, by the claimant's word: {'; '.join(sorted(others))}"
    return PASS, "the enclosed batches name the node whose hours they stand for"


def sequence_check(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    seen: dict[tuple[str, str], str] = {}
    leaves: set[str] = set()
    by_agent: dict[str, list[int]] = {}
    hashes: set[str] = set()
    for one in read(files, "skeleton.json"):
        if one["sha256"] in hashes:
            raise Wrong(f"Batch {one['sha256'][:16]} is listed twice.")
        hashes.add(one["sha256"])
        if one["leaf"] is not None:
            if one["leaf"] in leaves:
                raise Wrong(f"Two batches have the place {one['leaf']} in the log.")
            leaves.add(one["leaf"])
        if one["agent"] is None or one["seq"] is None:
            continue
        key = (one["agent"], one["seq"])
        if seen.setdefault(key, one["sha256"]) != one["sha256"]:
            raise Wrong(f"Two different batches of one agent have the number {one['seq']}.")
        by_agent.setdefault(one["agent"], []).append(int(one["seq"]))
    gaps = sum(max(seqs) - min(seqs) + 1 - len(set(seqs)) for seqs in by_agent.values())
    return PASS, f"{len(seen)} numbered batches in the month, {gaps} missing between their first and last numbers"


def clock_check(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    """clock.csv is what the batches say; a sample later than its receipt is told."""
    found = list(clock_lines(files))
    if not is_sheet(files["clock.csv"], HEAD, found):
        raise Wrong("clock.csv is not what the batches say of their clocks.")
    loose = sum(line[6] != "synchronised" for line in found)
    ahead = sum(line[8].startswith("-") for line in found)
    worst = max((int(line[7]) for line in found if line[7]), default=0)
    return PASS, (
        f"{len(found)} batches: {loose} without a synchronised clock, {ahead} with a sample later than its receipt,"
        f" stated error at most {worst} ms"
    )
