"""The start-up check of the connection's pooling."""

from __future__ import annotations

import pytest

from orgs import checks


@pytest.mark.django_db
def test_a_direct_connection_passes() -> None:
    first, second = checks.backends_of_two_connections()
    assert first != second
    assert checks.pooling_is_per_session(databases=["default"]) == []


@pytest.mark.django_db
def test_two_connections_with_one_backend_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "backends_of_two_connections", lambda: (7, 7))
    found = checks.pooling_is_per_session(databases=["default"])
    assert [one.id for one in found] == ["orgs.E001"]
    assert "pool_mode = session" in found[0].msg


def test_without_a_database_nothing_is_asked() -> None:
    assert checks.pooling_is_per_session() == []
