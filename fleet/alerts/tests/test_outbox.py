"""The way in: a row in the caller's transaction, told once per dedup."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import transaction
from django_tenants.utils import tenant_context

from fleet.alerts.models import Alert
from fleet.alerts.outbox import notify

pytestmark = pytest.mark.django_db
AT = datetime(2026, 11, 30, 9, tzinfo=UTC)


@pytest.fixture
def inside(alpha: Any) -> Iterator[Any]:
    """The test runs inside alpha's schema."""
    with tenant_context(alpha):
        yield alpha


def remind(**more: Any) -> bool:
    """Tell of a deadline."""
    values: dict[str, Any] = {"at": AT, "severity": "warning", "title": "3 days left", **more}
    return notify("deadline", "deadline-claim-7", "reminder", **values)


def test_what_was_told_before_is_not_told_again(inside: Any) -> None:
    assert remind(dedup="3-days")
    assert not remind(dedup="3-days")
    assert remind(dedup="1-day")
    assert remind()
    assert remind()
    assert Alert.objects.count() == 4


def test_it_falls_with_the_transaction_that_it_tells_of(inside: Any) -> None:
    with transaction.atomic():
        remind()
        transaction.set_rollback(True)
    assert not Alert.objects.exists()


def test_unknown_words_are_refused(inside: Any) -> None:
    for wrong in ({"severity": "fatal"}, {"at": datetime(2026, 11, 30)}):  # noqa: DTZ001
        with pytest.raises(ValueError):
            remind(**wrong)
    with pytest.raises(ValueError, match="none of incident"):
        notify("weather", "w", "opened", at=AT, severity="info", title="Rain")


def test_hostile_text_becomes_one_line_without_nul(inside: Any) -> None:
    remind(title="a\r\nBcc: x@y.example\x00 " + "x" * 400)
    assert "\n" not in Alert.objects.get().title
    assert Alert.objects.get().title.startswith("a Bcc: x@y.example xxx")
    assert len(Alert.objects.get().title) == 300
