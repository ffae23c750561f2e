"""Who gets what: a row for each route of an org, of the API and of the console, and what is planted for its ids.

Each route has a caller for whom it answers 200 with the name of their org in the body (`SHOWS`), or stands in the list
of those that have no name to show (`NOTHING`).
"""

from __future__ import annotations

from typing import Any

from django_tenants.utils import tenant_context

from goodput_site.tests.routes import path_of, routes

PLANTED = 7_000_007  # the primary key of every planted row, in both orgs
MINE, THEIRS = "sentinel-of-alpha", "sentinel-of-beta"
O = "o/<slug:org_slug>/"  # noqa: E741
SETTINGS = f"{O}settings/"
PEOPLE = ("viewer", "finance", "admin", "owner", "provider")
KEYS = ("ingest", "read", "admin_read")
STRANGERS = ("nobody", "outsider", "others_key")

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
