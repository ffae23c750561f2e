"""A node's month is made of its hours once; of a running month only what is new is read, and the bytes are the same."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models import F

from claims.models import NodeMonth
from claims.node_months import load_month
from claims.services import Actor
from claims.tests.months import DOWN, OCTOBER, fill
from fleet.bodies import compress, load_row
from fleet.domain.slots import HOUR_MS
from fleet.models import NodeHour

pytestmark = pytest.mark.django_db
FAULTS = {"g3": [(10_000, 40_960, DOWN), (96_000, 96_100, DOWN)]}


def made(node: Any) -> NodeMonth:
    return load_month([node.pk], "2026-10")[node.pk]


def fresh(node: Any) -> str:
    """The digest as made from all hours."""
    NodeMonth.objects.all().delete()
    return made(node).digest


@pytest.mark.parametrize("cut", [3, 41, 42, 100, 170, 171, 400, 401])
def test_what_is_added_to_a_running_month_gives_the_same_bytes(actor: Actor, cut: int) -> None:
    node = fill(faults=FAULTS)
    first = OCTOBER.start_ms // HOUR_MS
    later = list(NodeHour.objects.filter(node=node, hour__gte=first + cut))
    NodeHour.objects.filter(node=node, hour__gte=first + cut).delete()
    NodeHour.objects.filter(node=node, hour__lt=first + cut - 1).update(is_final=True)
    before = made(node)
    NodeHour.objects.bulk_create(later)
    after = made(node)
    assert after.pk == before.pk
    assert after.digest == fresh(node)
    assert made(node).source == after.source


def test_a_refolded_final_hour_is_read_again(actor: Actor) -> None:
    node = fill(faults=FAULTS)
    NodeHour.objects.update(is_final=True)
    before = made(node).digest
    hour = NodeHour.objects.filter(node=node, hour=OCTOBER.start_ms // HOUR_MS + 5).get()
    row = load_row(hour.body)
    row.put("g1", hour.hour * 240, hour.hour * 240 + 10, DOWN)
    NodeHour.objects.filter(node=node, hour=hour.hour).update(body=compress(row.to_bytes()), gpus=F("gpus"))
    after = made(node).digest
    assert after != before
    assert after == fresh(node)
