"""The rate limit of reads: counted per key, told in headers, and never a reason to refuse when it can't be counted."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.core.cache import caches

from fleet import api_throttle
from fleet.tests.api.conftest import get

pytestmark = pytest.mark.django_db


@pytest.fixture
def one_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the windows stands still, eighteen seconds into one."""
    monkeypatch.setattr(api_throttle.time, "time", lambda: 1_796_000_058.0)


def test_each_answer_says_what_is_left(alpha: Any, key_of: Any, one_minute: None) -> None:
    token = key_of(alpha, "read")
    first, second = get("/v1/nodes", token), get("/v1/rules", token)
    assert first["RateLimit-Limit"] == str(api_throttle.READS_PER_MINUTE)
    assert int(second["RateLimit-Remaining"]) == int(first["RateLimit-Remaining"]) - 1
    assert 1 <= int(first["RateLimit-Reset"]) <= 60


def test_too_many_reads_of_a_key_are_a_429_and_another_key_goes_on(
    alpha: Any, key_of: Any, monkeypatch: pytest.MonkeyPatch, one_minute: None
) -> None:
    monkeypatch.setattr(api_throttle, "READS_PER_MINUTE", 2)
    token = key_of(alpha, "read")
    assert [get("/v1/nodes", token).status_code for _ in range(3)] == [200, 200, 429]
    refused = get("/v1/nodes", token)
    assert refused["Content-Type"] == "application/problem+json"
    assert refused.json()["code"] == "throttled"
    assert 1 <= int(refused["Retry-After"]) <= 61
    assert refused["RateLimit-Remaining"] == "0"
    assert get("/v1/nodes", key_of(alpha, "read")).status_code == 200


def test_a_lost_cache_refuses_nobody_and_is_logged_once(
    alpha: Any, key_of: Any, settings: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.CACHES = {"default": {**settings.CACHES["default"], "LOCATION": "redis://127.0.0.1:1/0"}}
    assert caches["default"]
    monkeypatch.setattr(api_throttle, "_told_at", [-api_throttle.TELL_EVERY_S])
    token = key_of(alpha, "read")
    with caplog.at_level(logging.WARNING, "fleet.api_throttle"):
        answers = [get("/v1/nodes", token) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200] * 3
    assert "RateLimit-Limit" not in answers[0]
    assert len([r for r in caplog.records if r.name == "fleet.api_throttle"]) == 1
