"""A contract and a month for the tests of reports and claims."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django_tenants.utils import tenant_context

from claims.services import Actor, add_contract, add_overlay, read_terms
from claims.tests.months import DOWN, fill, terms
from claims.tests.packs import Made, make

NOW = datetime(2026, 11, 9, 8, tzinfo=UTC)


@pytest.fixture
def actor(alpha: Any) -> Iterator[Actor]:
    """Ada's hand, inside alpha."""
    with tenant_context(alpha):
        yield Actor("ada@alpha.example", alpha)


@pytest.fixture
def contract(actor: Actor) -> Any:
    """A node contract with hardware failures, entitled since September, and an October with two lost GPUs for 4 h."""
    fill(faults={"g3": [(10_000, 10_960, DOWN)], "g6": [(10_000, 10_960, DOWN)]})
    version = add_contract(read_terms(terms()), actor)
    add_overlay(
        actor,
        contract=version.contract,
        kind="entitlement",
        resource="gpu-017",
        starts_at="2026-09-01T00:00:00+02:00",
    )
    return version.contract


@pytest.fixture(scope="session")
def made(django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The pack of the simulated claim, made once for all tests; they don't change it."""
    with django_db_blocker.unblock():
        return make(tmp_path_factory.mktemp("var"))
