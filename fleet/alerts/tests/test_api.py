"""Alerts under /v1/: as described, without secrets, for whom they are."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from fleet.tests.api.test_schema import check, document
from goodput_site.exposure import Exposure, networks
from orgs.services import create_user, set_role

pytestmark = pytest.mark.django_db
Make = Callable[..., Any]
CHANNELS, LOG = "/v1/alerts/channels", "/v1/alerts/deliveries"
ONE = f"{CHANNELS}/{{channel_id}}"
DOCS = Path(__file__).resolve().parents[3] / "docs" / "alerts.md"


@pytest.fixture
def owner(ada: Any, client_of: Make, lan: Any, settings: Any) -> Any:
    """Ada's session."""
    settings.GOODPUT_ALERT_NETWORKS = networks("auto", Exposure.LOCAL)
    return client_of(ada)


def make(owner: Any, **more: Any) -> Any:
    """The answer to a new webhook."""
    values = {"kind": "webhook", "name": "hook", "url": "http://127.0.0.1:1/PATHSECRET", **more}
    return owner.post(CHANNELS, values, content_type="application/json")


def test_a_channel_is_made_changed_tested_and_removed_as_described(owner: Any) -> None:
    made = make(owner, template='{"text": "{line}"}', kinds=["incident"], hold_seconds=0)
    check(made, CHANNELS, "post")
    assert made.status_code == 201
    body = made.json()
    assert body["signing_secret"].startswith("whsec_")
    assert (body["target"], body["secrets"]) == ("http://127.0.0.1:1", ["url", "signing"])
    path = f"{CHANNELS}/{body['id']}"
    for response, route, method in (
        (owner.get(CHANNELS), CHANNELS, "get"),
        (owner.get(path), ONE, "get"),
        (owner.patch(path, {"name": "other"}, content_type="application/json"), ONE, "patch"),
        (owner.post(f"{path}/test", content_type="application/json"), f"{ONE}/test", "post"),
        (owner.get(LOG), LOG, "get"),
    ):
        assert response.status_code in (200, 202), response.content
        check(response, route, method)
        assert "PATHSECRET" not in response.content.decode()
        assert body["signing_secret"] not in response.content.decode()
    (line,) = owner.get(f"{LOG}?status=waiting&channel_id={body['id']}").json()["results"]
    again = owner.post(f"{LOG}/{line['id']}/again", content_type="application/json")
    check(again, f"{LOG}/{{delivery_id}}/again", "post")
    assert again.status_code == 202
    assert owner.get(f"{LOG}.csv").content.decode().splitlines()[0].startswith("id,uid,channel_id")
    assert owner.delete(path).status_code == 204
    assert owner.get(path).status_code == 404
    assert owner.get(CHANNELS).json()["results"] == []


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"kind": "pigeon"}, "kind"),
        ({"url": "ftp://x.example"}, "url"),
        ({"url": "http://169.254.169.254/"}, "url"),
        ({"url": ""}, "url"),
        ({"routing_key": "R" * 32}, "routing_key"),
        ({"template": "[]"}, "template"),
        ({"hold_seconds": -1}, "hold_seconds"),
        ({"hold_seconds": True}, "hold_seconds"),
        ({"digest_minutes": 1441}, "digest_minutes"),
        ({"kinds": ["weather"]}, "kinds"),
        ({"parties": "infrastructure"}, "parties"),
        ({"least_severity": "fatal"}, "least_severity"),
        ({"name": "\x00"}, "name"),
        ({"name": 7}, "name"),
        ({"clusters": ["x" * 300]}, "clusters"),
        ({"nonsense": 1}, "nonsense"),
        ({"authorization": "Bearer a\r\nX: y"}, "authorization"),
        ({"kind": "email", "url": "", "recipients": []}, "recipients"),
        ({"kind": "email", "url": "", "recipients": ["a@b.example\r\nBcc: c@d.example"]}, "recipients"),
        ({"kind": "pagerduty", "url": ""}, "routing_key"),
        ({"kind": "pagerduty", "routing_key": "R" * 32, "digest_minutes": 15}, "digest_minutes"),
    ],
)
def test_what_can_not_be_is_a_422_with_its_field(owner: Any, more: dict[str, Any], field: str) -> None:
    response = make(owner, **more)
    assert response.status_code == 422, response.content
    assert list(response.json()["errors"]) == [field]


def test_keys_read_and_write_nothing(owner: Any, alpha: Any, key_of: Make) -> None:
    made = make(owner).json()
    admin = Client(HTTP_HOST="localhost", HTTP_AUTHORIZATION=f"Bearer {key_of(alpha, 'admin-read')}")
    plain = Client(HTTP_HOST="localhost", HTTP_AUTHORIZATION=f"Bearer {key_of(alpha, 'read')}")
    narrow = key_of(alpha, "admin-read", cluster="main")
    bound = Client(HTTP_HOST="localhost", HTTP_AUTHORIZATION=f"Bearer {narrow}")
    assert admin.get(CHANNELS).json()["results"][0]["name"] == "hook"
    assert plain.get(CHANNELS).status_code == 403
    assert bound.get(LOG).status_code == 403
    path = f"{CHANNELS}/{made['id']}"
    for refused in (
        admin.post(CHANNELS, {}, content_type="application/json"),
        admin.patch(path, {}, content_type="application/json"),
        admin.delete(path),
        admin.post(f"{path}/test", content_type="application/json"),
    ):
        assert (refused.status_code, refused.json()["code"]) == (403, "session_needed")


def test_finance_reads_and_writes_nothing_and_a_stranger_sees_nothing(
    owner: Any, alpha: Any, bo: Any, client_of: Make
) -> None:
    made = make(owner).json()
    finance = create_user("fin@alpha.example", actor="test")
    set_role(finance, alpha, "finance", actor="test")
    path = f"{CHANNELS}/{made['id']}"
    assert client_of(finance).get(path).status_code == 200
    assert client_of(finance).post(f"{path}/test", content_type="application/json").status_code == 403
    assert client_of(bo).get(path).status_code == 404


def test_every_route_is_documented() -> None:
    routes = {
        f"{method.upper()} {path}"
        for path, methods in document()["paths"].items()
        for method in methods
        if path.startswith("/v1/alerts/")
    }
    assert len(routes) == 9
    assert set(re.findall(r"^\| `((?:GET|POST|PATCH|DELETE) /v1/\S+)` \|", DOCS.read_text(), re.MULTILINE)) == routes
