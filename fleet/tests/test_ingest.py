"""Ingest: what is stored, what is answered. Ids in brackets are those of the attack list in docs/tests.md."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django_tenants.utils import schema_context

from agent import wire
from fleet.models import Inbox, Waiting
from fleet.tests.bodies import batch, packed

pytestmark = pytest.mark.django_db
HEADERS = {"HTTP_CONTENT_ENCODING": "gzip", "HTTP_HOST": "localhost"}


def post(body: bytes, token: str | None = None, **headers: Any) -> Any:
    """POST a body as an agent does."""
    if token:
        headers["HTTP_AUTHORIZATION"] = f"Bearer {token}"
    merged = {**HEADERS, **headers}
    return Client().post("/v1/batches", body, content_type="application/msgpack", **merged)


def test_receipt_names_the_hash_and_the_row_holds_the_exact_bytes(alpha: Any, key_of: Any) -> None:
    body, sha256 = packed(seq=1, agent_id="a1")
    response = post(body, key_of(alpha))
    assert response.status_code == 202
    receipt = response.json()
    assert receipt["batch_sha256"] == sha256
    assert receipt["duplicate"] is False
    assert receipt["seq"] == 1
    with schema_context(alpha.schema_name):
        row = Inbox.objects.get()
    assert bytes(row.body) == body
    assert bytes(row.sha256).hex() == sha256
    with schema_context(alpha.schema_name):
        assert Waiting.objects.get().sha256 == row.sha256


def test_same_bytes_again_give_the_same_receipt_and_one_row(alpha: Any, key_of: Any) -> None:
    body, _ = packed()
    token = key_of(alpha)
    first, second = post(body, token).json(), post(body, token).json()
    assert second == {**first, "duplicate": True}
    with schema_context(alpha.schema_name):
        assert Inbox.objects.count() == 1


def test_i27_other_bytes_under_one_seq_are_a_conflict_and_kept_once(alpha: Any, key_of: Any) -> None:
    token = key_of(alpha)
    assert post(packed(agent_id="a1", seq=7)[0], token).status_code == 202
    other = packed(agent_id="a1", seq=7, node_id="n2")[0]
    for _ in range(2):
        response = post(other, token)
        assert response.status_code == 409
        assert response.json()["code"] == "seq_conflict"
    with schema_context(alpha.schema_name):
        assert sorted(Inbox.objects.values_list("is_seq_conflict", flat=True)) == [False, True]


def test_batch_lands_in_the_org_of_the_key_only(alpha: Any, beta: Any, key_of: Any) -> None:
    post(packed()[0], key_of(alpha))
    with schema_context(beta.schema_name):
        assert Inbox.objects.count() == 0


def test_local_mode_takes_batches_without_a_key_and_lan_does_not(local: Any, lan: Any, settings: Any) -> None:
    from goodput_site.exposure import Exposure

    assert post(packed()[0]).status_code == 401
    settings.GOODPUT_EXPOSE = Exposure.LOCAL
    assert post(packed()[0]).status_code == 202


def test_time_is_never_a_reason_to_refuse(alpha: Any, key_of: Any) -> None:
    """[I19] An old batch is kept in its own week, one ahead is marked, an absurd one is kept as unknown time."""
    token = key_of(alpha)
    for first_ts in (1_750_000_000_000, 1_900_000_000_000, 7_500):
        assert post(packed(first_ts=first_ts)[0], token).status_code == 202
    with schema_context(alpha.schema_name):
        rows = {str(row.sample_day): row.has_suspect_clock for row in Inbox.objects.all()}
    assert rows == {"2025-06-15": False, "2030-03-17": True, "1970-01-01": False}


def test_wrong_cluster_wrong_scope_and_wrong_org_are_refused(alpha: Any, key_of: Any) -> None:
    body = packed()[0]
    assert post(body, key_of(alpha, "ingest", cluster="other")).json()["code"] == "other_cluster"
    assert post(body, key_of(alpha, "read")).json()["code"] == "missing_scope"
    assert post(body, "gp_nobody").status_code == 401
    with schema_context(alpha.schema_name):
        assert Inbox.objects.count() == 0


def test_a_refused_batch_leaves_nothing(alpha: Any, key_of: Any) -> None:
    bad = batch()
    bad["intervals"][2]["gpus"][0]["temperature"] = -1
    response = post(wire.pack(bad)[0], key_of(alpha))
    assert response.status_code == 422
    assert response["Content-Type"] == "application/problem+json"
    assert response.json()["permanent"] is True
    assert "intervals[" in response.json()["detail"]
    with schema_context(alpha.schema_name):
        assert Inbox.objects.count() == 0
