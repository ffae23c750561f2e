"""The API: who may read what, and in which form refusals come."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.folding import fold_waiting
from fleet.ingest import receive
from fleet.tests.bodies import packed
from fleet.tests.test_folding import key_for

pytestmark = pytest.mark.django_db


def get(path: str, token: str | None = None, **headers: Any) -> Any:
    """GET as a program does."""
    if token:
        headers["HTTP_AUTHORIZATION"] = f"Bearer {token}"
    return Client().get(path, HTTP_HOST="localhost", **headers)


@pytest.fixture
def filled(alpha: Any) -> Any:
    """Alpha with a node in each of two clusters."""
    with tenant_context(alpha):
        receive(packed(cluster_id="north", node_id="north-1")[0], key_for(alpha), {})
        receive(packed(cluster_id="south", node_id="south-1")[0], key_for(alpha), {})
        fold_waiting(timezone.now())
    return alpha


def test_fleet_shows_the_keys_org_and_nothing_else(filled: Any, beta: Any, key_of: Any) -> None:
    assert b"north-1" in get("/v1/fleet", key_of(filled, "read")).content
    other = get("/v1/fleet", key_of(beta, "read"))
    assert other.status_code == 200
    assert b"north" not in other.content


def test_a_key_of_one_cluster_sees_that_cluster_only(filled: Any, key_of: Any) -> None:
    token = key_of(filled, "read", cluster="north")
    fleet = get("/v1/fleet", token)
    assert b"north-1" in fleet.content
    assert b"south" not in fleet.content
    assert [cluster["name"] for cluster in get("/v1/clusters", token).json()["results"]] == ["north"]
    assert {batch["cluster"] for batch in get("/v1/batches", token).json()["results"]} == {"north"}


@pytest.mark.parametrize("path", ["/v1/fleet", "/v1/fleet/nodes", "/v1/clusters", "/v1/batches"])
def test_outsiders_and_wrong_scopes_get_problem_documents(filled: Any, key_of: Any, lan: Any, path: str) -> None:
    for response, status, code in (
        (get(path), 401, "missing_key"),
        (get(path, "gp_nobody"), 401, "invalid_key"),
        (get(path, key_of(filled, "ingest")), 403, "missing_scope"),
    ):
        assert response.status_code == status
        assert response["Content-Type"] == "application/problem+json"
        assert response.json()["code"] == code


def test_lists_page_by_cursor(filled: Any, key_of: Any) -> None:
    token = key_of(filled, "read")
    first = get("/v1/batches?page_size=1", token).json()
    assert len(first["results"]) == 1
    second = get(first["next"].removeprefix("http://localhost"), token).json()
    assert len(second["results"]) == 1
    assert second["results"] != first["results"]
    assert second["next"] is None


def test_a_bad_parameter_names_its_field(filled: Any, key_of: Any) -> None:
    response = get("/v1/fleet?period=yesterday", key_of(filled, "read"))
    assert response.status_code == 422
    assert "period" in response.json()["errors"]


def test_a_member_reads_by_session_and_an_outsider_does_not(
    filled: Any, beta: Any, ada: Any, bo: Any, client_of: Any, lan: Any
) -> None:
    assert b"north-1" in client_of(ada).get("/v1/fleet").content
    assert b"north-1" not in client_of(bo).get("/v1/fleet").content
    assert client_of(bo).get("/v1/fleet?org=alpha").status_code == 404


def test_unknown_paths_are_problem_documents(alpha: Any) -> None:
    response = get("/v1/nothing")
    assert response.status_code == 404
    assert response.json()["code"] == "not_found"


def test_the_schema_is_openapi_31_and_names_every_route() -> None:
    schema = get("/v1/openapi.json").json()
    assert schema["openapi"].startswith("3.1")
    assert {"/v1/fleet", "/v1/clusters", "/v1/batches"} <= set(schema["paths"])
    assert set(schema["paths"]["/v1/batches"]) == {"get", "post"}


def test_the_schema_is_made_once_and_sent_to_who_has_an_older_one(monkeypatch: pytest.MonkeyPatch) -> None:
    first = get("/v1/openapi.json")
    monkeypatch.setattr("drf_spectacular.generators.SchemaGenerator.get_schema", None)
    assert get("/v1/openapi.json").content == first.content
    known = Client(HTTP_HOST="localhost", HTTP_IF_NONE_MATCH=first["ETag"]).get("/v1/openapi.json")
    assert (known.status_code, known.content) == (304, b"")


def test_a_broken_view_answers_a_problem_document(alpha: Any, key_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr("fleet.api_fleet.fleet_summary", broken)
    client = Client(raise_request_exception=False)
    response = client.get("/v1/fleet", HTTP_HOST="localhost", HTTP_AUTHORIZATION=f"Bearer {key_of(alpha, 'read')}")
    assert response.status_code == 500
    assert response.json()["code"] == "internal_error"
    assert b"secret" not in response.content
