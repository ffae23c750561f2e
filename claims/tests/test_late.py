"""What comes after a month was issued is listed with what it would change, and restated with one button."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from claims.late import late_of, list_late
from claims.models import Report
from claims.services import Actor, add_overlay
from claims.services_reports import issue_report
from claims.tests.conftest import NOW
from claims.tests.months import DOWN, OCTOBER
from fleet.bodies import compress, load_row
from fleet.domain.slots import HOUR_MS
from fleet.ingest import receive
from fleet.models import BatchMark, Node, NodeHour
from fleet.partitions import sample_day
from fleet.tests.bodies import packed
from fleet.tests.test_folding import key_for

pytestmark = pytest.mark.django_db
LATER = NOW + timedelta(days=3)


@pytest.fixture
def issued(contract: Any, actor: Actor) -> Report:
    """October, issued."""
    return issue_report(contract, "2026-10", actor, now=NOW)


def arrive(actor: Actor, seq: int, hour: int) -> bytes:
    """A batch of October that is received after the issue."""
    ts = OCTOBER.start_ms + hour * HOUR_MS + 7_500
    body, sha256 = packed(cluster_id="train-a", node_id="gpu-017", seq=seq, agent_id="a1", first_ts=ts)
    receive(body, key_for(actor.org), {})
    with connection.cursor() as cursor:
        cursor.execute("alter table fleet_inbox disable trigger user")
        cursor.execute("update fleet_inbox set received_at = %s where sha256 = %s", [LATER, bytes.fromhex(sha256)])
        cursor.execute("alter table fleet_inbox enable trigger user")
    return bytes.fromhex(sha256)


def lose_more(hours: range) -> None:
    """What the fold of late facts would leave: GPUs 3 and 6 down in these hours of October."""
    for row in NodeHour.objects.filter(hour__in=[OCTOBER.start_ms // HOUR_MS + hour for hour in hours]):
        body = load_row(row.body)
        for gpu in ("g3", "g6"):
            body.put(gpu, row.hour * 240, row.hour * 240 + 240, DOWN)
        NodeHour.objects.filter(pk=row.pk).update(body=compress(body.to_bytes()))


def test_nothing_late_is_nothing_to_list(issued: Report) -> None:
    assert late_of(issued, LATER) is None
    assert list_late(LATER) == []


def test_late_batches_are_counted_and_what_they_change_is_computed(issued: Report, actor: Actor) -> None:
    arrive(actor, 1, 100)
    arrive(actor, 2, 101)
    (found,) = list_late(LATER)
    assert [(one.node, one.batches, one.sealed, one.newest_at) for one in found.nodes] == [("gpu-017", 2, 0, LATER)]
    assert found.difference == {}  # not folded yet
    lose_more(range(100, 110))
    (found,) = list_late(LATER)
    assert found.changed == ("gpu-017",)
    assert found.difference["claim"] == ["719.60", "2158.80"]
    assert found.difference["gpu-017: counted seconds, lower"] == ["14400", str(14400 + 36000)]
    assert found.reason == "2 batches of gpu-017 came after the issue."


def test_batches_of_sealed_hours_are_told_as_in_no_verdict(issued: Report, actor: Actor) -> None:
    sha256 = arrive(actor, 1, 100)
    day = sample_day(OCTOBER.start_ms + 100 * HOUR_MS)
    node = Node.objects.get(name="gpu-017")
    BatchMark.objects.create(sample_day=day, sha256=sha256, node=node, reason="sealed", first_hour=0, last_hour=0)
    found = late_of(issued, LATER)
    assert found is not None
    assert (found.batches, found.sealed) == (1, 1)


def test_a_row_entered_after_the_issue_shows_as_well(issued: Report, actor: Actor, contract: Any) -> None:
    add_overlay(
        actor, contract=contract, kind="maintenance", resource="gpu-017", notice_s=10**6,
        starts_at="2026-10-01T00:00:00Z", ends_at="2026-10-31T00:00:00Z",
    )  # fmt: skip
    lose_more(range(1))
    found = late_of(issued, LATER)
    assert found is not None
    assert found.difference["overlays"] == ["1", "2"]
    assert found.nodes == ()


def test_the_page_and_the_api_say_it_and_the_button_restates(
    issued: Report, actor: Actor, ada: Any, client_of: Any, key_of: Any, alpha: Any
) -> None:
    arrive(actor, 1, 100)
    lose_more(range(100, 110))
    connection.set_schema_to_public()
    client = client_of(ada)
    page = client.get("/o/alpha/reports/late/").content.decode()
    assert "1 batch came after the issue" in page
    assert "2158.80" in page
    assert "Came after the issue" in client.get(f"/o/alpha/reports/{issued.pk}/").content.decode()
    keyed = client_of(None)
    said = keyed.get(f"/v1/reports/{issued.pk}/late", HTTP_AUTHORIZATION=f"Bearer {key_of(alpha, 'read')}").json()
    assert said["difference"]["claim"] == ["719.60", "2158.80"]
    assert [(one["node"], one["batches"]) for one in said["nodes"]] == [("gpu-017", 1)]
