"""Who gets what: every route of an org, of the API and of the console × everybody, in one table.

Two orgs hold rows with the same primary keys and different names. Each route has a caller for whom it answers 200 with
the name of their org in the body, or stands in the list of those that have no name to show; and no answer to anybody
may hold the name of an org that is not theirs.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import pytest
from django.test import Client
from django_tenants.utils import tenant_context

from goodput_site.tests.routes import path_of, routes, words_of
from goodput_site.tests.test_outsiders import entry

pytestmark = pytest.mark.django_db
PLANTED = 7_000_007  # the primary key of every planted row, in both orgs
MINE, THEIRS = "sentinel-of-alpha", "sentinel-of-beta"
O = "o/<slug:org_slug>/"  # noqa: E741
SETTINGS = f"{O}settings/"
PEOPLE = ("viewer", "finance", "admin", "owner", "provider")
KEYS = ("ingest", "read", "admin_read")
STRANGERS = ("nobody", "outsider", "others_key")

LINK = re.compile(r'(?:href|hx-get)="([^"#]*)')
Row = dict[str, set[int]]


def of_an_org(*statuses: int, **apart: set[int]) -> Row:
    """A page of an org: its people get `statuses`, nobody and keys the login, an outsider 404."""
    row = {who: set(statuses) for who in PEOPLE}
    return {"nobody": {302}, "outsider": {404}, **dict.fromkeys((*KEYS, "others_key"), {302}), **row, **apart}


CONSOLE: Row = {
    **of_an_org(404),
    "provider": {200, 404, 405},
}
API: Row = {
    "nobody": {401},
    **dict.fromkeys(("outsider", "others_key", "viewer", "finance", "admin", "owner"), {200, 404, 405, 422}),
    "provider": {200, 400, 404, 405, 422},  # has several orgs and must say which
    "ingest": {403, 404, 405},
    "read": {200, 404, 405, 422},
    "admin_read": {200, 404, 405, 422},
}
ANYBODY: Row = dict.fromkeys((*STRANGERS, *PEOPLE, *KEYS), {200})
PEOPLES: Row = {**API, "ingest": {403}, "read": {403}, "viewer": {403}}
WRITE: Row = {
    **dict.fromkeys((*STRANGERS, *PEOPLE, *KEYS), {400, 401, 403, 404, 405}),
}
TABLE: dict[str, Row] = {
    f"{O}*": of_an_org(200, 404, 405),
    f"{O}": of_an_org(200),
    SETTINGS: of_an_org(302),
    f"{SETTINGS}members/": of_an_org(200),
    f"{SETTINGS}members/*": of_an_org(405),
    f"{SETTINGS}invitations/*": of_an_org(405),
    f"{SETTINGS}keys/": of_an_org(200),
    f"{SETTINGS}keys/*": of_an_org(405),
    f"{SETTINGS}agents/*": of_an_org(405),
    f"{SETTINGS}agents/": of_an_org(200),
    f"{SETTINGS}audit*": of_an_org(200, viewer={403}),
    "provider/*": CONSOLE,
    "provider/metrics": {**dict.fromkeys((*STRANGERS, *PEOPLE, *KEYS), {404}), "provider": {200}},
    "v1/*": API,
    "v1/openapi.json": ANYBODY,
    "v1/docs": ANYBODY,
    "v1/members": PEOPLES,
    "v1/keys": PEOPLES,
    "v1/audit": PEOPLES,
    "v1/incidents/<int:incident_id>/*": WRITE,
    "v1/reviews/looks*": WRITE,
    "v1/enrol": WRITE,
    "v1/agents/*": WRITE,
    f"{SETTINGS}alerts/*": of_an_org(200, 404, 405),
    f"{SETTINGS}alerts/new/*": of_an_org(200, 404, viewer={403}, finance={403}),
    "v1/alerts/*": {**PEOPLES, **dict.fromkeys(("ingest", "read", "viewer"), {403})},
    "v1/alerts/channels/<int:channel_id>/test": WRITE,
    "v1/alerts/channels/<int:channel_id>/ask": WRITE,
    "v1/alerts/deliveries/<int:delivery_id>/again": WRITE,
    "metrics": API,
}
# One caller for whom the route answers 200 with the name of their org in it.
SHOWS = {
    f"{O}": "viewer",
    f"{O}fleet.csv": "viewer",
    f"{O}fleet.json": "finance",
    f"{O}nodes/<int:node_id>/": "viewer",
    f"{O}domains/": "viewer",
    f"{O}incidents/": "viewer",
    f"{O}incidents/statistics/": "viewer",
    f"{O}incidents/statistics.csv": "finance",
    f"{O}incidents/statistics.json": "owner",
    f"{O}incidents.csv": "viewer",
    f"{O}incidents.json": "owner",
    f"{O}incidents/<int:incident_id>/": "viewer",
    f"{O}reviews/": "viewer",
    f"{O}reviews.csv": "finance",
    f"{O}reviews.json": "viewer",
    f"{SETTINGS}members/": "viewer",
    f"{SETTINGS}keys/": "viewer",
    f"{SETTINGS}agents/": "viewer",
    f"{SETTINGS}clusters/": "viewer",
    f"{SETTINGS}hardware/": "viewer",
    f"{SETTINGS}hardware/<int:node_id>/": "finance",
    f"{SETTINGS}maintenance/": "viewer",
    f"{SETTINGS}rules/": "viewer",
    f"{SETTINGS}rules/comparisons/<int:comparison_id>/": "viewer",
    f"{SETTINGS}audit/": "finance",
    f"{SETTINGS}audit.csv": "admin",
    "provider/": "provider",
    "provider/orgs.csv": "provider",
    "provider/orgs.json": "provider",
    "provider/orgs/<int:org_id>/": "provider",
    "provider/rules.csv": "provider",
    "provider/audit/": "provider",
    "provider/audit.csv": "provider",
    "v1/members": "admin_read",
    "v1/keys": "admin_read",
    "v1/audit": "admin_read",
    "v1/agents": "read",
    "v1/fleet": "read",
    "v1/fleet/nodes": "read",
    "v1/fleet/nodes.csv": "viewer",
    "v1/fleet/nodes.json": "finance",
    "v1/availability.parquet": "viewer",
    "v1/clusters": "read",
    "v1/nodes": "read",
    "v1/nodes.csv": "admin_read",
    "v1/nodes.json": "viewer",
    "v1/nodes/<int:node_id>": "read",
    "v1/governance/nodes": "read",
    "v1/reviews": "read",
    "v1/domains": "read",
    "v1/incidents": "read",
    "v1/alerts/channels": "admin_read",
    "v1/alerts/channels.json": "owner",
    "v1/alerts/channels.csv": "admin_read",
    "v1/alerts/channels/<int:channel_id>": "finance",
    f"{SETTINGS}alerts/": "viewer",
    f"{SETTINGS}alerts/<int:channel_id>/": "viewer",
    "v1/incidents.csv": "read",
    "v1/incidents.json": "read",
    "v1/incidents/<int:incident_id>": "read",
}
# Routes without a name of an org to show: forms that are only sent, redirects, and what other tests show in full.
NOTHING = (
    SETTINGS,
    f"{SETTINGS}members/*/",
    f"{SETTINGS}invitations/*",
    f"{SETTINGS}keys/*/",
    f"{SETTINGS}clusters/*/",
    f"{SETTINGS}nodes/*",
    f"{SETTINGS}hardware/<int:node_id>/?*",
    f"{SETTINGS}maintenance/*/",
    f"{SETTINGS}rules/?*",
    f"{SETTINGS}agents/*/",
    "v1/reviews.?*",
    "v1/reviews/looks*",  # only sent: fleet/tests/test_reviews.py
    f"{O}reviews/look*",
    "v1/domains.?*",
    "v1/agents*",  # its other forms, and what is only sent: fleet/agents/tests
    "v1/enrol",
    f"{O}nodes/<int:node_id>/?*",  # of a node with samples: fleet/tests
    f"{O}incidents/<int:incident_id>/?*",
    f"{O}manifest.webmanifest",
    f"{O}clusters/*",
    f"{O}sla/*",  # contracts, reports, claims and alerts plant their own rows: claims/tests
    f"{O}reports/*",
    f"{O}claims/*",
    f"{O}alerts/*",
    f"{SETTINGS}alerts/?*",  # forms that are only sent, and the log: fleet/alerts/tests
    "v1/alerts/*/?*",
    "v1/alerts/deliveries*",
    "provider/orgs/new/",
    "provider/orgs/<int:org_id>/?*",
    "provider/view/end/",
    "provider/exports/*",  # fleet/summary/tests
    "provider/jobs/*",
    "provider/catalog*",
    "provider/metrics",  # orgs are numbers there
    "provider/claims/*",
    "provider/rules/*",
    "v1/clusters.?*",  # the other forms of a list that is shown above: fleet/tests/api
    "v1/fleet.?*",
    "v1/nodes/?*",
    "v1/governance/nodes.?*",
    "v1/gpus*",
    "v1/events*",
    "v1/availability*",
    "v1/statistics*",
    "v1/batches*",
    "v1/rules*",
    "v1/settings/*",  # of an org with rows: fleet/tests/api
    "v1/incidents/<int:incident_id>/?*",
    "v1/openapi.json",
    "v1/docs",
    "v1/anchors",
    "v1/log-key",
    "v1/claims*",
    "v1/reports*",
    "v1/sla*",
    "v1/contracts*",
    "metrics",
)


def ours() -> list[str]:
    """The routes that could show something of an org."""
    return [route for route in routes() if route.startswith((O, "provider/", "v1/")) or route == "metrics"]


def plant(org: Any, name: str, pk: int = PLANTED) -> None:
    """Rows of one primary key and one name in an org."""
    from django.utils import timezone

    from fleet.agents.models import AgentKey
    from fleet.alerts.models import Channel
    from fleet.models import Cluster, Incident, Node, NodeLive, Review, RuleComparison

    with tenant_context(org):
        cluster = Cluster.objects.create(pk=pk, name=name)
        node = Node.objects.create(pk=pk, cluster=cluster, identity=f"name:{name}", name=name)
        gpu = {"subject": "g0", "kind": "gpu", "device": f"GPU-{name}", "state": "observed", "nominal": 100}
        summary = {"subjects": [gpu], "domain": f"d:{name}/1"}
        NodeLive.objects.create(node=node, summary=summary, last_sample_at=timezone.now())
        slot = int(timezone.now().timestamp()) // 15
        Review.objects.create(
            node=node, hour=slot // 240, subject="n", code="XID_UNKNOWN", first_slot=slot - 1, end_slot=slot
        )
        Incident.objects.create(
            pk=pk,
            node=node,
            cluster=cluster,
            scope="node",
            code="NODE_LOST",
            party="infrastructure",
            weight=0,
            first_slot=slot - 40,
            end_slot=slot,
            is_open=True,
            lost_gpu_seconds=600,
            parts=[],
        )
        hours = {"from_hour": slot // 240, "until_hour": slot // 240 + 1}
        if not RuleComparison.objects.exists():  # one at a time
            RuleComparison.objects.create(pk=pk, version="2026-11-30", requested_by=name, nodes_total=1, **hours)
        AgentKey.objects.create(
            pk=pk, agent_id=name, public_key=bytes(32), state="active", cluster=name, node=name, enrolled_with="test",
            is_bootstrap=False,
        )  # fmt: skip
        Channel.objects.create(pk=pk, kind="webhook", name=name, target=f"https://{name}.example", created_by="test")


@pytest.fixture
def callers(
    alpha: Any, beta: Any, ada: Any, bo: Any, pat: Any, client_of: Any, key_of: Any, lan: Any
) -> dict[str, Client]:
    """Everybody, by name, with both orgs planted."""
    from orgs.models import Org
    from orgs.services import create_user, issue_key, set_role

    for org, name in ((alpha, MINE), (beta, THEIRS)):
        plant(org, name)
        issue_key(org, name, ["read"], actor=f"{name}@x.example")
        create_user(f"{name}@x.example", actor="test")
        set_role(create_user(f"{name}@x.example", actor="test"), org, "viewer", actor="test")
        Org.objects.filter(pk=org.pk).update(name=name)

    def member(role: str) -> Client:
        user = create_user(f"{role}@alpha.example", actor="test")
        set_role(user, alpha, role, actor="test")
        client: Client = client_of(user)
        return client

    def keyed(org: Any, *scopes: str) -> Client:
        return Client(HTTP_HOST="localhost", HTTP_AUTHORIZATION=f"Bearer {key_of(org, *scopes)}")

    everybody = {
        "nobody": client_of(None),
        "outsider": client_of(bo),
        "others_key": keyed(beta, "ingest", "admin-read"),
        **{role: member(role) for role in ("viewer", "finance", "admin")},
        "owner": client_of(ada),
        "provider": client_of(pat),
        "ingest": keyed(alpha, "ingest"),
        "read": keyed(alpha, "read"),
        "admin_read": keyed(alpha, "admin-read"),
    }
    for client in everybody.values():
        client.raise_request_exception = False  # a 500 is an answer that no row allows
    return everybody


def path_for(route: str, org: Any, pk: int = PLANTED) -> str:
    """The route's path with the org's values and the planted primary keys."""
    number = str(pk)
    ids = (
        "cluster_id",
        "node_id",
        "incident_id",
        "membership_id",
        "invitation_id",
        "key_id",
        "contract_id",
        "channel_id",
        "comparison_id",
    )
    return path_of(route, org_slug=org.slug, org_id=str(org.pk), **dict.fromkeys(ids, number))


def wrong_answers(callers: dict[str, Client], org: Any, expected: Callable[[str, str], set[int]]) -> list[str]:
    """What is not as the table says: a status, or the name of an org that is not the caller's."""
    wrong = []
    for route in ours():
        for who, client in callers.items():
            response = client.get(path_for(route, org))
            if response.status_code not in expected(route, who):
                wrong.append(f"{who} gets {response.status_code} from /{route}")
            text = words_of(response)
            forbidden = {"outsider": [MINE], "others_key": [MINE], "nobody": [MINE, THEIRS], "provider": []}
            for name in forbidden.get(who, [THEIRS]):
                if name in text:
                    wrong.append(f"{who} reads {name} in /{route}")
    return wrong


def missing_names(callers: dict[str, Client], org: Any) -> list[str]:
    """Routes that do not answer their caller with 200 and the org's name."""
    wrong = []
    for route, who in SHOWS.items():
        response = callers[who].get(path_for(route, org))
        if response.status_code != 200 or MINE not in words_of(response):
            wrong.append(f"{who} gets {response.status_code} without {MINE} from /{route}")
    return wrong


def test_isolation_every_route_has_a_row_and_something_to_show() -> None:
    for route in ours():
        row = entry(TABLE, route)
        assert set(row) == {*STRANGERS, *PEOPLE, *KEYS}, route
        is_known = route in SHOWS or any(fnmatchcase(route, pattern) for pattern in NOTHING)
        assert is_known, f"/{route} shows no name of an org to anybody: give it a caller in SHOWS"
    assert set(SHOWS) <= set(ours())


def test_isolation_everybody_gets_what_the_table_says(callers: dict[str, Client], alpha: Any) -> None:
    assert wrong_answers(callers, alpha, lambda route, who: entry(TABLE, route)[who]) == []


def test_isolation_each_route_shows_its_own_org(callers: dict[str, Client], alpha: Any) -> None:
    assert missing_names(callers, alpha) == []


def test_isolation_a_suspended_org_is_shut_for_everybody(callers: dict[str, Client], alpha: Any) -> None:
    from orgs.services import set_org_status

    set_org_status(alpha, "suspended", actor="test")

    def shut(route: str, who: str) -> set[int]:
        row = entry(TABLE, route)[who]
        if route.startswith(O):
            return {302} if who in ("nobody", *KEYS, "others_key") else {404}
        if route.startswith("provider/") or row == {200}:
            return row
        if who in KEYS:
            return {403}
        return row | {400, 401, 403, 404}

    few = ("nobody", "outsider", "owner", "provider", "read", "ingest")
    assert wrong_answers({who: callers[who] for who in few}, alpha, shut) == []


def test_isolation_a_viewer_changes_nothing(callers: dict[str, Client], alpha: Any) -> None:
    """Neither does provider staff that view as a customer."""
    provider = callers["provider"]
    assert provider.post(f"/provider/orgs/{alpha.pk}/view/").status_code == 302
    wrong = []
    for route in (route for route in routes() if route.startswith(O)):
        for who in ("viewer", "provider"):
            status = callers[who].post(path_for(route, alpha)).status_code
            if status not in (403, 404, 405):
                wrong.append(f"{who} posts to /{route}: {status}")
    assert wrong == []


def test_isolation_who_sees_some_clusters_reads_nothing_of_the_others(
    callers: dict[str, Client], alpha: Any, client_of: Any, key_of: Any
) -> None:
    """A restricted person's pages and session, and a key of one cluster, on every route with the ids of the others."""
    from orgs.services import create_user, set_role

    hidden = PLANTED + 1
    plant(alpha, "hidden-cluster", hidden)
    person = create_user("restricted@alpha.example", actor="test")
    set_role(person, alpha, "finance", clusters=[MINE], actor="test")
    key = key_of(alpha, "read", cluster=MINE)
    everybody = {
        "person": client_of(person),
        "key": Client(HTTP_HOST="localhost", HTTP_AUTHORIZATION=f"Bearer {key}"),
    }
    wrong = []
    for route in (route for route in ours() if not route.startswith("provider/")):
        for who, client in everybody.items():
            client.raise_request_exception = False
            response = client.get(path_for(route, alpha, hidden))
            if response.status_code >= 500 or "hidden-" in words_of(response):
                wrong.append(f"{who} gets {response.status_code} from /{route}")
    assert wrong == []
    assert MINE in words_of(everybody["person"].get("/o/alpha/fleet.csv"))  # their own they do see
    assert MINE in words_of(everybody["person"].get("/v1/nodes"))
    assert MINE in words_of(everybody["key"].get("/v1/nodes"))
    assert "hidden-" in words_of(callers["viewer"].get("/o/alpha/fleet.csv"))  # and there is something to hide


@pytest.mark.parametrize("role", ["viewer", "finance"])
def test_isolation_no_page_leads_who_sees_some_clusters_to_one_that_refuses_them(
    role: str, alpha: Any, client_of: Any
) -> None:
    """Every link of the org's pages, from page to page: what shows all clusters is not linked for them."""
    from orgs.services import create_user, set_role

    plant(alpha, "hidden-cluster", PLANTED + 1)
    person = create_user("restricted@alpha.example", actor="test")
    set_role(person, alpha, role, clusters=[MINE], actor="test")
    client, start = client_of(person), f"/o/{alpha.slug}/"
    linked_from, waiting, refused = {start: ""}, [start], []
    while waiting:
        url = waiting.pop()
        response = client.get(url)
        if response.status_code == 403:
            refused.append(f"{linked_from[url]} leads to {url}")
        found = LINK.findall(response.content.decode()) if "html" in response.get("Content-Type", "") else []
        for link in [*found, response.get("Location", "")]:
            path = html.unescape(link).partition("?")[0]  # a page with other filters is the same page
            if path.startswith(start) and path not in linked_from:
                linked_from[path] = url
                waiting.append(path)
    assert refused == []
    assert len(linked_from) >= 15


# The table itself is tested: what it guards is taken away, and it must notice.


def test_isolation_a_missing_membership_check_is_noticed(
    callers: dict[str, Client], alpha: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orgs import middleware
    from orgs.access import Access

    monkeypatch.setattr(middleware, "get_access", lambda user, slug: Access(alpha, "viewer"))
    only = {"outsider": callers["outsider"]}
    found = wrong_answers(only, alpha, lambda route, who: entry(TABLE, route)[who])
    assert f"outsider gets 200 from /{O}fleet.json" in found
    assert f"outsider reads {MINE} in /{O}fleet.json" in found


def test_isolation_a_wrong_schema_is_noticed(
    callers: dict[str, Client], alpha: Any, beta: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.db import connection

    real = connection.set_tenant
    monkeypatch.setattr(connection, "set_tenant", lambda org, *more: real(beta if org == alpha else org, *more))
    only = {"viewer": callers["viewer"]}
    found = wrong_answers(only, alpha, lambda route, who: entry(TABLE, route)[who])
    assert f"viewer reads {THEIRS} in /{O}fleet.json" in found
    assert any("fleet.json" in one for one in missing_names(callers, alpha))
