"""What asks for a look: kept beside the hours, told by page, API and console, of the fleet and of no other org's.

And who looked at it.
"""

from __future__ import annotations

import html
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.domain.rules import load_rules
from fleet.domain.slots import SLOT_MS
from fleet.domain.strips import HourRow
from fleet.domain.verdicts import State, Verdict
from fleet.fleet_json import when
from fleet.models import Node, NodeHour, Review, ReviewBackfill, ReviewLook
from fleet.refolding import refold_dirty
from fleet.reviews import backfill_reviews, write_reviews
from fleet.selectors_reviews import list_reviews, looked_at, recent_reviews
from fleet.services_dated import mark_dirty_hours
from fleet.summary.services import write_summary
from fleet.tests.api.conftest import get
from fleet.tests.bodies import interval
from fleet.tests.test_pages import text_of
from fleet.tests.test_pages_node import only_node, store
from orgs.models import AuditEntry
from orgs.services import create_user, set_role

pytestmark = pytest.mark.django_db


@pytest.fixture
def now_ms(alpha: Any) -> int:
    """Of alpha's node n1, whose second GPU told of an Xid that no rule knows 70 s ago."""
    now = int(timezone.now().timestamp() * 1000)
    event = {"kind": "xid", "code": 9999, "pci_bus_id": "0000:11:00.0", "at": now - 70_000}
    store(alpha, intervals=[interval(now - 75_000 + k * SLOT_MS, events=[event] if k == 1 else []) for k in range(4)])
    return now


def test_the_api_lists_it_with_place_uuid_and_words(alpha: Any, beta: Any, key_of: Any, now_ms: int) -> None:
    token = key_of(alpha, "read")
    (line,) = get("/v1/reviews", token).json()["results"]
    assert (line["code"], line["gpu_index"], line["subject"], line["node"]) == ("XID_9999", 1, "g1", "n1")
    assert line["uuid"].startswith("GPU-1")
    assert line["title"]
    assert line["from"] <= when(now_ms - 70_000) < line["to"]
    wanted = f"code=XID_9999&node_id={line['node_id']}&since={when(now_ms - 90_000)}&until={when(now_ms)}"
    assert len(get(f"/v1/reviews?{wanted}", token).json()["results"]) == 1
    for nothing in (f"since={when(now_ms)}", "code=XID_95", "cluster=other", f"until={when(now_ms - 200_000)}"):
        assert get(f"/v1/reviews?{nothing}", token).json()["results"] == []
    assert "XID_9999" in get("/v1/reviews.csv", token).content.decode()
    assert get("/v1/reviews", key_of(beta, "read")).json()["results"] == []
    assert get("/v1/reviews", key_of(alpha, "read", cluster="other")).json()["results"] == []
    assert get("/v1/reviews?since=yesterday", token).status_code == 422


def test_a_refold_writes_the_same_and_takes_back_what_is_no_more(alpha: Any, now_ms: int) -> None:
    with tenant_context(alpha):
        before = list(
            Review.objects.values_list("node_id", "hour", "subject", "code", "first_slot", "end_slot", "uuid")
        )
        assert len(before) == 1
        Review.objects.create(
            node_id=before[0][0], hour=before[0][1], subject="g7", code="XID_1", first_slot=1, end_slot=2
        )
        NodeHour.objects.all().delete()  # as if the rows had said something else
        mark_dirty_hours([before[0][0]], before[0][1], before[0][1])
        refold_dirty(timezone.now())
        after = list(Review.objects.values_list("node_id", "hour", "subject", "code", "first_slot", "end_slot", "uuid"))
    assert after == before


def test_the_providers_console_counts_it_and_names_node_and_code(
    alpha: Any, pat: Any, client_of: Any, lan: Any, now_ms: int
) -> None:
    with tenant_context(alpha):
        write_summary(alpha, timezone.now())
    staff = client_of(pat)
    assert "1 subject to look at" in text_of(staff.get("/provider/"))
    (org,) = [one for one in staff.get("/provider/orgs.json").json()["orgs"] if one["slug"] == "alpha"]
    assert org["reviews"] == 1
    words = text_of(staff.get(f"/provider/orgs/{alpha.pk}/"))
    assert "Asks for a look" in words
    assert "XID_9999" in words
    assert "n1" in words
    with tenant_context(alpha):
        Review.objects.all().delete()
        write_summary(alpha, timezone.now())
    assert "Asks for a look" not in text_of(staff.get(f"/provider/orgs/{alpha.pk}/"))


def test_what_of_a_merged_or_removed_node_asked_is_not_listed(alpha: Any, key_of: Any, now_ms: int) -> None:
    with tenant_context(alpha):
        cluster = Node.objects.get(pk=only_node(alpha, "n1")).cluster
        type(cluster)._default_manager.filter(pk=cluster.pk).update(removed_at=timezone.now())
    assert get("/v1/reviews", key_of(alpha, "read")).json()["results"] == []


# Looking: who, when and a note, kept by what the review is about


def stretch_row(hour: int, first: int, end: int) -> HourRow:
    """An hour whose slots `[first, end)` of GPU 1 hold the unknown Xid."""
    row = HourRow(hour, load_rules().version)
    verdict = Verdict(State.OBSERVED, 100, 100, 100, ("XID_9999",), ())
    row.put("g1", hour * 240 + first, hour * 240 + end, verdict)
    return row


def key_of_line(org: Any) -> str:
    """What the page's form names the only review by."""
    with tenant_context(org):
        (line,) = list_reviews(only_node(org, "n1"), 0, 2**31 - 1)
    return line.key


def mark(client: Any, org: Any, **more: Any) -> Any:
    """Mark the only review by the page."""
    return client.post(f"/o/{org.slug}/reviews/look/", {"review": key_of_line(org), **more})


def counted(org: Any) -> int:
    """How many subjects ask, as the consoles count."""
    with tenant_context(org):
        return sum(one.subjects for one in recent_reviews(timezone.now()))


def test_whoever_may_write_marks_it_and_takes_it_back(alpha: Any, member: Any, key_of: Any, now_ms: int) -> None:
    owner, token, node = member("owner"), key_of(alpha, "read"), only_node(alpha, "n1")
    assert "XID_9999" in text_of(owner.get("/o/alpha/reviews/"))
    answer = mark(owner, alpha, note="a new driver's code", node=node)
    assert answer["Location"] == f"/o/alpha/nodes/{node}/?part=events#events"
    assert counted(alpha) == 0
    assert "XID_9999" not in text_of(owner.get("/o/alpha/reviews/"))
    words = text_of(owner.get(f"/o/alpha/nodes/{node}/?part=events"))
    assert "all looked at" in words
    assert "Looked at by owner@alpha.example" in words
    assert "a new driver's code" in html.unescape(text_of(owner.get("/o/alpha/reviews/?state=looked+at")))
    (line,) = owner.get("/o/alpha/reviews.json?state=all").json()["reviews"]
    assert (line["looked_by"], line["note"]) == ("owner@alpha.example", "a new driver's code")
    assert b"owner@alpha.example" in owner.get("/o/alpha/reviews.csv?state=all").content
    (line,) = get("/v1/reviews?looked_at=true", token).json()["results"]
    assert (line["looked_by"], line["look_note"]) == ("owner@alpha.example", "a new driver's code")
    assert get("/v1/reviews?looked_at=false", token).json()["results"] == []

    assert owner.post(f"/o/alpha/reviews/looks/{line['look_id']}/take-back/").status_code == 302
    assert counted(alpha) == 1
    (line,) = get("/v1/reviews?looked_at=false", token).json()["results"]
    assert line["look_id"] is line["looked_at"] is None
    assert mark(owner, alpha).status_code == 302  # and again
    assert counted(alpha) == 0
    entries = list(AuditEntry.objects.filter(action__startswith="review.").order_by("id"))
    assert [one.action for one in entries] == ["review.looked_at", "review.look_taken_back", "review.looked_at"]
    assert {(one.actor, one.target) for one in entries} == {("owner@alpha.example", "n1")}
    assert entries[0].after["code"] == "XID_9999"
    assert entries[0].after["note"] == "a new driver's code"


def test_a_refold_and_another_hour_of_the_same_leave_it_marked(alpha: Any, member: Any, now_ms: int) -> None:
    mark(member("finance"), alpha)
    with tenant_context(alpha):
        (node, hour) = Review.objects.values_list("node_id", "hour").get()
        before = Review.objects.get().pk
        Review.objects.all().delete()
        NodeHour.objects.all().delete()
        mark_dirty_hours([node], hour, hour)
        refold_dirty(timezone.now())
        assert Review.objects.get().pk != before
    assert counted(alpha) == 0


def test_what_goes_on_stays_marked_and_what_comes_anew_asks_again(alpha: Any, member: Any, now_ms: int) -> None:
    mark(member("admin"), alpha)
    with tenant_context(alpha):
        node = only_node(alpha, "n1")
        look = ReviewLook.objects.get()
        hour = look.end_slot // 240 + 1
        ReviewLook.objects.update(first_slot=hour * 240 - 8, end_slot=hour * 240)  # it reached the end of its hour

        write_reviews({(node, hour): stretch_row(hour, 0, 240), (node, hour + 1): stretch_row(hour + 1, 0, 5)})
        look.refresh_from_db()
        assert look.end_slot == (hour + 1) * 240 + 5
        write_reviews({(node, hour + 1): stretch_row(hour + 1, 0, 9)})  # the hour goes on
        look.refresh_from_db()
        assert look.end_slot == (hour + 1) * 240 + 9
        write_reviews({(node, hour + 2): stretch_row(hour + 2, 3, 4)})  # not the same stretch
        rows = Review.objects.filter(hour__gte=hour)
        assert list(rows.annotate(seen=looked_at()).order_by("hour").values_list("seen", flat=True)) == [
            True,
            True,
            False,
        ]


def test_the_first_mark_stays_and_bad_values_are_told(alpha: Any, member: Any, now_ms: int) -> None:
    owner = member("owner")
    assert "Choose what you looked at" in text_of(owner.post("/o/alpha/reviews/look/", {}))
    for bad in ("x", "1.2", "1.99999999999.A.g0", "1.2.A\x00.g0"):
        assert owner.post("/o/alpha/reviews/look/", {"review": bad}).status_code == 422
    assert mark(owner, alpha, note="x" * 1001).status_code == 422
    assert counted(alpha) == 1
    mark(owner, alpha, note="first")
    answer = owner.post("/o/alpha/reviews/look/", {"review": key_of_line(alpha), "note": "second"}, follow=True)
    assert "Somebody had marked it before" in text_of(answer)
    with tenant_context(alpha):
        assert ReviewLook.objects.get().note == "first"


def test_the_api_marks_under_a_session_of_whoever_may_write(
    alpha: Any, beta: Any, member: Any, key_of: Any, bo: Any, client_of: Any, now_ms: int
) -> None:
    token = key_of(alpha, "read")
    (line,) = get("/v1/reviews", token).json()["results"]
    body = {"node_id": line["node_id"], "subject": "g1", "code": "XID_9999", "at": line["from"], "note": "seen"}
    keyed = Client(HTTP_HOST="localhost", HTTP_AUTHORIZATION=f"Bearer {token}")
    assert keyed.post("/v1/reviews/looks", body, "application/json").json()["code"] == "session_needed"
    assert member("viewer").post("/v1/reviews/looks", body, "application/json").json()["code"] == "role_needed"
    finance = member("finance")
    for wrong, name in (({"node_id": "1"}, "node_id"), ({"at": "yesterday"}, "at"), ({"more": 1}, "more")):
        answer = finance.post("/v1/reviews/looks", {**body, **wrong}, "application/json")
        assert (answer.status_code, list(answer.json()["errors"])) == (422, [name])
    assert finance.post("/v1/reviews/looks", {**body, "code": "XID_1"}, "application/json").status_code == 404
    made = finance.post("/v1/reviews/looks", body, "application/json")
    assert made.status_code == 201
    assert (made.json()["looked_by"], made.json()["note"]) == ("finance@alpha.example", "seen")
    again = member("admin").post("/v1/reviews/looks", {**body, "note": "later"}, "application/json").json()
    assert (again["id"], again["note"]) == (made.json()["id"], "seen")
    path = f"/v1/reviews/looks/{again['id']}/take-back"
    assert client_of(bo).post(path).status_code in (403, 404)  # beta's own has none of that number
    assert finance.post(path).json()["taken_back_by"] == "finance@alpha.example"
    assert counted(alpha) == 1


def test_who_only_reads_or_sees_other_clusters_marks_nothing(
    alpha: Any, client_of: Any, member: Any, now_ms: int
) -> None:
    key = key_of_line(alpha)
    viewer = member("viewer")
    assert "look-at" not in viewer.get("/o/alpha/reviews/").content.decode()
    assert viewer.post("/o/alpha/reviews/look/", {"review": key}).status_code == 403
    restricted = create_user("restricted@alpha.example", actor="test")
    set_role(restricted, alpha, "finance", clusters=["other"], actor="test")
    client = client_of(restricted)
    assert "XID_9999" not in text_of(client.get("/o/alpha/reviews/"))
    assert client.post("/o/alpha/reviews/look/", {"review": key}).status_code == 404
    mark(member("owner"), alpha)
    with tenant_context(alpha):
        pk = ReviewLook.objects.get().pk
    assert viewer.post(f"/o/alpha/reviews/looks/{pk}/take-back/").status_code == 403
    assert client.post(f"/o/alpha/reviews/looks/{pk}/take-back/").status_code == 404
    assert counted(alpha) == 0


def test_reviews_of_hours_from_before_are_derived_by_themselves(alpha: Any, now_ms: int) -> None:
    """As after an upgrade: hours are stored, their reviews are not."""
    with tenant_context(alpha):
        names = ("node_id", "hour", "subject", "code", "first_slot", "end_slot", "uuid")
        before = list(Review.objects.values_list(*names))
        hours = set(NodeHour.objects.values_list("hour", flat=True))
        Review.objects.all().delete()
        assert backfill_reviews(10) == 0  # nobody said that any lacks
        ReviewBackfill.objects.create(before_hour=max(hours) + 1)
        read = 0
        for _ in range(len(hours) + 1):  # no time at all is an hour at a time, and it goes on where it was
            read += backfill_reviews(0)
        assert read == NodeHour.objects.count()
        assert list(Review.objects.values_list(*names)) == before
        assert not ReviewBackfill.objects.exists()
