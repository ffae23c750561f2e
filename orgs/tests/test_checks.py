"""The start-up checks of the database: pooling, the role, Citus."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.checks import Tags
from django.core.checks.registry import registry

from goodput_site.exposure import Exposure
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


@pytest.mark.django_db
def test_our_own_role_is_no_superuser() -> None:
    """The launcher and the tests make one that owns its database and no more."""
    assert not checks.is_superuser()
    assert checks.role_is_no_superuser(databases=["default"]) == []


@pytest.mark.django_db
@pytest.mark.parametrize(("exposure", "found"), [("local", "orgs.W002"), ("lan", "orgs.E002"), ("public", "orgs.E002")])
def test_a_superuser_is_refused_where_others_may_come_in(
    exposure: str, found: str, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setattr(checks, "is_superuser", lambda: True)
    settings.GOODPUT_EXPOSE = Exposure(exposure)
    (only,) = checks.role_is_no_superuser(databases=["default"])
    assert only.id == found
    assert only.is_serious() is (exposure != "local")
    assert "own_database" in only.msg


@pytest.mark.django_db
def test_citus_that_is_not_there_is_refused(settings: Any) -> None:
    assert checks.citus_is_there(databases=["default"]) == []
    settings.GOODPUT_CITUS = True
    assert [one.id for one in checks.citus_is_there(databases=["default"])] == ["orgs.E003"]


@pytest.mark.django_db
def test_prepare_asks_all_of_them() -> None:
    found = {check.__name__ for check in registry.registered_checks if Tags.database in check.tags}
    assert {"pooling_is_per_session", "role_is_no_superuser", "citus_is_there"} <= found
