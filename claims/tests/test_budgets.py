"""A contract's month is watched while it runs: people hear before a step is crossed and when it is, each once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from django.utils import timezone

from claims.budgets import end_budgets, tell_of_budget, watch_budgets
from claims.domain.budget import budgets
from claims.domain.contract import Tier
from claims.inputs import gather, running_month
from claims.models import Contract
from claims.services import Actor, add_contract, read_terms
from claims.tasks import anchor_org
from claims.tending import tend_org
from claims.tests.months import DOWN, OCTOBER, fill, terms
from claims.tests.test_tending import open_incident
from fleet.alerts.models import Alert, Channel, Delivery
from fleet.alerts.routing import route_waiting
from fleet.bodies import compress, load_row
from fleet.models import NodeHour

pytestmark = pytest.mark.django_db
AT = datetime(2026, 10, 20, tzinfo=UTC)  # October in Berlin has 2,682,000 s: 13,410 s are the budget of 99.5 %


def contract_with(actor: Actor, slots: int, first: int = 10_000, **changes: str) -> Contract:
    """gpu-017, two of its GPUs down for so many slots."""
    lost = [(first, first + slots, DOWN)]
    fill(faults={"g3": lost, "g6": lost})
    return add_contract(read_terms(terms(**changes)), actor, entitled_from="2026-09-01T00:00:00Z").contract


def go_down(slots: int, first: int) -> None:
    """Two of its GPUs go down for so many slots more."""
    for row in NodeHour.objects.all():
        hour, at = load_row(row.body), OCTOBER.first_slot + first
        if hour.hour * 240 < at + slots and at < hour.hour * 240 + 240:
            for gpu in ("g3", "g6"):
                hour.put(gpu, at, at + slots, DOWN)
            NodeHour.objects.filter(pk=row.pk).update(body=compress(hour.to_bytes()))


def told() -> list[tuple[str, str]]:
    return list(Alert.objects.filter(kind="budget").order_by("pk").values_list("what", "severity"))


def test_the_seconds_left_are_exact_for_every_step(actor: Actor) -> None:
    contract = contract_with(actor, 720)
    gathered = gather(contract, "2026-10", AT)
    document = gathered.document()
    (one,) = budgets(gathered.terms, document)
    assert (one.unit, one.counted_s, one.left_s, one.is_near, one.is_down) == ("gpu-017", 10_800, 2610, True, False)
    for belows in (("99.9", "99.5"), ("99.99", "99.95", "99"), ("99.597315",), ("99.597316",), ("1",)):
        tiers = tuple(Tier(Decimal(below), Decimal(number + 1)) for number, below in enumerate(belows))
        changed = replace(gathered.terms, tiers=tiers)
        (one,) = budgets(changed, document)
        assert len(one.crossed) == changed.tier_credit(1 - Fraction(10_800, 2_682_000))
        if one.ahead is not None:
            for more, extra in ((one.left_s, 0), (one.left_s + 1, 1)):
                credit = changed.tier_credit(1 - Fraction(10_800 + more, 2_682_000))
                assert credit == len(one.crossed) + extra, (belows, more)


def test_a_step_is_told_once_when_it_nears_and_once_when_it_is_crossed(actor: Actor) -> None:
    contract = contract_with(actor, 500)
    tend_org(actor.org, AT)
    assert told() == []  # 7,500 s of 13,410
    go_down(220, 10_500)
    for _ in range(2):
        tend_org(actor.org, AT)
        assert told() == [("opened", "warning")]
    near = Alert.objects.get(kind="budget")
    assert near.key == f"budget-{contract.pk}-2026-10"
    assert near.title == "gpu-017 may fall below 99.5 %: 43 min 30 s left, Bare metal H100, October 2026"
    assert "10 % of the fee" in near.text
    (unit,) = near.facts["units"]
    assert (unit["next_below"], unit["seconds_left"], unit["crossed_below"]) == ("99.5", 2610, None)
    go_down(200, 10_720)
    for _ in range(2):
        tend_org(actor.org, AT)
        assert told() == [("opened", "warning"), ("worsened", "critical")]
    crossed = Alert.objects.filter(kind="budget").latest("pk")
    assert crossed.title == "gpu-017 fell below 99.5 %, Bare metal H100, October 2026"
    end_budgets(AT)
    assert len(told()) == 2
    end_budgets(AT + timedelta(days=20))
    end_budgets(AT + timedelta(days=20))
    assert told()[2:] == [("resolved", "info")]


def test_figures_that_sway_around_a_mark_tell_nothing_twice(actor: Actor) -> None:
    contract = contract_with(actor, 720)
    gathered = gather(contract, "2026-10", AT)

    def tell_at(slots: int) -> bool:
        document = gathered.document()
        (unit,) = document["projection"]["result"]["units"]
        unit["readings"]["lower"]["down_seconds"] = str(slots * 15)
        return tell_of_budget(contract, "2026-10", document, AT)

    assert [tell_at(slots) for slots in (720, 600, 720, 900, 880, 900)] == [True, False, False, True, False, False]
    assert told() == [("opened", "warning"), ("worsened", "critical")]
    assert tell_at(100)  # taken back by a re-fold
    assert told()[-1] == ("resolved", "info")
    assert [tell_at(slots) for slots in (100, 720, 900)] == [False, False, False]
    assert tell_at(1800)  # below 99 % from 1,788 slots on: a step of its own
    assert told()[-1] == ("opened", "critical")


def test_who_is_down_now_is_told_before_the_next_draft_could_be_too_late(
    actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = int(AT.timestamp()) // 15 - OCTOBER.first_slot
    contract_with(actor, 40, first=first - 40, tiers='[["99.9", "10"]]')
    tend_org(actor.org, AT)  # 600 s of 2,682: little, but at this rate it is crossed within the hour
    assert told() == [("opened", "warning")]
    assert "down now" in Alert.objects.get(kind="budget").text
    go_down(200, first)
    assert watch_budgets(AT + timedelta(minutes=50)) == 0  # nothing is open
    open_incident(contract_node())
    monkeypatch.setattr(timezone, "now", lambda: AT + timedelta(minutes=50))
    anchor_org(actor.org.pk)  # every five minutes
    assert told() == [("opened", "warning"), ("worsened", "critical")]


def contract_node() -> Any:
    return NodeHour.objects.first().node


def test_an_incomplete_contract_is_not_watched(actor: Actor) -> None:
    gathered = gather(contract_with(actor, 720, fee_charged=""), "2026-10", AT)
    assert gathered.document()["assessment"]["status"] == "incomplete"
    assert budgets(gathered.terms, gathered.document()) == []


def test_pro_rata_has_its_commitment_as_the_only_step(actor: Actor) -> None:
    contract = contract_with(
        actor, 720, kind='"pro_rata"', tiers="", fee_charged='"7196.00"\ncommitment = "99.5"\nallowance = "threshold"'
    )
    gathered = gather(contract, "2026-10", AT)
    (one,) = budgets(gathered.terms, gathered.document())
    assert one.ahead is not None
    assert (one.ahead.below, one.left_s, one.is_near) == ("99.5", 2610, True)


def test_the_running_month_is_that_of_the_contracts_zone_and_day(actor: Actor) -> None:
    contract = contract_with(actor, 720)
    late = datetime(2026, 10, 31, 23, 30, tzinfo=UTC)  # half past midnight of November in Berlin
    assert running_month(contract, late) == "2026-11"
    text = terms(zone='"Europe/Berlin"\nperiod_kind = "billing_cycle"\nanchor_day = 15', name='"Cycle"')
    cycle = add_contract(read_terms(text), actor, entitled_from="2026-09-01T00:00:00Z").contract
    assert running_month(cycle, datetime(2026, 10, 14, 12, tzinfo=UTC)) == "2026-09"
    assert running_month(cycle, datetime(2026, 10, 16, 12, tzinfo=UTC)) == "2026-10"


def test_a_budget_alert_reaches_the_channels_that_want_it(actor: Actor) -> None:
    both = [Channel(name=name, kind="webhook", kinds=kinds, target="a", created_by="x")
            for name, kinds in (("all", []), ("faults", ["incident"]))]  # fmt: skip
    Channel.objects.bulk_create(both)
    contract_with(actor, 720)
    tend_org(actor.org, AT)
    route_waiting(actor.org, AT)
    (delivery,) = Delivery.objects.filter(thread__kind="budget")
    assert (delivery.channel.name, delivery.what) == ("all", "opened")
    assert delivery.message["url"].endswith(f"/o/alpha/sla/{Contract.objects.get().pk}/")
