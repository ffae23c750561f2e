"""Every received batch is a leaf once; checkpoints are signed and continue one another; a changed leaf is noticed."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone
from django_tenants.utils import tenant_context

from claims.domain.merkle import read_checkpoint, root_of, verify_consistency, verify_inclusion
from claims.errors import ProofError
from claims.ledger import Proofs, all_hashes, load_key, make_checkpoint
from claims.models import Leaf, SignedCheckpoint
from claims.tasks import checkpoint_org
from claims.verify.ed25519 import verify
from claims.verify.notes import open_note, public_key
from fleet.ingest import receive
from fleet.tests.bodies import packed
from fleet.tests.test_folding import key_for

pytestmark = pytest.mark.django_db
LATER = timedelta(minutes=10)


@pytest.fixture
def inside(alpha: Any, settings: Any, tmp_path: Path) -> Iterator[Any]:
    """Inside alpha, with secrets of its own."""
    settings.GOODPUT_VAR = tmp_path
    with tenant_context(alpha):
        yield alpha


def send(org: Any, count: int, first: int) -> None:
    for number in range(first, first + count):
        receive(packed(agent_id="a" * 8, seq=number)[0], key_for(org), {})


def test_each_batch_is_a_leaf_once_and_every_checkpoint_continues_the_last(inside: Any) -> None:
    now = timezone.now() + LATER
    assert make_checkpoint(inside, now) is None
    before = None
    for number, count in enumerate((1, 2, 5)):
        send(inside, count, number * 10)
        made = make_checkpoint(inside, now)
        assert make_checkpoint(inside, now).pk == made.pk  # nothing new, nothing signed
        name, public = public_key(load_key().verifier())
        text, signature = open_note(made.note, name, public)
        assert verify(public, text.encode(), signature)
        point = read_checkpoint(text)
        assert (point.size, point.root) == (made.size, root_of(all_hashes(made.size)))
        if before is not None:
            proof = [bytes.fromhex(one) for one in made.proof]
            verify_consistency(before.size, bytes(before.root), made.size, bytes(made.root), proof)
        before = made
    assert Leaf.objects.count() == 8
    proofs = Proofs(all_hashes(8))
    for leaf in Leaf.objects.all():
        verify_inclusion(bytes(leaf.hash), leaf.position, 8, proofs.of(leaf.position), bytes(before.root))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 64, 65])
def test_many_proofs_at_once_are_those_of_the_rfc(size: int) -> None:
    hashes = [bytes([number]) * 32 for number in range(size)]
    proofs = Proofs(hashes)
    assert proofs.root == root_of(hashes)
    for index in range(size):
        verify_inclusion(hashes[index], index, size, proofs.of(index), proofs.root)


def test_a_batch_that_just_came_waits_for_the_next_checkpoint(inside: Any) -> None:
    send(inside, 1, 1)
    assert make_checkpoint(inside, timezone.now()) is None


def test_leaves_and_checkpoints_can_not_be_changed(inside: Any) -> None:
    send(inside, 2, 1)
    make_checkpoint(inside, timezone.now() + LATER)
    for table in (Leaf, SignedCheckpoint):
        with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
            table.objects.all().delete()


def test_a_leaf_changed_behind_our_back_stops_the_log(inside: Any) -> None:
    send(inside, 3, 1)
    make_checkpoint(inside, timezone.now() + LATER)
    with connection.cursor() as cursor:
        cursor.execute("alter table claims_leaf disable trigger all")
        cursor.execute("update claims_leaf set hash = %s where position = 1", [bytes(32)])
        cursor.execute("alter table claims_leaf enable trigger all")
    send(inside, 1, 9)
    with pytest.raises(ProofError):
        make_checkpoint(inside, timezone.now() + LATER)
    assert SignedCheckpoint.objects.count() == 1


def test_the_key_is_made_once_and_read_by_its_owner_only(inside: Any, tmp_path: Path) -> None:
    first = load_key().public
    assert load_key().public == first
    assert stat.S_IMODE((tmp_path / "secrets" / "log-ed25519.key").stat().st_mode) == 0o600


def test_the_hourly_task_signs_each_orgs_own_log(inside: Any, beta: Any) -> None:
    send(inside, 2, 1)
    with connection.cursor() as cursor:
        cursor.execute("update fleet_inbox set received_at = received_at - interval '1 hour'")
    connection.set_schema_to_public()
    assert checkpoint_org(inside.pk) == 2
    assert checkpoint_org(beta.pk) == 0
