"""Settings, Agents, and the list of the API: what is shown, to whom, and who may change it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from django_tenants.utils import tenant_context

from agent.wire import fingerprint
from fleet.agents.models import AgentKey
from fleet.agents.tests.support import Installation
from fleet.agents.tests.test_marks import enrol, minute
from fleet.folding import fold_waiting
from orgs.models import AuditEntry, Membership

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("lan")]
PAGE = "/o/alpha/settings/agents/"


@pytest.fixture
def fleet(alpha: Any) -> dict[str, Installation]:
    """Two installations that send; one is enrolled, and somebody else wants its identity."""
    one, two, rival = Installation("a1", "gpu-01"), Installation("a2", "gpu-02"), Installation("a1", "gpu-01")
    with tenant_context(alpha):
        enrol(one)
        enrol(rival, "waiting")
        one.send(alpha, 1, first_ts=minute(1))
        two.send(alpha, 1, signed=False, first_ts=minute(1), cluster_id="c2")
        fold_waiting(timezone.now())
    return {"one": one, "two": two, "rival": rival}


def member(org: Any, role: str, clusters: tuple[str, ...] = ()) -> Any:
    """A person with this role."""
    from orgs.services import create_user, set_role

    user = create_user(f"{role}@alpha.example", actor="test")
    set_role(user, org, role, actor="test", clusters=clusters)
    return user


def test_the_page_shows_keys_states_and_what_is_wrong(
    alpha: Any, ada: Any, fleet: dict[str, Installation], client_of: Callable[[Any], Client]
) -> None:
    text = client_of(ada).get(PAGE).content.decode()
    for shown in ("gpu-01", "gpu-02", fingerprint(fleet["one"].public), fingerprint(fleet["rival"].public)):
        assert shown in text
    assert "Another key wants to speak for this installation" in text
    assert "1 unsigned" in text
    assert "not enrolled" in text
    only = client_of(ada).get(PAGE, {"search": "gpu-02"}).content.decode()
    assert "gpu-02" in only
    assert fingerprint(fleet["one"].public) not in only
    assert "No installation matches." in client_of(ada).get(PAGE, {"search": "<nothing>"}).content.decode()


def test_an_admin_accepts_and_revokes_and_a_viewer_does_not(
    alpha: Any, ada: Any, fleet: dict[str, Installation], client_of: Callable[[Any], Client]
) -> None:
    with tenant_context(alpha):
        waiting = AgentKey.objects.get(public_key=fleet["rival"].public)
    viewer = client_of(member(alpha, Membership.Role.VIEWER))
    assert "Revoke" not in viewer.get(PAGE).content.decode()
    assert viewer.post(f"{PAGE}{waiting.pk}/revoke/").status_code == 403
    assert client_of(ada).post(f"{PAGE}{waiting.pk}/accept/").status_code == 302
    assert client_of(ada).post(f"{PAGE}{waiting.pk}/revoke/").status_code == 302
    assert client_of(ada).post(f"{PAGE}999999/revoke/").status_code == 404
    with tenant_context(alpha):
        waiting.refresh_from_db()
        assert (waiting.state, waiting.changed_by) == ("revoked", ada.email)
    assert list(AuditEntry.objects.filter(action__startswith="agent.").values_list("action", "actor")) == [
        ("agent.revoked", ada.email),
        ("agent.accepted", ada.email),
    ]


def test_whoever_sees_one_cluster_sees_its_agents_only(
    alpha: Any, fleet: dict[str, Installation], client_of: Callable[[Any], Client], key_of: Any
) -> None:
    text = client_of(member(alpha, Membership.Role.VIEWER, ("c2",))).get(PAGE).content.decode()
    assert "gpu-02" in text
    assert "gpu-01" not in text
    token = key_of(alpha, "read", cluster="c2")
    answer = Client(HTTP_HOST="localhost").get("/v1/agents", HTTP_AUTHORIZATION=f"Bearer {token}").json()
    assert [one["node"] for one in answer["results"]] == ["gpu-02"]


def test_the_api_lists_pages_and_changes(
    alpha: Any, ada: Any, fleet: dict[str, Installation], client_of: Callable[[Any], Client], key_of: Any
) -> None:
    bearer = {"HTTP_AUTHORIZATION": f"Bearer {key_of(alpha, 'read')}"}
    client = Client(HTTP_HOST="localhost")
    first = client.get("/v1/agents?page_size=2", **bearer).json()
    rest = client.get(first["next"].partition("localhost")[2], **bearer).json()
    found = [*first["results"], *rest["results"]]
    assert [(one["node"], one["state"]) for one in found] == [
        ("gpu-01", "active"), ("gpu-01", "waiting"), ("gpu-02", "not enrolled"),
    ] or [(one["node"], one["state"]) for one in found] == [
        ("gpu-01", "waiting"), ("gpu-01", "active"), ("gpu-02", "not enrolled"),
    ]  # fmt: skip
    assert {tuple(one["flags"]) for one in found} == {("second_key",), ()}
    assert client.get("/v1/agents.csv", **bearer).content.decode().splitlines()[0].startswith("id,agent_id,state")
    waiting = next(one["id"] for one in found if one["state"] == "waiting")
    assert client.post(f"/v1/agents/{waiting}/accept", **bearer).status_code == 403  # keys only read
    accepted = client_of(ada).post(f"/v1/agents/{waiting}/accept")
    assert (accepted.status_code, accepted.json()["state"]) == (200, "active")
    assert client_of(ada).post(f"/v1/agents/{waiting}/revoke").json()["state"] == "revoked"


def test_keys_of_nodes_stand_with_their_agents_and_not_among_the_keys(
    alpha: Any, ada: Any, client_of: Callable[[Any], Client], key_of: Any
) -> None:
    Installation("a1", "gpu-77").enrol(key_of(alpha, "enrol"))
    assert "gpu-77" not in client_of(ada).get("/o/alpha/settings/keys/").content.decode()
    assert "own ingest key" in client_of(ada).get(PAGE).content.decode()
