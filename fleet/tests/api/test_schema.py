"""The OpenAPI document is true: every answer has its shape, and docs/api.md names every route and parameter."""

from __future__ import annotations

import json
import re
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from django.core.management import call_command
from django_tenants.utils import tenant_context
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from fleet.api_dated import KINDS
from fleet.tests.api.conftest import HOUR_MS, at, start_ms

pytestmark = pytest.mark.django_db
DOCS = Path(__file__).resolve().parents[3] / "docs" / "api.md"
NODE = "/v1/nodes/{node_id}"
GPU = "/v1/gpus/{node_id}/{index}"


@cache
def document() -> dict[str, Any]:
    """The OpenAPI document, valid and made without a warning."""
    out = StringIO()
    call_command("spectacular", "--validate", "--fail-on-warn", "--format", "openapi-json", stdout=out)
    made: dict[str, Any] = json.loads(out.getvalue())
    return made


def validator(schema: Any) -> Draft202012Validator:
    """A validator that knows the document's components; a field that is not named there is a mistake too."""
    components = {name: strict(each) for name, each in document()["components"]["schemas"].items()}
    return Draft202012Validator({**schema, "components": {"schemas": components}})


def strict(schema: Any) -> Any:
    """The same, refusing properties that it does not name."""
    if isinstance(schema, dict):
        out = {name: strict(each) for name, each in schema.items()}
        if "properties" in schema and "additionalProperties" not in schema:
            out["additionalProperties"] = False
        return out
    return [strict(each) for each in schema] if isinstance(schema, list) else schema


def answer_schema(path: str, method: str, status: int, media: str) -> Any:
    """What the document says of this answer; KeyError when it says nothing."""
    return document()["paths"][path][method]["responses"][str(status)]["content"][media]["schema"]


def check(response: Any, path: str, method: str = "get") -> None:
    """Fail unless the document describes this answer."""
    media = response["Content-Type"].partition(";")[0]
    schema = answer_schema(path, method, response.status_code, media)
    if media.endswith("json"):
        errors = [error.message for error in validator(schema).iter_errors(response.json())]
        assert errors == [], path


def test_the_document_is_valid_and_without_a_warning() -> None:
    assert document()["openapi"] == "3.1.0"


def test_every_answer_is_as_described(read: Any, north_id: int, incident_id: int) -> None:
    span = f"from={at(start_ms())}&to={at(start_ms() + HOUR_MS)}"
    batch = read("/v1/batches").json()["results"][0]["sha256"]
    gpu = f"/v1/gpus/{north_id}/1"
    answers = {
        "/v1/nodes": "/v1/nodes?page_size=1",
        NODE: f"/v1/nodes/{north_id}",
        "/v1/governance/nodes": "/v1/governance/nodes",
        "/v1/gpus": "/v1/gpus",
        GPU: gpu,
        f"{GPU}/slots": f"{gpu}/slots?{span}",
        f"{GPU}/hours": f"{gpu}/hours?{span}",
        f"{GPU}/explain": f"{gpu}/explain?at={at(start_ms() + 46 * 60_000)}",
        "/v1/events": f"/v1/events?{span}",
        "/v1/incidents": "/v1/incidents",
        "/v1/incidents/{incident_id}": f"/v1/incidents/{incident_id}",
        "/v1/reviews": "/v1/reviews",
        "/v1/domains": "/v1/domains",
        "/v1/batches": "/v1/batches",
        "/v1/batches/{sha256}": f"/v1/batches/{batch}",
        "/v1/batches/{sha256}/body": f"/v1/batches/{batch}/body",
        "/v1/clusters": "/v1/clusters",
        "/v1/fleet": "/v1/fleet",
        "/v1/fleet/nodes": "/v1/fleet/nodes?period=7d",
        "/v1/agents": "/v1/agents",
        "/v1/rules": "/v1/rules",
        "/v1/rules/{code}": "/v1/rules/XID_79",
        **{f"/v1/settings/{kind.path}": f"/v1/settings/{kind.path}" for kind in KINDS},
    }
    for path, asked in answers.items():
        check(read(asked), path)
    for group in ("cluster", "node", "gpu", "model"):
        check(read(f"/v1/availability?{span}&group={group}"), "/v1/availability")
    for by in ("reason", "model", "node", "device"):
        check(read(f"/v1/statistics?by={by}"), "/v1/statistics")
    ours = {path for path, methods in document()["paths"].items() if "get" in methods and is_ours(path)}
    assert ours - {"/v1/availability", "/v1/statistics"} == set(answers)


def is_ours(path: str) -> bool:
    """Whether this app answers the path."""
    return path.split("/")[2] in {
        *(
            "nodes",
            "gpus",
            "events",
            "incidents",
            "batches",
            "clusters",
            "fleet",
            "rules",
            "availability",
            "statistics",
        ),
        *("governance", "settings", "agents", "enrol", "reviews", "domains"),
    }


def test_enrolment_and_what_people_do_with_it_are_as_described(
    alpha: Any, ada: Any, client_of: Any, key_of: Any, lan: Any
) -> None:
    from fleet.agents.models import AgentKey
    from fleet.agents.tests.support import Installation

    token = key_of(alpha, "enrol")
    check(Installation().enrol(token), "/v1/enrol", "post")
    check(Installation().enrol(token), "/v1/enrol", "post")  # another key for the same identity
    check(Installation().enrol(token, more="x"), "/v1/enrol", "post")
    with tenant_context(alpha):
        row = AgentKey.objects.first()
    assert row is not None
    for what in ("accept", "revoke"):
        check(client_of(ada).post(f"/v1/agents/{row.pk}/{what}"), f"/v1/agents/{{key_id}}/{what}", "post")
        check(client_of(ada).post(f"/v1/agents/999999/{what}"), f"/v1/agents/{{key_id}}/{what}", "post")


def test_writes_are_as_described(alpha: Any, ada: Any, client_of: Any, lan: Any) -> None:
    from fleet.tests.api.test_human_layer import bare_incident

    one, client, path = bare_incident(alpha), client_of(ada), "/v1/incidents/{incident_id}"
    base = f"/v1/incidents/{one.pk}"
    check(client.post(f"{base}/acknowledge", content_type="application/json"), f"{path}/acknowledge", "post")
    check(client.post(f"{base}/notes", {"text": "x"}, content_type="application/json"), f"{path}/notes", "post")
    check(client.post(f"{base}/notes", {"text": 1}, content_type="application/json"), f"{path}/notes", "post")
    check(client.patch(base, {"ticket_number": "T"}, content_type="application/json"), path, "patch")
    check(client.patch(base, {"ticket": "T"}, content_type="application/json"), path, "patch")


WORDS = st.one_of(
    st.sampled_from(["", "0", "1", "-1", "true", "1e3", "2026-11-30T00:00:00Z", "2026-11-30T00:00:00+25:00", "null"]),
    st.sampled_from(["9999-12-31T23:59:59.999999999Z", "0001-01-01T00:00:00+14:00", "\x00", "٣", "%", "é" * 300]),
    st.text(max_size=12),
    st.integers().map(str),
)
PARAMS = (
    *("from", "to", "at", "since", "until", "cursor", "page_size", "state", "cluster", "node", "node_id", "group"),
    *("open", "party", "code", "version", "withdrawn", "period", "format", "nonsense"),
)
PATHS = (
    *("nodes", "nodes.csv", "gpus", "gpus/{n}/0", "gpus/{n}/0/slots", "gpus/{n}/0/hours", "gpus/{n}/0/explain"),
    *("events", "incidents", "availability", "statistics", "rules", "rules/XID_79", "fleet", "batches", "agents"),
)


def test_whatever_is_asked_gets_an_answer_that_the_document_knows(read: Any, north_id: int) -> None:
    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(st.sampled_from(PATHS), st.dictionaries(st.sampled_from(PARAMS), WORDS, max_size=3))
    def ask(path: str, params: dict[str, str]) -> None:
        response = read(f"/v1/{path.format(n=north_id)}?{urlencode(params)}")
        assert response.status_code in (200, 404, 422), (path, params, response.content)
        if response.status_code != 200:
            assert response["Content-Type"] == "application/problem+json"
            assert response.json()["code"]

    ask()


def test_the_page_of_documentation_loads_from_here_alone(client_of: Any) -> None:
    response = client_of(None).get("/v1/docs")
    page = response.content.decode()
    assert response.status_code == 200
    assert "<style" not in page
    assert not re.search(r"<script(?![^>]*\ssrc=)", page)
    assert all(link.startswith("/") for link in re.findall(r'(?:src|href)="([^"]+)"', page))
    policy = response["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "img-src 'self' data:" in policy
    script = next(link for link in re.findall(r'src="([^"]+)"', page) if "script" in link)
    assert client_of(None).get(script.replace("&amp;", "&"))["Content-Type"].startswith("application/javascript")
    assert "img-src 'self' data:" not in client_of(None).get("/login/")["Content-Security-Policy"]


def documented() -> dict[str, str]:
    """`METHOD /path` → its section of docs/api.md."""
    parts = re.split(r"^### `(GET|POST|PATCH) (/\S+)`.*$", DOCS.read_text(), flags=re.MULTILINE)
    return {f"{m} {path}": text for m, path, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True)}


def test_every_route_and_parameter_is_documented_and_no_other() -> None:
    sections = documented()
    routes = {
        f"{method.upper()} {path}": operation
        for path, methods in document()["paths"].items()
        if is_ours(path)
        for method, operation in methods.items()
    }
    assert set(sections) - {"GET /metrics", "GET /v1/openapi.json", "GET /v1/docs"} == set(routes)
    for route, operation in routes.items():
        named = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"} - {"format"}
        written = set(re.findall(r"^\| `(\w+)` \|", sections[route], re.MULTILINE))
        assert written == named, route


def test_every_code_of_a_refusal_is_documented() -> None:
    text = DOCS.read_text()
    codes = set(re.findall(r"^\| \d{3} \| `(\w+)` \|", text, re.MULTILINE))
    for code in (
        *("missing_key", "invalid_key", "expired_key", "revoked_key", "missing_scope", "org_suspended"),
        *("no_such_org", "session_needed", "role_needed", "permission_denied", "not_found", "method_not_allowed"),
        *("not_acceptable", "invalid", "parse_error", "unsupported_media_type", "throttled", "unavailable"),
        "internal_error",
    ):
        assert code in codes, code


def test_every_metric_is_documented() -> None:
    from fleet.metrics_text import METRICS

    assert set(re.findall(r"^\| `(goodput_\w+)` \|", DOCS.read_text(), re.MULTILINE)) == set(METRICS)
