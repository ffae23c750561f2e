"""How many queries each read takes: fixed numbers, whatever the fleet's size."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from fleet.tests.api.conftest import HOUR_MS, at, fill, start_ms

pytestmark = pytest.mark.django_db


def queries_of(read: Any, path: str) -> int:
    """Statements of one read, without those that find the key and set the schema."""
    with CaptureQueriesContext(
        connection,
    ) as captured:
        assert read(path).status_code == 200
    return sum("orgs_" not in q["sql"] and "search_path" not in q["sql"].lower() for q in captured.captured_queries)


def test_each_read_takes_few_queries_and_no_more_for_more_nodes(
    filled: Any, read: Any, north_id: int, incident_id: int
) -> None:
    read("/v1/nodes")  # the key is known from now on
    batch = read("/v1/batches").json()["results"][0]["sha256"]
    span = f"from={at(start_ms() + 60_000)}&to={at(start_ms() + HOUR_MS)}"
    bounds = {
        "/v1/nodes": 1,
        "/v1/gpus": 1,
        f"/v1/nodes/{north_id}": 1,
        f"/v1/gpus/{north_id}/0": 1,
        f"/v1/gpus/{north_id}/0/slots": 2,
        f"/v1/gpus/{north_id}/0/hours": 2,
        f"/v1/gpus/{north_id}/0/explain": 5,
        f"/v1/events?{span}": 2,
        "/v1/incidents": 1,
        f"/v1/incidents/{incident_id}": 5,  # the last: the nodes that share its fault
        f"/v1/availability?{span}&group=cluster": 4,
        f"/v1/availability?{span}&group=gpu": 4,
        f"/v1/batches/{batch}": 1,
        f"/v1/batches/{batch}/body": 1,
        "/v1/rules": 1,  # the org's own dated changes
        "/metrics": 4,
    }
    taken = {path: queries_of(read, path) for path in bounds}
    assert {path: n for path, n in taken.items() if n > bounds[path]} == {}
    for number in range(3):
        fill(filled, f"more-{number}", f"more-{number}", with_fault=False, minutes=42)
    assert {path: queries_of(read, path) for path in bounds} == taken
