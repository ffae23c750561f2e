"""Incidents by API: filters, exact slots, and the human layer with its audit trail, which never touches a fact."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django_tenants.utils import tenant_context

from fleet.models import Incident
from fleet.tests.api.conftest import LOST_FROM, LOST_TO, at, get, start_ms
from orgs.models import AuditEntry, Membership

pytestmark = pytest.mark.django_db
DERIVED = ("code", "party", "weight", "first_slot", "end_slot", "is_open", "lost_gpu_seconds", "parts", "scope")


def derived(org: Any) -> Any:
    """The facts of the incident."""
    with tenant_context(org):
        return Incident.objects.values(*DERIVED).get()


def entries(action: str) -> list[AuditEntry]:
    """The audit entries of this kind, oldest first."""
    return list(AuditEntry.objects.filter(action=action).order_by("id"))


def test_filters_take_what_they_say(read: Any, incident_id: int, north_id: int) -> None:
    first = start_ms() // 1000 * 1000
    begin, end = at(first + LOST_FROM * 60_000), at(first + LOST_TO * 60_000)
    for query, found in (
        ("", 1),
        ("open=false", 1),
        ("open=true", 0),
        ("party=infrastructure", 1),
        ("party=customer", 0),
        ("code=GPU_MISSING", 1),
        ("code=XID_79", 1),
        ("code=XID_48", 0),
        ("node=north-1&cluster=north", 1),
        (f"node_id={north_id}", 1),
        ("cluster=south", 0),
        (f"since={begin}&until={end}", 1),
        (f"since={end}", 0),
        (f"until={at(first + (LOST_FROM - 2) * 60_000)}", 0),
    ):
        results = read(f"/v1/incidents?{query}").json()["results"]
        assert [one["id"] for one in results] == [incident_id] * found, query


def test_pages_of_incidents_neither_lose_nor_repeat(filled: Any, read: Any, incident_id: int) -> None:
    with tenant_context(filled):
        one = Incident.objects.get()
        for _ in range(3):  # several that begin in one slot
            one.pk = None
            one.save()
    found: list[int] = []
    path = "/v1/incidents?page_size=1"
    while path:
        page = read(path).json()
        found += [each["id"] for each in page["results"]]
        path = page["next"] and page["next"].removeprefix("http://localhost")
    assert found == sorted(found, reverse=True)
    assert len(set(found)) == 4


def test_one_in_full_lists_its_exact_slots(read: Any, incident_id: int) -> None:
    one = read(f"/v1/incidents/{incident_id}").json()
    (part,) = one["parts"]
    assert (part["subject"], part["index"], part["uuid"]) == ("g1", 1, "GPU-north-1-1")
    assert sum(run["slots"] for run in part["slots"]) == part["bad_slots"]
    assert part["slots"][0]["from"] == part["from"] == one["opened"]
    assert part["slots"][-1]["to"] == part["to"] == one["resolved"]
    assert part["lost_gpu_seconds"] == one["lost_gpu_seconds"] > 0
    assert {code["code"] for code in part["codes"]} == {reason["code"] for reason in one["reasons"]}


@pytest.mark.parametrize("role", ["owner", "admin", "finance"])
def test_who_may_write_acknowledges_notes_and_tickets(filled: Any, member: Any, incident_id: int, role: str) -> None:
    client, path, before = member(role), f"/v1/incidents/{incident_id}", derived(filled)
    first = client.post(f"{path}/acknowledge", content_type="application/json").json()
    assert first["acknowledged_by"] == f"{role}@alpha.example"
    again = client.post(f"{path}/acknowledge", content_type="application/json").json()
    assert again["acknowledged"] == first["acknowledged"]
    note = client.post(f"{path}/notes", {"text": " <b>called them</b> "}, content_type="application/json")
    assert note.status_code == 201
    assert note.json()["text"] == "<b>called them</b>"
    changes = {"ticket_number": "T-1", "reported_at": "2026-11-30T12:00:00+01:00", "disposition": "disputed"}
    after = client.patch(path, changes, content_type="application/json").json()
    assert (after["ticket_number"], after["reported_at"]) == ("T-1", "2026-11-30T11:00:00Z")
    assert after["disposition"] == "disputed"
    assert after["notes"] == [note.json()]
    client.patch(path, changes, content_type="application/json")
    cleared = client.patch(path, {"reported_at": None, "disposition": ""}, content_type="application/json").json()
    assert (cleared["reported_at"], cleared["disposition"], cleared["ticket_number"]) == (None, None, "T-1")

    (acknowledged,) = entries("incident.acknowledged")
    assert (acknowledged.actor, acknowledged.org_slug) == (f"{role}@alpha.example", "alpha")
    assert acknowledged.target == f"incident {incident_id}"
    assert len(entries("incident.noted")) == 1
    tickets = entries("incident.ticket_set")
    assert [entry.after for entry in tickets] == [
        {"ticket_number": "T-1", "reported_at": "2026-11-30T11:00:00+00:00", "disposition": "disputed"},
        {"reported_at": None, "disposition": ""},
    ]
    assert tickets[1].before == {"reported_at": "2026-11-30T11:00:00+00:00", "disposition": "disputed"}
    assert derived(filled) == before


def write_all(client: Any, incident_id: int) -> list[Any]:
    """The answers to each way of writing."""
    path = f"/v1/incidents/{incident_id}"
    return [
        client.post(f"{path}/acknowledge", content_type="application/json"),
        client.post(f"{path}/notes", {"text": "x"}, content_type="application/json"),
        client.patch(path, {"ticket_number": "T"}, content_type="application/json"),
    ]


def test_without_its_audit_entry_nothing_is_written(
    filled: Any, member: Any, incident_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **more: Any) -> None:
        raise RuntimeError("the trail can't be written")

    client = member("admin")
    monkeypatch.setattr("fleet.services_incidents.record", broken)
    client.raise_request_exception = False
    for answer in write_all(client, incident_id):
        assert answer.status_code == 500
    with tenant_context(filled):
        one = Incident.objects.get()
        assert not one.has_human_layer
        assert not one.notes.exists()


def test_nobody_else_writes(
    filled: Any, member: Any, client_of: Any, bo: Any, pat: Any, key_of: Any, incident_id: int, lan: Any
) -> None:
    keyed = Client(HTTP_HOST="localhost", HTTP_AUTHORIZATION=f"Bearer {key_of(filled, 'read', 'ingest')}")
    for client, status, code in (
        (client_of(None), 401, "missing_key"),
        (keyed, 403, "session_needed"),
        (member("viewer"), 403, "role_needed"),
        (client_of(bo), 404, "not_found"),
    ):
        for answer in write_all(client, incident_id):
            assert (answer.status_code, answer.json()["code"]) == (status, code)
    for answer in write_all(client_of(pat), incident_id):
        assert answer.status_code in (400, 403)
    with tenant_context(filled):
        one = Incident.objects.get()
        assert not one.has_human_layer
        assert not one.notes.exists()
    assert not AuditEntry.objects.filter(action__startswith="incident.").exists()


def test_the_open_local_org_is_read_only_without_a_session(local: Any, incident_id: int) -> None:
    for answer in write_all(Client(HTTP_HOST="localhost"), 1):
        assert answer.status_code in (403, 404)


def test_a_post_from_another_site_is_refused(filled: Any, ada: Any, incident_id: int, lan: Any) -> None:
    client = Client(HTTP_HOST="localhost", enforce_csrf_checks=True)
    client.force_login(ada)
    for answer in write_all(client, incident_id):
        assert answer.status_code == 403
    with tenant_context(filled):
        assert not Incident.objects.get().has_human_layer


def test_a_bad_value_is_refused_by_name_and_changes_nothing(alpha: Any, ada: Any, client_of: Any, lan: Any) -> None:
    one, client = bare_incident(alpha), client_of(ada)
    for method, path, body, field in (
        ("patch", "", {"weight": 100}, "weight"),
        ("patch", "", {"disposition": "ignored"}, "disposition"),
        ("patch", "", {"disposition": None}, "disposition"),
        ("patch", "", {"disposition": ["excluded"]}, "disposition"),
        ("patch", "", {"ticket_number": "T" * 121}, "ticket_number"),
        ("patch", "", {"ticket_number": "a\u0000b"}, "ticket_number"),
        ("patch", "", {"ticket_number": 7}, "ticket_number"),
        ("patch", "", {"reported_at": "yesterday"}, "reported_at"),
        ("patch", "", {"provider_ack_at": 5}, "provider_ack_at"),
        (
            "patch",
            "",
            {"reported_at": "2026-11-30T12:00:01Z", "provider_ack_at": "2026-11-30T12:00:00Z"},
            "provider_ack_at",
        ),
        ("patch", "", ["ticket_number"], "body"),
        ("post", "/notes", {"text": "  "}, "text"),
        ("post", "/notes", {"text": "x" * 4001}, "text"),
        ("post", "/notes", {"text": "a\u0000b"}, "text"),
        ("post", "/notes", {"text": 5}, "text"),
        ("post", "/notes", {"text": "x", "author": "somebody"}, "author"),
    ):
        answer = getattr(client, method)(f"/v1/incidents/{one.pk}{path}", body, content_type="application/json")
        assert (answer.status_code, list(answer.json().get("errors", ()))) == (422, [field]), body
    with tenant_context(alpha):
        again = Incident.objects.get()
        assert not again.has_human_layer
        assert not again.notes.exists()


def test_broken_json_is_a_400(alpha: Any, ada: Any, client_of: Any, lan: Any) -> None:
    one = bare_incident(alpha)
    answer = client_of(ada).patch(f"/v1/incidents/{one.pk}", "{", content_type="application/json")
    assert answer.status_code == 400


def bare_incident(org: Any) -> Incident:
    """An incident without any facts behind it."""
    from fleet.models import Cluster, Node

    with tenant_context(org):
        cluster = Cluster.objects.create(name="bare")
        node = Node.objects.create(cluster=cluster, identity="name:bare", name="bare")
        return Incident.objects.create(
            node=node,
            cluster=cluster,
            scope="gpu",
            code="XID_79",
            party="infrastructure",
            weight=0,
            first_slot=100,
            end_slot=140,
            is_open=False,
            lost_gpu_seconds=600,
            parts=[],
        )


def test_roles_are_those_of_the_product() -> None:
    from fleet.api_incidents import WRITERS

    assert set(WRITERS) == set(Membership.Role) - {Membership.Role.VIEWER}


def test_a_hostile_note_stays_text(
    filled: Any, ada: Any, client_of: Any, incident_id: int, key_of: Any, lan: Any
) -> None:
    text = '=1+1"></script><script>alert(1)</script>'
    client_of(ada).post(f"/v1/incidents/{incident_id}/notes", {"text": text}, content_type="application/json")
    client_of(ada).patch(f"/v1/incidents/{incident_id}", {"ticket_number": "=1+1"}, content_type="application/json")
    answer = get(f"/v1/incidents/{incident_id}", key_of(filled, "read"))
    assert answer["Content-Type"] == "application/json"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer.json()["notes"][0]["text"] == text
    assert "'=1+1" in get("/v1/incidents.csv", key_of(filled, "read")).content.decode()
