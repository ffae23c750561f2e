"""A Merkle log as in RFC 6962: root, inclusion and consistency proofs, checkpoints.

Leaf hash = SHA-256(0x00 || leaf), node hash = SHA-256(0x01 || left || right), the root of nothing = SHA-256(''). A
tree of n leaves splits at the largest power of two below n. `Log` keeps only the right edge, so that appending and
the root cost O(log n); proofs are made from all leaf hashes. Checkpoints are C2SP notes without their signatures:
origin, size, root in base64, each on a line.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from claims.errors import ProofError

HASH_BYTES = 32
EMPTY_ROOT = hashlib.sha256(b"").digest()


def leaf_hash(leaf: bytes) -> bytes:
    """RFC 6962 2.1."""
    return hashlib.sha256(b"\x00" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """RFC 6962 2.1."""
    return hashlib.sha256(b"\x01" + left + right).digest()


class Log:
    """An append-only log by its right edge: the roots of its complete subtrees, the largest first."""

    __slots__ = ("edge", "size")

    def __init__(self, size: int = 0, edge: Sequence[bytes] = ()) -> None:
        if len(edge) != size.bit_count():
            raise ProofError("The edge of a log has one hash per bit of its size.", "edge")
        self.size = size
        self.edge = list(edge)

    def append(self, hashed: bytes) -> int:
        """Add a leaf hash; its index."""
        index = self.size
        self.size += 1
        self.edge.append(hashed)
        below = index
        while below & 1:
            right = self.edge.pop()
            self.edge.append(node_hash(self.edge.pop(), right))
            below >>= 1
        return index

    def root(self) -> bytes:
        """The root of all leaves so far."""
        if not self.edge:
            return EMPTY_ROOT
        found = self.edge[-1]
        for left in reversed(self.edge[:-1]):
            found = node_hash(left, found)
        return found


def root_of(hashes: Sequence[bytes]) -> bytes:
    """The root of these leaf hashes."""
    log = Log()
    for hashed in hashes:
        log.append(hashed)
    return log.root()


def _split(size: int) -> int:
    """The largest power of two below `size` (size > 1)."""
    return 1 << (size - 1).bit_length() - 1


def inclusion_proof(hashes: Sequence[bytes], index: int) -> list[bytes]:
    """PATH(index, hashes) of RFC 6962 2.1.1, from the leaf upwards. Raises ProofError."""
    if not 0 <= index < len(hashes):
        raise ProofError(f"There is no leaf {index} in a log of {len(hashes)}.", "index")
    path: list[bytes] = []
    low, high = 0, len(hashes)
    while high - low > 1:
        middle = low + _split(high - low)
        if index < middle:
            path.append(root_of(hashes[middle:high]))
            high = middle
        else:
            path.append(root_of(hashes[low:middle]))
            low = middle
    return path[::-1]


def verify_inclusion(hashed: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> None:
    """Raise ProofError unless the leaf hash is leaf `index` of the log of `size` leaves with this root."""
    if not 0 <= index < size:
        raise ProofError(f"There is no leaf {index} in a log of {size}.", "index")
    below, last, found, used = index, size - 1, hashed, 0
    while last:
        if below & 1 or below == last:
            if below & 1:
                found = node_hash(_take(proof, used), found)
                used += 1
            # A node without a sibling moves up unchanged; so does the right edge until it is a right child.
        else:
            found = node_hash(found, _take(proof, used))
            used += 1
        below >>= 1
        last >>= 1
    if used != len(proof):
        raise ProofError("The inclusion proof has hashes too many.", "proof")
    if found != root:
        raise ProofError(f"Leaf {index} is not in the log with this root.", "root")


class Inclusions:
    """Inclusion proofs against one root, a node that proofs share hashed once; each path is looked at whole."""

    def __init__(self, size: int, root: bytes) -> None:
        self._size, self._root = size, root
        #: Nodes that lie in the log with this root, by level (leaves: 0) and index.
        self._nodes: dict[tuple[int, int], bytes] = {}

    def verify(self, hashed: bytes, index: int, proof: Sequence[bytes]) -> None:
        """As verify_inclusion."""
        if not 0 <= index < self._size:
            raise ProofError(f"There is no leaf {index} in a log of {self._size}.", "index")
        at, last, found, used = index, self._size - 1, hashed, 0
        seen: dict[tuple[int, int], bytes] = {}
        is_known = False
        level = 0
        while last:
            if not is_known:
                seen[level, at] = found
                known = self._nodes.get((level, at))
                is_known = known is not None
                if is_known and known != found:
                    raise ProofError(f"Leaf {index} is not in the log with this root.", "root")
            if at & 1 or at != last:
                sibling = _take(proof, used)
                used += 1
                if is_known:
                    if self._nodes[level, at ^ 1] != sibling:
                        raise ProofError(f"Leaf {index} is not in the log with this root.", "root")
                else:
                    seen[level, at ^ 1] = sibling
                    found = node_hash(sibling, found) if at & 1 else node_hash(found, sibling)
            at >>= 1
            last >>= 1
            level += 1
        if used != len(proof):
            raise ProofError("The inclusion proof has hashes too many.", "proof")
        if not is_known and found != self._root:
            raise ProofError(f"Leaf {index} is not in the log with this root.", "root")
        self._nodes.update(seen)


def missing_nodes(size: int, indexes: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(level, index) of the nodes that the root of `size` leaves needs beside these leaves, level by level upwards."""
    known = set(indexes)
    width, level = size, 0
    while width > 1:
        for index in sorted(known):
            if index ^ 1 < width and index ^ 1 not in known:
                yield level, index ^ 1
        known = {index >> 1 for index in known}
        width, level = (width + 1) // 2, level + 1


def root_with(size: int, leaves: Mapping[int, bytes], nodes: Iterable[bytes]) -> bytes:
    """The root of `size` leaves from some leaf hashes and the hashes of `missing_nodes`. Raises ProofError."""
    if not leaves or not all(0 <= index < size for index in leaves):
        raise ProofError(f"These are no leaves of a log of {size}.", "index")
    given = iter(nodes)
    known = dict(leaves)
    width = size
    while width > 1:
        above: dict[int, bytes] = {}
        for index in sorted(known):
            if index >> 1 in above:
                continue
            other = index ^ 1
            if other >= width:
                above[index >> 1] = known[index]
                continue
            sibling = known.get(other)
            if sibling is None:
                sibling = next(given, b"")
                if len(sibling) != HASH_BYTES:
                    raise ProofError("The proof ends too early.", "proof")
            pair = (sibling, known[index]) if index & 1 else (known[index], sibling)
            above[index >> 1] = node_hash(*pair)
        known = above
        width = (width + 1) // 2
    if next(given, None) is not None:
        raise ProofError("The proof has hashes too many.", "proof")
    return known[0]


def consistency_proof(hashes: Sequence[bytes], old: int) -> list[bytes]:
    """PROOF(old, hashes) of RFC 6962 2.1.2 (0 < old ≤ size; empty where they are equal). Raises ProofError."""
    if not 0 < old <= len(hashes):
        raise ProofError(f"A log of {len(hashes)} has no earlier size {old}.", "old")
    return _subproof(hashes, old, 0, len(hashes), True)


def consistency_from_edge(old: int, edge: Sequence[bytes], fresh: Sequence[bytes]) -> list[bytes]:
    """The same proof for the log of `old` leaves with this right edge, to which the leaves `fresh` were added.

    It needs no older leaf: every node of the proof is one of the edge or lies among the new leaves. Raises ProofError.
    """
    if old <= 0 or len(edge) != old.bit_count():
        raise ProofError("The edge of a log has one hash per bit of its size.", "edge")
    known: dict[tuple[int, int], bytes] = {}
    at = 0
    for hashed, bit in zip(edge, (bit for bit in range(old.bit_length() - 1, -1, -1) if old >> bit & 1), strict=True):
        known[at, at + (1 << bit)] = hashed
        at += 1 << bit

    def node(low: int, high: int) -> bytes:
        return known[low, high] if high <= old else root_of(fresh[low - old : high - old])

    def subproof(left: int, low: int, high: int, whole: bool) -> list[bytes]:
        size = high - low
        if left == size:
            return [] if whole else [node(low, high)]
        middle = _split(size)
        if left <= middle:
            return [*subproof(left, low, low + middle, whole), node(low + middle, high)]
        return [*subproof(left - middle, low + middle, high, False), node(low, low + middle)]

    return subproof(old, 0, old + len(fresh), True)


def _subproof(hashes: Sequence[bytes], old: int, low: int, high: int, whole: bool) -> list[bytes]:
    size = high - low
    if old == size:
        return [] if whole else [root_of(hashes[low:high])]
    middle = _split(size)
    if old <= middle:
        return [*_subproof(hashes, old, low, low + middle, whole), root_of(hashes[low + middle : high])]
    return [*_subproof(hashes, old - middle, low + middle, high, False), root_of(hashes[low : low + middle])]


def verify_consistency(old: int, old_root: bytes, new: int, new_root: bytes, proof: Sequence[bytes]) -> None:
    """Raise ProofError unless the log of `new` leaves begins with the one of `old`."""
    if not 0 <= old <= new:
        raise ProofError(f"A log of {new} has no earlier size {old}.", "old")
    if old in (0, new):
        if proof:
            raise ProofError("This consistency proof must be empty.", "proof")
        if old == new and old_root != new_root:
            raise ProofError("Two roots for one size: the log was forked.", "root")
        if old == 0 and old_root != EMPTY_ROOT:
            raise ProofError("The root of an empty log is another one.", "root")
        return
    below, last, used = old - 1, new - 1, 0
    while below & 1:
        below >>= 1
        last >>= 1
    if below:
        first = second = _take(proof, 0)
        used = 1
    else:
        first = second = old_root
    while last:
        if below & 1:
            first = node_hash(_take(proof, used), first)
            second = node_hash(_take(proof, used), second)
            used += 1
        elif below < last:
            second = node_hash(second, _take(proof, used))
            used += 1
        below >>= 1
        last >>= 1
    if used != len(proof):
        raise ProofError("The consistency proof has hashes too many.", "proof")
    if first != old_root or second != new_root:
        raise ProofError("The later log does not begin with the earlier one.", "root")


def _take(proof: Sequence[bytes], at: int) -> bytes:
    if at >= len(proof):
        raise ProofError("The proof ends too early.", "proof")
    if len(proof[at]) != HASH_BYTES:
        raise ProofError("A hash of the proof has not 32 bytes.", "proof")
    return proof[at]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a log signs: its name, its size, its root, and lines of its own (C2SP: extension lines)."""

    origin: str
    size: int
    root: bytes
    extensions: tuple[str, ...] = ()

    def text(self) -> str:
        """The body of the note, with its last newline; signatures follow after an empty line."""
        own = "".join(f"{line}\n" for line in self.extensions)
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n{own}"


def read_checkpoint(text: str) -> Checkpoint:
    """The checkpoint of a note, or of its body alone. Raises ProofError."""
    lines = text.split("\n")
    if len(lines) < 4 or not lines[0]:
        raise ProofError("A checkpoint has an origin, a size and a root, each on a line.", "checkpoint")
    if not lines[1].isascii() or not lines[1].isdigit() or (lines[1] != "0" and lines[1][0] == "0"):
        raise ProofError(f"The size of a checkpoint is a number, not {lines[1][:40]!r}.", "size")
    try:
        root = base64.b64decode(lines[2], validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProofError("The root of a checkpoint is no base64.", "root") from error
    if len(root) != HASH_BYTES:
        raise ProofError("The root of a checkpoint has not 32 bytes.", "root")
    own = lines[3 : lines.index("", 3)] if "" in lines[3:] else lines[3:]
    return Checkpoint(lines[0], int(lines[1]), root, tuple(own))
