"""Outside anchors: planned on one page, asked once a day, queued while a party is away, checked before they count."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest
from django.core import mail
from django.db import IntegrityError, connection, transaction
from django.utils import timezone
from django_tenants.utils import tenant_context

from claims.anchors.making import anchor_org, note_ticket
from claims.anchors.plan import set_plan
from claims.errors import AnchorError, ProofError
from claims.ledger import make_checkpoint
from claims.models import Anchor, AnchorPlan, SignedCheckpoint
from claims.services import Actor
from claims.tests.authority import Authority, Metadata, served
from claims.verify.anchors import Anchored, Share, share_of
from claims.verify.timestamps import certificates_of, check_stamp
from claims.verify.tokens import check_google
from fleet.ingest import receive
from fleet.tests.bodies import packed
from fleet.tests.test_folding import key_for
from orgs.models import AuditEntry

pytestmark = pytest.mark.django_db
LATER = timedelta(minutes=10)


@pytest.fixture
def now(actor: Actor, settings: Any, tmp_path: Path) -> Iterator[datetime]:
    """A moment at which alpha's log has something to sign."""
    settings.GOODPUT_VAR = tmp_path
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    receive(packed(agent_id="a" * 8, seq=1)[0], key_for(actor.org), {})
    return timezone.now() + LATER


def plan(actor: Actor, **values: str) -> AnchorPlan:
    return set_plan(actor, values)


def test_the_daily_checkpoint_goes_to_the_provider_with_finance_in_copy(now: datetime, actor: Actor) -> None:
    assert anchor_org(actor.org, now) == 0  # nobody planned anything
    plan(actor, notice_address="notices@provider.example", finance_address="finance@alpha.example")
    assert anchor_org(actor.org, now) == 1
    assert anchor_org(actor.org, now + timedelta(minutes=5)) == 0  # once a day
    (sent,) = mail.outbox
    assert (sent.to, sent.cc) == (["notices@provider.example"], ["finance@alpha.example"])
    checkpoint = SignedCheckpoint.objects.get()
    assert checkpoint.note.strip() in sent.body
    anchor = Anchor.objects.get()
    assert (anchor.kind, anchor.state, anchor.who, anchor.at) == ("mail", "made", "notices@provider.example", now)
    kept = message_from_bytes(bytes(anchor.evidence), policy=policy.default)
    assert checkpoint.note.strip() in kept.get_content()
    receive(packed(agent_id="a" * 8, seq=2)[0], key_for(actor.org), {})
    assert anchor_org(actor.org, now + timedelta(days=1)) == 1


@pytest.mark.parametrize("kind", ["rsa", "ec"])
def test_a_stamp_waits_while_the_authority_is_away_and_stands_once_it_is_there(
    now: datetime, actor: Actor, kind: str
) -> None:
    authority = Authority(kind=kind)
    with served(authority) as url:
        plan(actor, tsa_url=url, tsa_certificate=authority.pem)
        authority.is_away = True
        assert anchor_org(actor.org, now) == 0
        anchor = Anchor.objects.get()
        assert (anchor.state, anchor.attempts) == ("waiting", 1)
        assert "503" in anchor.error
        authority.is_away = False
        assert anchor_org(actor.org, now) == 0  # not before its time
        assert anchor_org(actor.org, now + timedelta(minutes=6)) == 1
    anchor.refresh_from_db()
    assert (anchor.state, anchor.who) == ("made", "Test TSA")
    note = anchor.checkpoint.note.encode()
    pinned = certificates_of(anchor.key)[0]
    assert check_stamp(bytes(anchor.evidence), note, pinned).at == anchor.at
    with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
        Anchor.objects.update(at=now)


def test_a_stamp_of_another_authority_is_refused(now: datetime, actor: Actor) -> None:
    mine, other = Authority(), Authority()
    with served(other) as url:
        plan(actor, tsa_url=url, tsa_certificate=mine.pem)
        assert anchor_org(actor.org, now) == 0
    assert "refused" in Anchor.objects.get().error


@pytest.mark.parametrize("kind", ["rsa", "ec"])
def test_the_offline_check_of_a_stamp_finds_every_change(kind: str) -> None:
    from rfc3161_client import HashAlgorithm, TimestampRequestBuilder

    authority = Authority(kind=kind)
    query = TimestampRequestBuilder().data(b"root").hash_algorithm(HashAlgorithm.SHA256).build().as_bytes()
    raw = authority.answer(query)
    pinned, root = certificates_of(authority.pem)
    assert check_stamp(raw, b"root", pinned).serial == 1
    with pytest.raises(ProofError, match="something else"):
        check_stamp(raw, b"roof", pinned)
    with pytest.raises(ProofError, match="another certificate"):
        check_stamp(raw, b"root", certificates_of(Authority(kind=kind).pem)[0])
    with pytest.raises(ProofError):
        check_stamp(raw, b"root", root)
    refused = 0
    for at in range(0, len(raw), 7):
        changed = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
        try:
            found = check_stamp(changed, b"root", pinned)
        except ProofError:
            refused += 1
        else:  # what is not signed: the status line, the enclosed certificate, the signer's name
            assert (found.serial, found.policy) == (1, "1.2.3.4.1")
    assert refused > len(raw) // 7 * 0.3


def test_an_instance_token_over_the_root_counts_and_others_do_not(now: datetime, actor: Actor, settings: Any) -> None:
    cloud = Metadata()
    with served(cloud) as url:
        settings.GOODPUT_INSTANCE_TOKEN_URL = url
        plan(actor, token_adapter="google", token_keys=cloud.jwks)
        assert anchor_org(actor.org, now) == 1
    anchor = Anchor.objects.get()
    root, token = bytes(anchor.checkpoint.root), bytes(anchor.evidence)
    assert anchor.who == "Google, instance acme gpu-017 4711"
    assert check_google(token, root, cloud.jwks) == (anchor.at, anchor.who)
    head, said, signature = token.split(b".")
    for changed in (b".".join((head, said, signature[:-4] + b"AAAA")), b".".join((head, said + b"A", signature)), b"x"):
        with pytest.raises(ProofError):
            check_google(changed, root, cloud.jwks)
    with pytest.raises(ProofError, match="another root"):
        check_google(token, bytes(32), cloud.jwks)
    with pytest.raises(ProofError, match="signature"):
        check_google(token, root, Metadata().jwks)


def test_without_a_metadata_address_a_token_waits_and_says_so(now: datetime, actor: Actor, settings: Any) -> None:
    settings.GOODPUT_INSTANCE_TOKEN_URL = ""
    plan(actor, token_adapter="google", token_keys=Metadata().jwks)
    assert anchor_org(actor.org, now) == 0
    assert "GOODPUT_INSTANCE_TOKEN_URL" in Anchor.objects.get().error


def test_a_ticket_whose_text_carries_the_root_is_an_anchor(now: datetime, actor: Actor) -> None:
    checkpoint = make_checkpoint(actor.org, now)
    text = f"Outage of n1.\n\n{checkpoint.note}"
    when = now + timedelta(hours=1)
    told = {"at": when, "provider": "Northwind", "reference": "48102"}
    assert note_ticket(checkpoint.size, text="Outage of n1.", **told) is None
    assert note_ticket(checkpoint.size, text=text, **{**told, "reference": ""}) is None
    assert note_ticket(checkpoint.size, text=text, **{**told, "at": now - timedelta(days=1)}) is None
    anchor = note_ticket(checkpoint.size, text=text, **told)
    assert anchor is not None
    assert (anchor.kind, anchor.at, anchor.who, anchor.reference) == ("ticket", when, "Northwind", "48102")
    assert note_ticket(checkpoint.size, text=text, **told) is None  # noted already


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"notice_address": "nobody"}, "notice_address"),
        ({"tsa_url": "https://tsa.example"}, "tsa_certificate"),
        ({"tsa_url": "ftp://tsa.example", "tsa_certificate": "x"}, "tsa_url"),
        ({"tsa_url": "https://tsa.example", "tsa_certificate": "no certificate"}, "tsa_certificate"),
        ({"token_adapter": "nobody"}, "token_adapter"),
        ({"token_adapter": "google", "token_keys": "{}"}, "token_keys"),
    ],
)
def test_a_plan_that_can_not_work_is_refused_and_nothing_is_kept(actor: Actor, values: Any, field: str) -> None:
    with pytest.raises(AnchorError) as caught:
        set_plan(actor, values)
    assert caught.value.field == field
    assert not AnchorPlan.objects.exists()


def test_the_root_is_no_certificate_for_time_stamps(actor: Actor) -> None:
    pem = Authority().pem
    swapped = pem[pem.index("-----BEGIN", 10) :]
    with pytest.raises(AnchorError, match="signs time stamps"):
        set_plan(actor, {"tsa_url": "https://tsa.example", "tsa_certificate": swapped})


def test_one_page_plans_them_and_the_api_says_the_same(
    actor: Actor, alpha: Any, ada: Any, bo: Any, client_of: Any
) -> None:
    connection.set_schema_to_public()
    client = client_of(ada)
    page = client.get("/o/alpha/claims/anchors/")
    assert "unanchored statement" in page.content.decode()
    assert client.post("/o/alpha/claims/anchors/", {"notice_address": "nobody"}).status_code == 422
    kept = client.post("/o/alpha/claims/anchors/", {"notice_address": "notices@provider.example"})
    assert kept.status_code == 302
    assert "notices@provider.example" in client.get("/o/alpha/claims/anchors/").content.decode()
    assert client.get("/v1/anchors?org=alpha").json()["plan"]["notice_address"] == "notices@provider.example"
    body = {"notice_address": "other@provider.example"}
    assert client.post("/v1/anchors?org=alpha", body, "application/json").status_code == 200
    assert client.post("/v1/anchors?org=alpha", {"x": "y"}, "application/json").status_code == 422
    assert client.get("/v1/log-key?org=alpha").json()["log"].startswith("goodput-log/")
    assert client_of(bo).get("/o/alpha/claims/anchors/").status_code == 404
    assert client_of(bo).get("/v1/anchors?org=alpha").status_code == 404
    with tenant_context(alpha):
        assert AnchorPlan.objects.get().notice_address == "other@provider.example"
    assert AuditEntry.objects.filter(action="anchors.planned").count() == 2


def test_only_an_owner_or_admin_plans_anchors(alpha: Any, client_of: Any) -> None:
    from orgs.services import create_user, set_role

    user = create_user("v@alpha.example", actor="test")
    set_role(user, alpha, "viewer", actor="test")
    client = client_of(user)
    assert client.get("/o/alpha/claims/anchors/").status_code == 200
    assert client.post("/o/alpha/claims/anchors/", {}).status_code == 403
    assert client.post("/v1/anchors?org=alpha", {}, "application/json").status_code == 403


SLOT = 15_000


def points(*places: int) -> dict[str, list[tuple[int, int]]]:
    """A sample in the middle of each slot; its batch's place in the log."""
    return {"n1": [(number * SLOT + 7_500, place) for number, place in enumerate(places)]}


def anchor(at_slot: float, size: int, kind: str = "rfc3161") -> Anchored:
    return Anchored(kind, "x", size, int(at_slot * SLOT))


@pytest.mark.parametrize(
    ("anchors", "between"),
    [
        ([], 0),
        ([anchor(0, 0)], 0),  # nothing after
        ([anchor(9, 9)], 0),  # nothing before
        ([anchor(0, 0), anchor(9, 9)], 4),
        ([anchor(2, 0), anchor(9, 9)], 3),  # slots 2 to 4 only
        ([anchor(0, 0), anchor(9, 4)], 3),  # covers the places 0 to 3: the samples of slots 1 to 3
        ([anchor(0, 3), anchor(9, 9)], 2),  # its log had the places 0 to 2 before they could be known
    ],
)
def test_a_second_lies_between_an_anchor_before_it_and_one_that_covers_its_evidence(anchors: Any, between: int) -> None:
    found = share_of(anchors, [({"n1"}, SLOT, 5 * SLOT)], points(0, 1, 2, 3, 4, 5, 6))
    assert found.claimed == 4
    assert found.between == between


def test_a_span_of_a_node_without_evidence_lies_between_no_anchors() -> None:
    assert share_of([anchor(0, 0), anchor(9, 9)], [({"n2"}, 0, SLOT)], points(0, 1)) == Share(1, 0, 0)


def test_the_widest_pair_that_was_needed_is_told() -> None:
    anchors = [anchor(0, 0), anchor(3, 3), anchor(20, 9)]
    found = share_of(anchors, [({"n1"}, SLOT, 5 * SLOT)], points(0, 1, 2, 3, 4, 5, 6))
    assert (found.between, found.widest_ms) == (4, 17 * SLOT)
    assert json.dumps(found.claimed) == "4"
