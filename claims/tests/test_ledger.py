"""Every received batch is a leaf once; checkpoints are signed and continue one another; a changed leaf is noticed."""

from __future__ import annotations

import base64
import hashlib
import stat
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.utils import timezone
from django_tenants.utils import tenant_context

from agent.wire import RECEIPT_DOMAIN, receipt_message
from claims import ledger
from claims.domain.merkle import leaf_hash, read_checkpoint, root_of, verify_consistency, verify_inclusion
from claims.errors import ProofError
from claims.inputs import canonical_json
from claims.ledger import AUDIT_EVERY, Proofs, all_hashes, load_key, make_checkpoint
from claims.models import Leaf, SignedCheckpoint
from claims.pack_agents import agents_of
from claims.services import add_contract, read_terms
from claims.tasks import checkpoint_org
from claims.tests.months import terms
from claims.verify.agents import check_revocations, check_signed, revocation_name
from claims.verify.ed25519 import verify
from claims.verify.notes import open_note, public_key, refused_bytes
from claims.verify.pack_file import MANIFEST_TAG
from fleet.agents.models import AgentKey
from fleet.agents.services import accept, revoke
from fleet.errors import BatchRejected
from fleet.ingest import receive
from fleet.refusals import keep_refusal
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
    assert Leaf.objects.filter(what="batch").count() == 8
    proofs = Proofs(all_hashes(9))  # and the rule set
    for leaf in Leaf.objects.all():
        verify_inclusion(bytes(leaf.hash), leaf.position, 9, proofs.of(leaf.position), bytes(before.root))


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
    with pytest.raises(ProofError, match="the log was changed"):
        make_checkpoint(inside, timezone.now() + LATER + AUDIT_EVERY)
    assert SignedCheckpoint.objects.count() == 1


def test_between_two_audits_a_checkpoint_reads_the_new_leaves_only(
    inside: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(inside, 5, 1)
    first = make_checkpoint(inside, timezone.now() + LATER)
    send(inside, 2, 20)
    read: list[tuple[int, int]] = []
    real = ledger._hashes
    monkeypatch.setattr(ledger, "_hashes", lambda a, b: read.append((a, b)) or real(a, b))
    second = make_checkpoint(inside, timezone.now() + LATER)
    assert (first.is_audited, second.is_audited) == (True, False)
    assert read == [(first.size, second.size)]
    monkeypatch.undo()
    ledger.audit(second.size, bytes(second.root))


def test_refused_uploads_and_adopted_documents_are_leaves_too(inside: Any, actor: Any) -> None:
    send(inside, 1, 1)
    with pytest.raises(BatchRejected) as caught:
        receive(b"no gzip", key_for(inside), {})
    for _ in range(2):
        keep_refusal(key_for(inside), b"no gzip", caught.value)
    version = add_contract(read_terms(terms()), actor)
    now = timezone.now() + LATER
    made = make_checkpoint(inside, now)
    refused = Leaf.objects.get(what="refused")
    assert (bytes(refused.batch_sha256), refused.detail) == (hashlib.sha256(b"no gzip").digest(), "bad_gzip")
    wanted = refused_bytes(hashlib.sha256(b"no gzip").hexdigest(), ledger.micros(refused.received_at), "bad_gzip")
    assert bytes(refused.hash) == leaf_hash(wanted)
    names = set(Leaf.objects.filter(what="document").values_list("detail", flat=True))
    assert f"contract Bare metal H100 version {version.number}" in names
    assert any(name.startswith("rules ") for name in names)
    assert made.size == Leaf.objects.count() == 4
    assert make_checkpoint(inside, now + LATER).pk == made.pk  # each of them once


def test_the_same_bytes_refused_and_then_taken_have_two_leaves(inside: Any) -> None:
    body = packed(agent_id="a" * 8, seq=1)[0]
    keep_refusal(key_for(inside), body, BatchRejected(422, "invalid", "x"))
    receive(body, key_for(inside), {})
    make_checkpoint(inside, timezone.now() + LATER)
    kinds = Leaf.objects.exclude(what="document").order_by("what")
    assert [(one.what, bytes(one.batch_sha256)) for one in kinds] == [
        ("batch", bytes(kinds[0].batch_sha256)), ("refused", bytes(kinds[0].batch_sha256)),
    ]  # fmt: skip


def test_a_receipt_bears_the_logs_signature_and_a_duplicates_is_the_same(inside: Any) -> None:
    body = packed(agent_id="a" * 8, seq=1)[0]
    first, again = (receive(body, key_for(inside), {}).as_json() for _ in range(2))
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert first["signature"] == again["signature"]
    _, public = public_key(load_key().verifier())
    signature = base64.b64decode(first["signature"])
    said = [first[key] for key in ("batch_sha256", "node", "seq", "received_at")]
    assert verify(public, receipt_message(*said), signature)
    assert not verify(public, receipt_message(said[0], "other", *said[2:]), signature)


def test_the_key_is_made_once_and_read_by_its_owner_only(inside: Any, tmp_path: Path) -> None:
    first = load_key().public
    assert load_key().public == first
    assert stat.S_IMODE((tmp_path / "secrets" / "log-ed25519.key").stat().st_mode) == 0o600


def test_the_hourly_task_signs_each_orgs_own_log(inside: Any, beta: Any) -> None:
    send(inside, 2, 1)
    with connection.cursor() as cursor:
        cursor.execute("update fleet_inbox set received_at = received_at - interval '1 hour'")
    connection.set_schema_to_public()
    assert checkpoint_org(inside.pk) == 3  # two batches and the rule set
    assert checkpoint_org(beta.pk) == 0


def test_a_receipts_signature_is_good_for_nothing_else(inside: Any) -> None:
    receipt = receive(packed(agent_id="a" * 8, seq=1)[0], key_for(inside), {}).as_json()
    _, public = public_key(load_key().verifier())
    signature = base64.b64decode(receipt["signature"])
    text = receipt_message(*(receipt[key] for key in ("batch_sha256", "node", "seq", "received_at")))
    bare = text[len(RECEIPT_DOMAIN) :]
    assert verify(public, text, signature)
    for other in (bare, MANIFEST_TAG + bare, bare + b"\n"):
        assert not verify(public, other, signature)
    made = make_checkpoint(inside, timezone.now() + LATER)
    note, signed = open_note(made.note, *public_key(load_key().verifier()))
    assert verify(public, note.encode(), signed)
    assert not verify(public, RECEIPT_DOMAIN + note.encode(), signed)
    assert not verify(public, MANIFEST_TAG + note.encode(), signed)


def test_a_keys_revocation_is_a_leaf_and_a_pack_that_tells_it_otherwise_fails(inside: Any) -> None:
    public = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    row = AgentKey.objects.create(
        agent_id="a1",
        public_key=public,
        state="active",
        cluster="c",
        node="n",
        enrolled_with="x",
        is_bootstrap=False,
    )
    revoke(row, inside, actor="test")
    made = make_checkpoint(inside, timezone.now() + LATER)
    assert made is not None
    row.refresh_from_db()
    assert row.changed_at is not None
    name = revocation_name(public, row.agent_id, ledger.micros(row.changed_at))
    assert Leaf.objects.get(detail=name).received_at == row.changed_at
    said = agents_of([SimpleNamespace(agent_id=row.agent_id, signature=None)], made.size, Proofs(all_hashes(made.size)))
    (key,) = said["keys"]
    ends = said["revocations"]

    def found(told: dict[str, Any], ends: Any, *notes: str) -> str:
        files = {
            "agents.json": canonical_json({"keys": [told], "signatures": {}, "revocations": ends}),
            "windows.json": b"[]",
            "skeleton.json": b"[]",
            **{f"checkpoints/{at}.note": note.encode() for at, note in enumerate(notes)},
        }
        try:
            check_signed(files, lambda: [])
            return "none" if check_revocations(files) is None else "good"
        except ProofError as error:
            return str(error)

    left_out = {**key, "revoked_us": None, "revocation": None}
    earlier = {**key, "revoked_us": str(int(key["revoked_us"]) - 1)}
    assert found(key, ends, made.note) == "good"
    assert "another end" in found(earlier, ends, made.note)
    assert "another end" in found(left_out, ends, made.note)
    assert "the log holds an end" in found({**key, "revoked_us": None}, [], made.note).lower()
    assert "commits to" in found(left_out, [], made.note)
    assert "commits to" in found(key, [*ends, ["00" * 32, "1"]], made.note)
    bare = made.note.replace(made.note.splitlines()[3] + "\n", "")
    assert found(left_out, [], bare) == "none"
    send(inside, 2, 1)
    accept(row, inside, actor="test")  # taken back: the log's first word about its end stands
    later = make_checkpoint(inside, timezone.now() + 2 * LATER)
    assert later is not None
    tree = Proofs(all_hashes(later.size))
    again_said = agents_of([SimpleNamespace(agent_id=row.agent_id, signature=None)], later.size, tree)
    (again_key,) = again_said["keys"]
    assert again_key["revoked_us"] == key["revoked_us"]
    assert found(again_key, again_said["revocations"], made.note, later.note) == "good"
    bare = later.note.replace(later.note.splitlines()[3] + "\n", "")
    assert "commits to no revocations" in found(again_key, again_said["revocations"], made.note, bare)
    call_command("check_log", org=inside.slug)
    again = make_checkpoint(inside, timezone.now() + 3 * LATER)
    assert again is not None
    assert again.size == later.size
