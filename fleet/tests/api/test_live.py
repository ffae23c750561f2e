"""Nodes and GPUs now: who sees what, pages, filters, forms, caching."""

from __future__ import annotations

import csv
import io
import time
from typing import Any

import pytest

from fleet.tests.api.conftest import HOSTILE, HOUR_MS, at, fill, get, start_ms

pytestmark = pytest.mark.django_db
A_DAY = f"from={at(start_ms() - HOUR_MS)}&to={at(start_ms() + HOUR_MS)}"
LISTS = ("nodes", "gpus", "events", "incidents", "availability", "rules", "clusters", "batches", "governance/nodes")


def rows_of(response: Any) -> list[dict[str, str]]:
    """The lines of a CSV answer by column."""
    assert response["Content-Type"] == "text/csv; charset=utf-8"
    return list(csv.DictReader(io.StringIO(response.content.decode())))


def test_a_node_says_what_it_is(read: Any, north_id: int) -> None:
    node = read(f"/v1/nodes/{north_id}").json()
    assert (node["name"], node["cluster"], node["gpus"]["total"]) == ("north-1", "north", 2)
    assert [gpu["uuid"] for gpu in node["gpu_list"]] == ["GPU-north-1-0", "GPU-north-1-1"]
    assert read(f"/v1/gpus/{north_id}/1").json() == node["gpu_list"][1]


@pytest.mark.parametrize(
    "path",
    [
        "nodes/999999",
        "nodes/99999999999999999999999",
        "gpus/999999/0",
        "gpus/999999/0/slots",
        "gpus/999999/0/hours",
        "gpus/999999/0/explain",
        "incidents/999999",
        "incidents/99999999999999999999999",
        "events?node_id=999999",
        "batches/" + "0" * 64,
        "batches/nonsense",
        f"batches/{'0' * 64}/body",
        "rules/NO_SUCH",
    ],
)
def test_what_is_not_there_is_a_404_problem(ask: Any, path: str) -> None:
    response = ask(f"/v1/{path}")
    assert response.status_code == 404
    assert response["Content-Type"] == "application/problem+json"
    assert response.json()["code"] == "not_found"


def test_an_index_beyond_the_node_is_a_404(read: Any, north_id: int) -> None:
    for path in ("", "/slots", "/hours", "/explain"):
        assert read(f"/v1/gpus/{north_id}/2{path}").status_code == 404


@pytest.mark.parametrize("name", LISTS)
def test_without_or_with_a_wrong_key_nothing_is_read(alpha: Any, lan: Any, key_of: Any, name: str) -> None:
    for token, status, code in (
        (None, 401, "missing_key"),
        ("gp_nobody", 401, "invalid_key"),
        (key_of(alpha, "ingest"), 403, "missing_scope"),
    ):
        for form in ("", ".csv", ".json"):
            response = get(f"/v1/{name}{form}", token)
            assert (response.status_code, response.json()["code"]) == (status, code)
            assert response["Content-Type"] == "application/problem+json"


def test_an_outsider_sees_nothing_of_it(filled: Any, beta: Any, key_of: Any, north_id: int, incident_id: int) -> None:
    token = key_of(beta, "read")
    for name in LISTS:
        assert b"north" not in get(f"/v1/{name}", token).content
    for path in (f"nodes/{north_id}", f"gpus/{north_id}/0/slots", f"incidents/{incident_id}"):
        assert get(f"/v1/{path}", token).status_code == 404
    assert b"north" not in get("/metrics", token).content


def test_a_key_of_one_cluster_sees_nothing_of_another(
    filled: Any, key_of: Any, north_id: int, incident_id: int
) -> None:
    token = key_of(filled, "read", cluster="south")
    batch = get("/v1/batches", key_of(filled, "read", cluster="north")).json()["results"][0]["sha256"]
    for name in (*LISTS, "availability?group=gpu", "availability?cluster=north", "nodes?cluster=north"):
        assert b"north" not in get(f"/v1/{name}", token).content, name
    for path in (
        f"nodes/{north_id}",
        f"gpus/{north_id}/0",
        f"gpus/{north_id}/0/slots",
        f"gpus/{north_id}/0/hours",
        f"gpus/{north_id}/0/explain",
        f"events?node_id={north_id}",
        f"incidents/{incident_id}",
        f"batches/{batch}",
        f"batches/{batch}/body",
    ):
        assert get(f"/v1/{path}", token).status_code == 404, path
    assert b"north" not in get("/metrics", token).content
    total = get(f"/v1/availability?{A_DAY}", token).json()["total"]
    south = get(f"/v1/availability?{A_DAY}&cluster=south", key_of(filled, "read")).json()["total"]
    assert total["known_seconds"] > 0
    assert total == south


def test_lists_page_by_cursor_without_loss_or_repetition(read: Any) -> None:
    for name in ("nodes", "gpus"):
        everything = read(f"/v1/{name}").json()["results"]
        found: list[Any] = []
        path = f"/v1/{name}?page_size=1"
        while path:
            response = read(path)
            page = response.json()
            assert len(page["results"]) == 1
            found += page["results"]
            path = page["next"] and page["next"].removeprefix("http://localhost")
            assert ("Link" in response) == bool(path)
        assert found == everything
        assert len(found) == {"nodes": 2, "gpus": 4}[name]


def test_filters_narrow_lists(read: Any) -> None:
    assert [node["name"] for node in read("/v1/nodes?cluster=south").json()["results"]] == [HOSTILE]
    assert [node["name"] for node in read("/v1/nodes?node=north-1").json()["results"]] == ["north-1"]
    assert read("/v1/gpus?state=down").json()["results"] == []
    states = [gpu["state"] for gpu in read("/v1/gpus?cluster=south&state=unknown").json()["results"]]
    assert states == ["unknown", "unknown"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("nodes?state=fine", "state"),
        ("nodes?cursor=nonsense!", "cursor"),
        ("nodes?cursor=MQ.Mg", "cursor"),
        ("nodes?cursor=%FF%00", "cursor"),
        ("nodes?page_size=0", "page_size"),
        ("nodes?page_size=1e9", "page_size"),
        ("nodes?clusters=north", "clusters"),
        ("nodes?cluster=%00", "cluster"),
        ("gpus?cursor=MQ", "cursor"),
        ("batches?cursor=nonsense", "cursor"),
        ("batches?cursor=cD1ub25zZW5zZQ%3D%3D", "cursor"),
        ("batches?cursor=cD1h", "cursor"),
        ("batches?node=north-1", "node"),
        ("clusters?cursor=cD1h", "cursor"),
        ("fleet?periode=7d", "periode"),
        ("incidents?party=nobody", "party"),
        ("incidents?open=maybe", "open"),
        ("incidents?since=yesterday", "since"),
        ("incidents?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z", "since"),
        ("incidents?until=9999-12-31T23:59:59Z", "until"),
        ("events?node_id=-1", "node_id"),
        ("availability?group=rack", "group"),
        ("rules?version=..", "version"),
        ("rules?version=2020-01-01", "version"),
    ],
)
def test_a_bad_parameter_is_a_422_that_names_it(ask: Any, query: str, field: str) -> None:
    response = ask(f"/v1/{query}")
    assert response.status_code == 422
    assert response["Content-Type"] == "application/problem+json"
    assert list(response.json()["errors"]) == [field]


def test_csv_and_json_by_suffix_and_by_accept(read: Any) -> None:
    for name in LISTS:
        query = f"?{A_DAY}" if name in ("events", "availability") else ""
        by_suffix, by_accept = read(f"/v1/{name}.csv{query}"), read(f"/v1/{name}{query}", HTTP_ACCEPT="text/csv")
        assert by_suffix.content == by_accept.content
        lines = rows_of(by_suffix)
        results = read(f"/v1/{name}.json{query}").json()["results"]
        assert len(lines) == len(results) > 0, name
        assert read(f"/v1/{name}{query}").json()["results"] == results
        for line, result in zip(lines, results, strict=True):
            for column, cell in line.items():
                value = result.get(column)
                if isinstance(value, (str, int)) and not isinstance(value, bool):
                    assert cell.removeprefix("'") == str(value).replace("\n", " "), column


def test_each_csv_column_is_a_field_and_none_is_forgotten(read: Any) -> None:
    from fleet.api_formats import flat

    for name in ("nodes", "gpus", "incidents", "rules", "clusters", "batches", "governance/nodes"):
        first = read(f"/v1/{name}").json()["results"][0]
        header = read(f"/v1/{name}.csv").content.decode().splitlines()[0].split(",")
        maps = {key for key, value in first.items() if isinstance(value, dict)}  # one column for each of its keys
        assert header == [key for key in flat(first) if key not in maps], name


def test_governance_says_what_is_known_and_nothing_more(filled: Any, read: Any) -> None:
    north, south = read("/v1/governance/nodes").json()["results"]
    assert (north["node_id"], north["account"], north["project"]) == ("north-1", "alpha", "north")
    assert south["gpu_count"] == 2
    assert (south["health"], south["in_use"], south["region"]) == (None, None, None)  # silent: neither well nor ill
    fill(filled, "fresh", "fresh-1", with_fault=False, minutes=42, first=int(time.time() * 1000) - 43 * 60_000)
    (fresh,) = read("/v1/governance/nodes?cluster=fresh").json()["results"]
    assert (fresh["health"], fresh["healthy_gpu_count"]) == ("healthy", 2)


def test_batches_of_a_node_and_of_some_hours(read: Any, north_id: int) -> None:
    def nodes(query: str) -> set[str]:
        return {batch["node"] for batch in read(f"/v1/batches?{query}").json()["results"]}

    assert nodes(f"node_id={north_id}") == {"north-1"}
    assert nodes(f"from={at(start_ms() + HOUR_MS)}") == {"north-1"}  # the other one fell silent before
    assert nodes(f"to={at(start_ms() // HOUR_MS * HOUR_MS)}") == set()
    assert nodes(A_DAY) == {"north-1", HOSTILE}


def test_hostile_names_are_inert_in_csv(read: Any) -> None:
    for name in ("nodes", "gpus", "availability?group=gpu"):
        path, _, query = name.partition("?")
        for line in rows_of(read(f"/v1/{path}.csv?{query}")):
            for cell in line.values():
                assert not cell.startswith(("=", "+", "@", "\t", "\r")), cell
    assert any(line["name"] == f"'{HOSTILE}" for line in rows_of(read("/v1/nodes.csv")))


def test_an_answer_that_did_not_change_is_a_304(read: Any, north_id: int) -> None:
    for path in ("nodes", "nodes.csv", f"nodes/{north_id}", f"gpus/{north_id}/0", "incidents", "rules", "rules/XID_79"):
        first = read(f"/v1/{path}")
        again = read(f"/v1/{path}", HTTP_IF_NONE_MATCH=first["ETag"])
        assert (again.status_code, again.content) == (304, b""), path
        assert again["ETag"] == first["ETag"]
        assert read(f"/v1/{path}", HTTP_IF_NONE_MATCH='"other"').status_code == 200


def test_answers_are_for_the_asker_alone(read: Any) -> None:
    response = read("/v1/nodes")
    assert response["Cache-Control"] == "private, no-cache"
    assert {"Accept", "Authorization", "Cookie"} <= {part.strip() for part in response["Vary"].split(",")}


def test_what_cannot_be_given_is_a_406(read: Any) -> None:
    response = read("/v1/nodes", HTTP_ACCEPT="application/pdf")
    assert response.status_code == 406
    assert response["Content-Type"] == "application/problem+json"


def test_a_cursor_of_extreme_places_is_a_page_like_any_other(ask: Any) -> None:
    from fleet.api_params import cursor_for

    for name, parts in (
        ("nodes", 1),
        ("gpus", 2),
        ("incidents", 2),
        ("events", 2),
        ("governance/nodes", 1),
        ("fleet/nodes", 1),
    ):
        for extreme in (0, 10**18 - 1, -(10**18 - 1)):
            assert ask(f"/v1/{name}?cursor={cursor_for(*[extreme] * parts)}").status_code == 200, (name, extreme)
