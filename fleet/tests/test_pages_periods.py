"""Periods in the URL: a month, any days, what is refused, and that a past window counts what lies in it only."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.models import Node, NodeHour
from fleet.reading import BadPeriod, DaySpan, Period, period_of
from fleet.selectors import get_fleet
from fleet.tests.test_pages import fill, text_of
from fleet.tests.test_pages_days import live_through

NOW = datetime(2026, 11, 30, 7, 30, tzinfo=UTC)


def test_a_month_is_its_days_up_to_now() -> None:
    november = period_of("2026-11", NOW)
    assert isinstance(november, DaySpan)
    assert (str(november.first), str(november.last), november.is_past) == ("2026-11-01", "2026-11-30", False)
    window = november.window(NOW)
    assert window.now_slot * 15 == int(NOW.timestamp())
    assert (window.last_hour - window.first_hour) == 29 * 24 + 7


def test_days_that_are_over_end_where_they_end() -> None:
    span = period_of("2026-11-03..2026-11-04", NOW)
    window = span.window(NOW)
    assert span.is_past
    assert window.now_slot * 15 == int(datetime(2026, 11, 5, tzinfo=UTC).timestamp())
    assert window.last_hour - window.first_hour + 1 == span.hours == 48


@pytest.mark.parametrize("text", [None, "", "nonsense", "24h"])
def test_a_word_that_is_no_period_is_24_h(text: str | None) -> None:
    assert period_of(text, NOW) is Period.DAY


@pytest.mark.parametrize(
    "text",
    [
        "2026-13",
        "0000-01",
        "9999-12",
        "2026-12",
        "2026-02-30..2026-03-01",
        "2026-11-09..2026-11-03",
        "2026-09-01..2026-11-01",
        "2026-11-03..",
        "..2026-11-03",
        "2026-11-3..2026-11-9",
        "1999-01-01..1999-01-02",
    ],
)
def test_bad_days_are_refused(text: str) -> None:
    with pytest.raises(BadPeriod, match="period:"):
        period_of(text, NOW)


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["", "fleet.csv", "fleet.json", "nodes/{id}/", "nodes/{id}/node.csv"])
def test_a_bad_period_is_said_to_be_one_and_a_form_becomes_a_url(
    path: str, alpha: Any, ada: Any, client_of: Any
) -> None:
    fill(alpha, nodes=1, minutes=3)
    with tenant_context(alpha):
        url = f"/o/alpha/{path.format(id=Node.objects.get().pk)}"
    client = client_of(ada)
    refused = client.get(f"{url}?period=2020-01-01..2020-12-31")
    assert refused.status_code == 422
    assert "period: at most 31 days" in text_of(refused)
    moved = client.get(f"{url}?from=2026-11-03&to=2026-11-09&cluster=sim&page=2")
    assert moved["Location"] == f"{url}?cluster=sim&period=2026-11-03..2026-11-09"


@pytest.mark.django_db
def test_a_past_window_holds_its_own_rows_and_its_gaps_are_unknown(alpha: Any) -> None:
    live_through(alpha, 6, down_s=360)
    now = timezone.now()
    day = (now - timedelta(days=3)).date()
    hour = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) // 3600
    with tenant_context(alpha):
        Node.objects.update(first_seen_at=now - timedelta(days=10))
        NodeHour.objects.filter(hour=hour + 23).delete()
        found = get_fleet(now, period_of(f"{day}..{day}", now))
    assert found.sums.known == 23 * 8 * 3600
    assert found.sums.unknown == 8 * 3600
    assert found.sums.down == 23 * 360
