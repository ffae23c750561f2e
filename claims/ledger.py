"""The org's Merkle log: a leaf for every received batch, hourly checkpoints signed with the log's key.

The leaves are appended in the order of (received_at, sha256) up to a watermark; that order is what the log says, and a
batch that turns up before the last leaf's place is appended after it. A leaf is the canonical JSON of
`["goodput/leaf/1", sha256, received_at in microseconds, cluster, node, agent, seq]`; uploads that were refused after a
valid key, and documents that the org adopted (contract versions, rule sets), have leaves of their own kinds.
Checkpoints are C2SP notes (origin, size, root, and a line that commits to every revocation of an agent's key) signed
Ed25519; each carries the proof that it begins with the one before, made from that one's edge and the new leaves alone.
Once a day the whole log is hashed again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from django.db import connection, transaction

from claims.domain.merkle import (
    Checkpoint,
    Log,
    consistency_from_edge,
    leaf_hash,
    missing_nodes,
    root_of,
    verify_consistency,
)
from claims.errors import ProofError
from claims.models import ContractVersion, Leaf, SignedCheckpoint
from claims.verify.agents import KEY_NAME, REVOKED_AT, key_digest, key_name, name_digest, revocation_name
from claims.verify.notes import document_bytes, leaf_bytes, refused_bytes, revocations_line
from fleet.agents.selectors import keys_until, revocations_until
from fleet.dated import amended_of, get_org_dated
from fleet.domain.rules import LATEST, load_rules
from fleet.log_key import LogKey, load_key
from fleet.models import Amendment
from orgs.models import Org

#: Batches younger than this may still be on their way into the table beside ones that are in it.
SETTLE = timedelta(minutes=2)
CHUNK = 20_000
#: How often the whole log is hashed again from its leaves.
AUDIT_EVERY = timedelta(hours=24)

_NEW = """
select i.sha256, i.received_at, i.cluster, i.node, i.agent_id, i.seq from fleet_inbox i
 where i.received_at <= %s and i.received_at >= %s
   and not exists (select 1 from claims_leaf l where l.batch_sha256 = i.sha256 and l.what = 'batch')
 order by i.received_at, i.sha256 limit %s
"""

_REFUSED = """
select r.sha256, r.refused_at, r.code from fleet_refusal r
 where r.refused_at <= %s and not exists (
    select 1 from claims_leaf l where l.batch_sha256 = r.sha256 and l.what = 'refused' and l.detail = r.code)
 order by r.refused_at, r.sha256
"""


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
                break
        others = [*_refused(until), *_documents(until, size > 0)]
        for at, leaf in enumerate(others):
            leaf.position = size + at
        Leaf.objects.bulk_create(others, batch_size=2000)
        return added + len(others)


def _refused(until: datetime) -> list[Leaf]:
    """Leaves of refused uploads that have none yet."""
    with connection.cursor() as cursor:
        cursor.execute(_REFUSED, [until])
        rows = cursor.fetchall()
    return [
        _other(Leaf.What.REFUSED, bytes(sha), at, code, refused_bytes(bytes(sha).hex(), micros(at), code))
        for sha, at, code in rows
    ]


def _documents(until: datetime, has_facts: bool) -> list[Leaf]:
    """Leaves of what the org adopted and the log does not name yet: contract versions, amendments of rules, enrolled
    keys of agents and their revocations, and the rule set in use.
    """
    known = set(Leaf.objects.filter(what=Leaf.What.DOCUMENT).values_list("detail", flat=True))
    found = [
        (version_name(one), one.digest, one.created_at)
        for one in ContractVersion.objects.select_related("contract").filter(created_at__lte=until).order_by("pk")
    ]
    found += [
        (f"amendment {row.pk} of {row.code}", amended_of(row).one.digest(), row.entered_at)
        for row in Amendment.objects.filter(entered_at__lte=until).order_by("pk")
    ]
    found += [(key_name(public, agent), key_digest(public), at) for agent, public, at in keys_until(until)]
    found += [
        (revocation_name(public, agent, micros(at)), key_digest(public), at)
        for agent, public, at in revocations_until(until)
    ]
    if has_facts or found:
        adopted = (version for _, version in get_org_dated().book.adoptions)
        for rules in (load_rules(version) for version in sorted({LATEST, *adopted})):
            found.append((rules_name(rules.version, rules.digest), rules.digest, until))
    return [
        _other(Leaf.What.DOCUMENT, bytes.fromhex(digest), at, name, document_bytes(digest, micros(at), name))
        for name, digest, at in found
        if name not in known
    ]


def version_name(version: ContractVersion) -> str:
    """What the log calls a contract's version."""
    return f"contract {version.contract.name} version {version.number}"


def rules_name(version: str, digest: str) -> str:
    """What the log calls a rule set; its digest belongs to its name, as a rule set is its bytes."""
    return f"rules {version} {digest[:16]}"


def _other(what: str, digest: bytes, at: datetime, detail: str, leaf: bytes) -> Leaf:
    return Leaf(what=what, detail=detail, batch_sha256=digest, received_at=at, node="", hash=leaf_hash(leaf))


def _lock(org: Org) -> None:
    with connection.cursor() as cursor:
        cursor.execute("select pg_advisory_xact_lock(hashtext('goodput-ledger'), %s)", [org.pk % 2**31])


def _end() -> tuple[int, datetime]:
    """(size, when the newest batch in it came)."""
    last = Leaf.objects.order_by("-position").first()
    batch = Leaf.objects.filter(what=Leaf.What.BATCH).order_by("-position").first()
    return (0 if last is None else last.position + 1), datetime(1970, 1, 5, tzinfo=UTC) if batch is None else (
        batch.received_at
    )


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
        fresh = list(_hashes(old, size))
        for hashed in fresh:
            log.append(hashed)
        proof: list[bytes] = []
        if last is not None:
            proof = consistency_from_edge(old, [bytes.fromhex(one) for one in last.edge], fresh)
            verify_consistency(old, bytes(last.root), size, log.root(), proof)
        due = not SignedCheckpoint.objects.filter(is_audited=True, made_at__gt=now - AUDIT_EVERY).exists()
        if due:
            audit(size, log.root())
        line = revocations_line([end for _, end in revocations()])
        text = Checkpoint(origin_of(org), size, log.root(), (line,)).text()
        return SignedCheckpoint.objects.create(
            size=size,
            root=log.root(),
            note=load_key().sign(text),
            proof=[one.hex() for one in proof],
            edge=[one.hex() for one in log.edge],
            watermark=watermark,
            is_audited=due,
            made_at=now,
        )


def revocations(size: int | None = None) -> list[tuple[Leaf, tuple[str, str]]]:
    """The ends of agents' keys in the order of their leaves, of the first `size` leaves or of all: (the leaf, its line
    of the list that checkpoints commit to).
    """
    leaves = Leaf.objects.filter(what=Leaf.What.DOCUMENT, detail__startswith=KEY_NAME, detail__contains=REVOKED_AT)
    if size is not None:
        leaves = leaves.filter(position__lt=size)
    return [
        (leaf, (name_digest(leaf.detail.rpartition(REVOKED_AT)[0]), str(micros(leaf.received_at))))
        for leaf in leaves.order_by("position")
    ]


def audit(size: int, root: bytes) -> None:
    """Hash the first `size` leaves again as they are stored. Raises ProofError where they don't give the root: a leaf
    was changed behind our back.
    """
    if root_of(list(_hashes(0, size))) != root:
        raise ProofError(f"The stored leaves do not give the root of {size}: the log was changed.", "root")


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

    def beside(self, indexes: Iterable[int]) -> Iterator[bytes]:
        """What the root needs beside these leaves: one proof for all of them."""
        for level, index in missing_nodes(len(self._levels[0]), indexes):
            yield self._levels[level][index]


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def leaves_of(digests: Iterable[bytes]) -> dict[bytes, Leaf]:
    """The leaf of each batch that has one."""
    found = Leaf.objects.filter(what=Leaf.What.BATCH, batch_sha256__in=list(digests))
    return {bytes(one.batch_sha256): one for one in found}


__all__ = [
    "LogKey",
    "Proofs",
    "all_hashes",
    "append_new",
    "audit",
    "leaves_of",
    "load_key",
    "make_checkpoint",
    "micros",
    "revocations",
]
