"""The org's Merkle log: a leaf for every received batch, hourly checkpoints signed with the log's key.

The leaves are appended in the order of (received_at, sha256) up to a watermark; that order is what the log says, and a
batch that turns up before the last leaf's place is appended after it. A leaf is the canonical JSON of
`["goodput/leaf/1", sha256, received_at in microseconds, cluster, node, agent, seq]`. Checkpoints are C2SP notes
(origin, size, root) signed Ed25519; each carries the proof that it begins with the one before.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.conf import settings
from django.db import connection, transaction

from claims.domain.merkle import Checkpoint, Log, consistency_proof, leaf_hash, verify_consistency
from claims.models import Leaf, SignedCheckpoint
from claims.verify.notes import key_id, leaf_bytes
from orgs.models import Org

#: Batches younger than this may still be on their way into the table beside ones that are in it.
SETTLE = timedelta(minutes=2)
CHUNK = 20_000

_NEW = """
select i.sha256, i.received_at, i.cluster, i.node, i.agent_id, i.seq from fleet_inbox i
 where i.received_at <= %s and i.received_at >= %s
   and not exists (select 1 from claims_leaf l where l.batch_sha256 = i.sha256)
 order by i.received_at, i.sha256 limit %s
"""


@dataclass(frozen=True)
class LogKey:
    """The log's signing key: its name in notes, the private key, the public bytes."""

    name: str
    private: Ed25519PrivateKey

    @property
    def public(self) -> bytes:
        """32 bytes."""
        return self.private.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)

    def sign(self, text: str) -> str:
        """The note: text, an empty line, the signature line of C2SP signed-note."""
        blob = key_id(self.name, self.public) + self.private.sign(text.encode())
        return f"{text}\n— {self.name} {base64.b64encode(blob).decode()}\n"

    def verifier(self) -> str:
        """The verifier key of C2SP: name, id and public key."""
        blob = base64.b64encode(b"\x01" + self.public).decode()
        return f"{self.name}+{key_id(self.name, self.public).hex()}+{blob}"


def load_key() -> LogKey:
    """The log key of this installation, made when there is none; a file that only its owner reads."""
    folder = settings.GOODPUT_VAR / "secrets"
    path = folder / "log-ed25519.key"
    name = f"goodput-log/{(settings.GOODPUT_PUBLIC_URL or 'self-hosted').rpartition('/')[2]}"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = base64.b64encode(os.urandom(32)) + b"\n"
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        pass
    else:
        with os.fdopen(handle, "wb") as file:
            file.write(fresh)
            file.flush()
            os.fsync(file.fileno())
    return LogKey(name, Ed25519PrivateKey.from_private_bytes(base64.b64decode(path.read_bytes())))


def origin_of(org: Org) -> str:
    """The log's name: the installation's and the org's, which stay when the slug changes."""
    return f"{load_key().name}/org/{org.pk}"


def append_new(org: Org, until: datetime) -> int:
    """Append the leaves of batches received up to `until`; how many. One writer at a time."""
    added = 0
    with transaction.atomic():
        _lock(org)
        size, since = _end()
        while True:
            with connection.cursor() as cursor:
                cursor.execute(_NEW, [until, since - timedelta(days=2), CHUNK])
                rows = cursor.fetchall()
            leaves = [_leaf(size + at, *row) for at, row in enumerate(rows)]
            Leaf.objects.bulk_create(leaves, batch_size=2000)
            size, added = size + len(leaves), added + len(leaves)
            if len(rows) < CHUNK:
                return added


def _lock(org: Org) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select pg_advisory_xact_lock(hashtext('goodput-ledger'), %s)", [org.pk % 2**31])


def _end() -> tuple[int, datetime]:
    last = Leaf.objects.order_by("-position").first()
    if last is None:
        return 0, datetime(1970, 1, 5, tzinfo=UTC)
    return last.position + 1, last.received_at


def _leaf(
    position: int, sha256: bytes, received_at: datetime, cluster: str, node: str, agent: str | None, seq: int | None
) -> Leaf:
    digest = bytes(sha256)
    hashed = leaf_hash(leaf_bytes(digest.hex(), micros(received_at), cluster, node, agent, seq))
    return Leaf(position=position, batch_sha256=digest, received_at=received_at, node=node[:300], seq=seq, hash=hashed)


def micros(at: datetime) -> int:
    """Microseconds since 1970 UTC, exactly."""
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def make_checkpoint(org: Org, now: datetime) -> SignedCheckpoint | None:
    """Append what is new, and sign the log as it stands. Without a new leaf the last checkpoint is given back.

    Raises ProofError where the log does not begin with the last checkpoint: then nothing is signed.
    """
    append_new(org, now - SETTLE)
    with transaction.atomic():
        _lock(org)
        last = SignedCheckpoint.objects.order_by("-size").first()
        old = 0 if last is None else last.size
        log = Log(old, [bytes.fromhex(one) for one in last.edge] if last else ())
        size, watermark = _end()
        if size == 0 or size == old:
            return last
        for hashed in _hashes(old, size):
            log.append(hashed)
        proof: list[bytes] = []
        if last is not None:
            # from the stored leaves, so that a leaf changed behind our back is noticed here
            hashes = list(_hashes(0, size))
            proof = consistency_proof(hashes, old)
            verify_consistency(old, bytes(last.root), size, log.root(), proof)
        text = Checkpoint(origin_of(org), size, log.root()).text()
        return SignedCheckpoint.objects.create(
            size=size,
            root=log.root(),
            note=load_key().sign(text),
            proof=[one.hex() for one in proof],
            edge=[one.hex() for one in log.edge],
            watermark=watermark,
            made_at=now,
        )


def _hashes(first: int, end: int) -> Iterator[bytes]:
    found = Leaf.objects.filter(position__gte=first, position__lt=end).order_by("position")
    for hashed in found.values_list("hash", flat=True).iterator(chunk_size=CHUNK):
        yield bytes(hashed)


def all_hashes(size: int) -> list[bytes]:
    """The leaf hashes of the log's first `size` leaves."""
    return list(_hashes(0, size))


class Proofs:
    """Inclusion proofs for many leaves: all complete subtrees are hashed once."""

    def __init__(self, hashes: Sequence[bytes]) -> None:
        self._levels = [list(hashes)]
        while len(self._levels[-1]) > 1:
            below = self._levels[-1]
            self._levels.append(
                [_node(below[at], below[at + 1]) for at in range(0, len(below) - 1, 2)] + below[len(below) & ~1 :]
            )

    @property
    def root(self) -> bytes:
        """The root of all leaves."""
        return self._levels[-1][0]

    def of(self, index: int) -> list[bytes]:
        """The audit path of a leaf, from the leaf upwards; a node without a sibling moves up unchanged."""
        path = []
        for level in self._levels[:-1]:
            sibling = index ^ 1
            if sibling < len(level):
                path.append(level[sibling])
            index >>= 1
        return path


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def leaves_of(digests: Iterable[bytes]) -> dict[bytes, Leaf]:
    """The leaf of each batch that has one."""
    return {bytes(one.batch_sha256): one for one in Leaf.objects.filter(batch_sha256__in=list(digests))}
