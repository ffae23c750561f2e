"""Whose signatures the enclosed batches bear: each one checked with the keys that its installation enrolled.

`agents.json` names the keys (and the leaf of each in the log) and the signature that came with each enclosed batch. A
signature says which installation made a batch, not that what it says is true: the agent ran under the claimant's root.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent.wire import fingerprint, signed_message
from claims.domain.merkle import leaf_hash as hash_of
from claims.domain.merkle import verify_inclusion
from claims.errors import ProofError
from claims.verify.documents import checkpoints, enclosed, last_checkpoint, read
from claims.verify.ed25519 import verify
from claims.verify.notes import REVOCATIONS, document_bytes, revocations_line

Files = Mapping[str, bytes]
FILE = "agents.json"
KEY_NAME, REVOKED_AT = "agent key ", " revoked at "  # in the names of leaves
VALID, EARLY, REVOKED, UNKNOWN, UNSIGNED, BAD = "valid", "early", "revoked", "unknown", "unsigned", "bad"
WORDS = {
    UNSIGNED: "unsigned",
    UNKNOWN: "signed where no key was enrolled",
    EARLY: "signed by a key that was enrolled only after they came",
    REVOKED: "signed by a key that was revoked before they came",
    BAD: "signed by none of the keys that their installation enrolled",
}


@dataclass(frozen=True)
class AgentKey:
    """An enrolled key of `agent`; instants in microseconds. `is_logged`: its enrolment is a leaf of the log."""

    agent: str
    node: str
    public: bytes
    enrolled_us: int
    revoked_us: int | None
    is_logged: bool


@dataclass(frozen=True)
class Signed:
    """How many of the enclosed batches are how signed, and how many each key signed."""

    batches: int
    states: Counter[str]
    by_key: Counter[AgentKey]


def key_name(public: bytes, agent: str) -> str:
    """What the log calls an enrolled key."""
    return f"{KEY_NAME}{fingerprint(public)} of {agent}"


def revocation_name(public: bytes, agent: str, revoked_us: int) -> str:
    """What the log calls the end of an enrolled key; one that was accepted again may end twice."""
    return f"{key_name(public, agent)}{REVOKED_AT}{revoked_us}"


def name_digest(name: str) -> str:
    """What the list of revocations calls a key, by its name in the log: it tells nobody else's."""
    return hashlib.sha256(name.encode()).hexdigest()


def key_digest(public: bytes) -> str:
    """What the log's leaf of an enrolled key is about."""
    return hashlib.sha256(public).hexdigest()


def check_signed(files: Files, judged: Callable[[], Sequence[tuple[str, AgentKey | None]]]) -> Signed | None:
    """Count what the signatures say, which `judged` gives as judge_some does for all enclosed batches; None for a pack
    that names no keys. Raises ProofError for a key that the log does not hold as it is told, and for signatures of
    batches that are not enclosed.
    """
    if FILE not in files:
        return None
    _keys(files)
    wanted = enclosed(files)
    if set(read(files, FILE)["signatures"]) - set(wanted):
        raise ProofError("Signatures are named of batches that are not enclosed.", "signature")
    states: Counter[str] = Counter()
    by_key: Counter[AgentKey] = Counter()
    for state, by in judged():
        states[state] += 1
        if state == VALID and by is not None:
            by_key[by] += 1
    if states.total() != len(wanted):
        raise ProofError("Not every signature was looked at.", "signature")
    return Signed(len(wanted), states, by_key)


def judge_some(files: Files, first: int, end: int) -> list[tuple[str, AgentKey | None]]:
    """What the signatures of the enclosed batches `[first, end)` say, in the order of the batches' hashes."""
    if FILE not in files:
        return []
    keys, signatures = _keys(files), read(files, FILE)["signatures"]
    lines = {one["sha256"]: one for one in read(files, "skeleton.json")}
    return [
        judge(sha, signatures.get(sha), int(lines[sha]["received_us"]), keys.get(lines[sha]["agent"] or "", ()))
        for sha in enclosed(files)[first:end]
    ]


def _keys(files: Files) -> dict[str, list[AgentKey]]:
    """The keys of each installation. Raises ProofError."""
    keys: dict[str, list[AgentKey]] = {}
    for plain in read(files, FILE)["keys"]:
        key = _key(plain, files)
        keys.setdefault(key.agent, []).append(key)
    return keys


def judge(
    sha: str, signature: str | None, received_us: int, keys: list[AgentKey] | tuple[()]
) -> tuple[str, AgentKey | None]:
    """(what the signature says, the key that made it). `bad`: a signature, and no enrolled key made it."""
    if signature is None:
        return UNSIGNED, None
    try:
        raw = base64.b64decode(signature, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProofError(f"The signature of batch {sha[:16]} is no base64.", "signature") from error
    found = BAD if keys else UNKNOWN
    message = signed_message(bytes.fromhex(sha))
    for key in keys:
        if not verify(key.public, message, raw):
            continue
        if received_us < key.enrolled_us:
            found = EARLY
        elif key.revoked_us is not None and received_us >= key.revoked_us:
            found = REVOKED
        else:
            return VALID, key
    return found, None


def _key(plain: Mapping[str, Any], files: Files) -> AgentKey:
    public, agent = bytes.fromhex(plain["public_key"]), plain["agent"]
    enrolled = int(plain["enrolled_us"])
    revoked = None if plain["revoked_us"] is None else int(plain["revoked_us"])
    is_logged = plain["index"] is not None
    if is_logged:
        _check_leaf(files, public, enrolled, key_name(public, agent), plain["index"], plain["path"])
    ended = plain.get("revocation")  # an older pack names none
    listed = _first_ends(files).get(name_digest(key_name(public, agent)))
    if listed is not None and listed != revoked:
        raise ProofError(f"The log holds another end of the key {fingerprint(public)} than the pack says.", "key")
    if ended is not None:
        if revoked is None:
            raise ProofError(f"The log holds an end of the key {fingerprint(public)}, and the pack says none.", "key")
        _check_leaf(files, public, revoked, revocation_name(public, agent, revoked), ended["index"], ended["path"])
    return AgentKey(agent, plain["node"], public, enrolled, revoked, is_logged)


def _first_ends(files: Files) -> dict[str, int]:
    """When each key that the log says was revoked was so first, in microseconds."""
    found: dict[str, int] = {}
    for name, at in read(files, FILE).get("revocations", ()):
        found.setdefault(name, int(at))
    return found


def check_revocations(files: Files) -> int | None:
    """How many ends of keys the log holds, all of which the pack lists; None where its checkpoints commit to none.

    Raises ProofError where a checkpoint commits to other ones, or a later one to fewer.
    """
    ends = read(files, FILE).get("revocations", []) if FILE in files else []
    before = None
    for note in checkpoints(files).values():
        lines = [line for line in note.extensions if line.split(" ", 1)[0] == REVOCATIONS]
        if not lines:
            if before is not None:
                raise ProofError(
                    f"The checkpoint of {note.size} commits to no revocations, and earlier ones do.", "key"
                )
            continue
        (line,) = lines
        number = int(line.split(" ")[1])
        if number < (before or 0) or line != revocations_line(ends[:number]):
            raise ProofError(f"The revocations are not those that the checkpoint of {note.size} commits to.", "key")
        before = number
    if before is not None and before != len(ends):
        raise ProofError("Revocations are listed that no checkpoint commits to.", "key")
    return before


def _check_leaf(files: Files, public: bytes, at_us: int, name: str, index: str, path: Sequence[str]) -> None:
    """Raises ProofError where the last checkpoint's log has no such leaf of a key."""
    last = last_checkpoint(files)
    if last is None:
        raise ProofError("Keys are said to be in the log, and it has no checkpoint.", "key")
    leaf = hash_of(document_bytes(key_digest(public), at_us, name))
    try:
        verify_inclusion(leaf, int(index), last.size, [bytes.fromhex(part) for part in path], last.root)
    except ProofError as error:
        raise ProofError(f"The key {fingerprint(public)} is not in the log as it is told: {error}", "key") from error


def sentence(found: Signed, percent: str) -> str:
    """The share of the enclosed batches that enrolled keys signed, which keys, and what the others are."""
    said = f"{percent} of the claimed batches ({found.states[VALID]} of {found.batches}) are signed by an enrolled key"
    shown = [
        f"{fingerprint(key.public)} of {key.node}" + ("" if key.is_logged else ", not in the log")
        for key, _ in sorted(found.by_key.items(), key=lambda one: (-one[1], one[0].node, one[0].public))
    ]
    if shown:
        said += f": {'; '.join(shown[:3])}" + (f"; and {len(shown) - 3} more" if len(shown) > 3 else "")
    others = [f"{found.states[state]} {words}" for state, words in WORDS.items() if found.states[state]]
    return said + ("" if not others else f". {'; '.join(others)}")


__all__ = [
    "FILE",
    "AgentKey",
    "Signed",
    "check_revocations",
    "check_signed",
    "judge",
    "judge_some",
    "key_digest",
    "key_name",
    "name_digest",
    "revocation_name",
    "sentence",
]
