"""Enrolment over the API: who may, what it proves, what a token that may only enrol gives and what not."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from django.test import Client
from django_tenants.utils import tenant_context

from agent import wire
from agent.wire import fingerprint
from fleet.agents import services
from fleet.agents.models import AgentKey
from fleet.agents.tests.support import Installation
from fleet.log_key import load_key
from fleet.tests.bodies import packed
from orgs.models import ApiKey, AuditEntry

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("lan")]


def upload(token: str, **more: Any) -> int:
    """The status of a batch under a token."""
    body, _ = packed(**more)
    client = Client(HTTP_HOST="localhost")
    headers = {"HTTP_CONTENT_ENCODING": "gzip", "HTTP_AUTHORIZATION": f"Bearer {token}"}
    return client.post("/v1/batches", body, content_type=wire.CONTENT_TYPE, **headers).status_code


def test_an_ingest_key_enrols_at_first_use_and_gets_no_token(alpha: Any, key_of: Any) -> None:
    one = Installation(hw_id="hw-1")
    token = key_of(alpha, "ingest")
    answer = one.enrol(token)
    assert answer.status_code == 200, answer.content
    assert answer.json() == {
        "agent_id": "a1", "fingerprint": fingerprint(one.public), "state": "active", "token": None,
        "log_key": load_key().verifier(),
    }  # fmt: skip
    assert "no-store" in answer["Cache-Control"]
    assert one.enrol(token, agent_version="0.2.0").json()["state"] == "active"  # the same key again is the same row
    with tenant_context(alpha):
        (row,) = AgentKey.objects.all()
        assert (bytes(row.public_key), row.node, row.hw_id, row.agent_version) == (one.public, "n1", "hw-1", "0.2.0")
    (entry,) = AuditEntry.objects.filter(action="agent.enrolled")
    assert (entry.org_slug, entry.after["key"]) == ("alpha", fingerprint(one.public))


def test_a_bootstrap_token_enrols_many_nodes_and_each_gets_its_own_key(alpha: Any, key_of: Any) -> None:
    bootstrap = key_of(alpha, "enrol")
    assert upload(bootstrap) == 403
    assert Client(HTTP_HOST="localhost").get("/v1/fleet", HTTP_AUTHORIZATION=f"Bearer {bootstrap}").status_code == 403
    own = {}
    for name in ("n1", "n2", "n3"):
        answer = Installation(f"agent-{name}", name).enrol(bootstrap)
        assert answer.status_code == 200, answer.content
        own[name] = answer.json()["token"]
    assert len(set(own.values())) == 3
    assert upload(own["n1"], node_id="n1") == 202
    assert upload(own["n1"], node_id="n2") == 403  # a node's own key speaks for no other
    assert upload(own["n1"], cluster_id="c2") == 403
    keys = ApiKey.objects.filter(org=alpha).exclude(node="")
    assert {(key.node, key.cluster, tuple(key.scopes)) for key in keys} == {
        (name, "c1", ("ingest",)) for name in own
    }  # fmt: skip
    own_key = Installation("agent-n9", "n9").enrol(own["n1"])  # and enrols no other
    assert own_key.status_code == 403


def test_enrolling_again_gives_a_fresh_key_and_ends_the_one_before(alpha: Any, key_of: Any) -> None:
    """A token that got lost on its way is asked for again; nobody else holds the signing key."""
    bootstrap, one = key_of(alpha, "enrol"), Installation()
    first = one.enrol(bootstrap).json()["token"]
    second = one.enrol(bootstrap).json()["token"]
    assert (upload(first), upload(second)) == (401, 202)
    anew = one.enrol(bootstrap, agent_id="a2")  # its outbox was replaced: another identity, the same key and node
    assert anew.json()["state"] == "active"
    assert (upload(second, agent_id="a2"), upload(anew.json()["token"], agent_id="a2")) == (401, 202)


def test_a_second_key_for_one_identity_waits_for_a_person(alpha: Any, ada: Any, key_of: Any) -> None:
    bootstrap, plain = key_of(alpha, "enrol"), key_of(alpha, "ingest")
    Installation().enrol(plain)
    rival = Installation()
    assert rival.enrol(plain).json()["state"] == "waiting"
    refused = rival.enrol(bootstrap)
    assert (refused.status_code, refused.json()["code"]) == (403, "agent_waiting")
    assert not ApiKey.objects.exclude(node="").exists()
    with tenant_context(alpha):
        services.accept(AgentKey.objects.get(public_key=rival.public), alpha, actor=ada.email)
    assert rival.enrol(bootstrap).json()["token"]
    assert AuditEntry.objects.get(action="agent.accepted").actor == ada.email


def test_revoking_ends_the_nodes_own_key_and_lets_nobody_back_in(alpha: Any, ada: Any, key_of: Any) -> None:
    bootstrap, one = key_of(alpha, "enrol"), Installation()
    own = one.enrol(bootstrap).json()["token"]
    with tenant_context(alpha):
        services.revoke(AgentKey.objects.get(), alpha, actor=ada.email, address="192.0.2.9")
    assert upload(own) == 401
    refused = one.enrol(bootstrap)
    assert (refused.status_code, refused.json()["code"]) == (403, "agent_revoked")
    entry = AuditEntry.objects.get(action="agent.revoked")
    assert (entry.actor, str(entry.address), entry.before, entry.after) == (
        ada.email, "192.0.2.9", {"state": "active"}, {"state": "revoked"},
    )  # fmt: skip


def test_what_is_not_proved_is_refused(alpha: Any, key_of: Any) -> None:
    token, one, other = key_of(alpha, "ingest"), Installation(), Installation()
    raw = json.dumps(one.said).encode()
    by_other = base64.b64encode(other.private.sign(wire.enrolment_message(raw))).decode()
    as_batch = base64.b64encode(one.private.sign(wire.signed_message(raw[:32]))).decode()
    for signature in ("", "AAAA", by_other, as_batch):
        answer = one.enrol(token, signature=signature)
        assert answer.status_code == 422, signature
        assert wire.HEADER_SIGNATURE in answer.json()["errors"]
    with tenant_context(alpha):
        assert not AgentKey.objects.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"agent_id": ""}, {"agent_id": 7}, {"node_id": "a\u202eb"}, {"cluster_id": "x" * 257}, {"public_key": "AAAA"},
        {"public_key": None}, {"more": "x"}, {"hw_id": 5},
    ],
)  # fmt: skip
def test_odd_fields_are_named(alpha: Any, key_of: Any, change: dict[str, Any]) -> None:
    answer = Installation().enrol(key_of(alpha, "ingest"), **change)
    assert answer.status_code == 422
    assert next(iter(change)) in answer.json()["errors"]


@pytest.mark.parametrize("body", [b" ", b"[]", b"{", b'{"a": 1, "a": 2}', b"[" * 3000, b"\xff\xfe"])
def test_odd_bodies_are_refused(alpha: Any, key_of: Any, body: bytes) -> None:
    assert Installation().enrol(key_of(alpha, "ingest"), body).status_code == 400


def test_who_may_not_enrol(alpha: Any, key_of: Any) -> None:
    one = Installation()
    assert one.enrol(None).status_code == 401
    assert one.enrol("gp_00000000_unknown").status_code == 401
    assert one.enrol(key_of(alpha, "read")).status_code == 403
    assert one.enrol(key_of(alpha, "ingest", cluster="c9")).status_code == 403
    assert one.enrol(key_of(alpha, "ingest"), b"x" * 5000).status_code == 422


def test_another_orgs_key_enrols_into_that_org_only(alpha: Any, beta: Any, key_of: Any) -> None:
    Installation().enrol(key_of(beta, "ingest"))
    with tenant_context(alpha):
        assert not AgentKey.objects.exists()
    with tenant_context(beta):
        assert AgentKey.objects.count() == 1
