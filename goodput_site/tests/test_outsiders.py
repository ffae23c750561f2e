"""Every route × everybody who has no business there. A new route without an entry in the table fails.

Beta has data with a name that occurs nowhere else. Whoever is not of beta tries each route with beta's values, and no
answer may hold that name.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from fleet.tests.bodies import packed
from goodput_site.tests.routes import path_of, routes, words_of

pytestmark = pytest.mark.django_db
MARKER = "betas-own-cluster"

# What an answer may be, by who asks: nobody, a member of another org, the key of another org.
EVERYBODY = {"nobody": {200}, "member": {200}, "key": {200}}
OWN_PAGE = {"nobody": {302}, "member": {200, 302}, "key": {302}}  # leads to the login; whoever is in sees their own
ACCOUNT = {"nobody": {302}, "member": {200, 302, 403, 404}, "key": {302}}  # one's own password, factors, sessions
OF_AN_ORG = {"nobody": {302}, "member": {404}, "key": {302}}
STAFF = {"nobody": {302}, "member": {302, 404}, "key": {302}}
API = {"nobody": {401}, "member": {200, 404}, "key": {200, 404}}  # answers with the caller's own, or not at all
ADMIN_API = {"nobody": {401}, "member": {200}, "key": {403}}  # a key needs more than ingest and read
PEOPLE = ("v1/members", "v1/keys", "v1/audit")
ALERTS = (
    *(f"v1/alerts/{name}{form}" for name in ("channels", "deliveries") for form in ("", ".csv", ".json")),
    "v1/alerts/channels/<int:channel_id>",
)
WRITES = {"nobody": {401, 405}, "member": {400, 405}, "key": {403, 405}}  # of the API: there is nothing to read
ALERT_WRITES = {**WRITES, "nobody": {401, 403, 405}}  # 403: the visitor of local mode is no admin
DEAD_LINK = {"nobody": {410}, "member": {410}, "key": {410}}
POST_ONLY = {"nobody": {405}, "member": {405}, "key": {405}}
NOT_HERE = {"nobody": {404}, "member": {404}, "key": {404}}

_GPU = "v1/gpus/<int:node_id>/<int:index>"
_LISTS = (
    "agents",
    "clusters",
    "fleet/nodes",
    "governance/nodes",
    "nodes",
    "gpus",
    "events",
    "incidents",
    "reviews",
    "domains",
    "availability",
    "statistics",
    "rules",
)
DATED = ("hardware", "assignments", "probes", "windows", "amendments", "adoptions")
READS = (
    "v1/fleet",
    "v1/batches",
    "v1/batches.csv",
    "v1/batches.json",
    *(f"v1/{name}{form}" for name in _LISTS for form in ("", ".csv", ".json")),
    *(f"{_GPU}/{name}{form}" for name in ("slots", "hours") for form in ("", ".csv", ".json", ".parquet")),
    "v1/availability.parquet",
    "v1/nodes/<int:node_id>",
    _GPU,
    f"{_GPU}/explain",
    "v1/incidents/<int:incident_id>",
    "v1/log-key",
    "v1/anchors",
    "v1/contracts",
    "v1/contracts/<int:contract_id>",
    "v1/reports",
    "v1/reports/<int:report_id>",
    "v1/reports/<int:report_id>/late",
    "v1/claims",
    "v1/claims/<int:claim_id>",
    "v1/claims/<int:claim_id>/pack",
    "v1/batches/<str:sha256>",
    "v1/batches/<str:sha256>/body",
    "v1/rules/<str:code>",
    *(f"v1/settings/{kind}{form}" for kind in DATED for form in ("", ".csv", ".json")),
    "metrics",
)
ENDS = (
    *(f"v1/settings/{kind}/<int:row_id>/end" for kind in ("hardware", "probes", "amendments")),
    *(f"v1/settings/{kind}/<int:row_id>/withdraw" for kind in DATED if kind != "probes"),
)
GET = {
    "": OWN_PAGE,
    "healthz": EVERYBODY,
    "readyz": EVERYBODY,
    "rules/": EVERYBODY,
    "rules/<str:version>.json": NOT_HERE,
    "guide/*": EVERYBODY,
    "guides/ios-dashboard-setup.txt": EVERYBODY,
    "llms-full.txt": EVERYBODY,
    "install-linux.sh": EVERYBODY,
    "install-windows.ps1": EVERYBODY,
    "docker-compose.release.yml": EVERYBODY,
    "docker-compose.gpu.yml": EVERYBODY,
    "env.example": EVERYBODY,
    "releases/*": NOT_HERE,
    "login/": {**EVERYBODY, "member": {302}},
    "password/forgot/": EVERYBODY,
    "password/forgot/sent/": EVERYBODY,
    "password/new/*": EVERYBODY,
    "password/new/done/": EVERYBODY,
    "account/*": ACCOUNT,
    "account/address/<str:token>/": {**ACCOUNT, "member": {410}},
    "account/sso/login/*": {"nobody": {200, 401}, "member": {200, 401}, "key": {200, 401}},
    "account/oidc/*": NOT_HERE,
    "logout/": POST_ONLY,
    "login/link/<str:uid>/<str:token>/": DEAD_LINK,
    "invitation/<str:token>/": DEAD_LINK,
    "alerts/confirm/<str:token>/": DEAD_LINK,
    "password/": OWN_PAGE,
    "o/<slug:org_slug>/*": OF_AN_ORG,
    "admin/*": STAFF,
    "calendar/<int:feed_org>/<str:token>.ics": {"nobody": {404}, "member": {404}, "key": {404}},
    "provider/*": STAFF,
    "provider/metrics": {"nobody": {404}, "member": {404}, "key": {404}},
    "v1/openapi.json": EVERYBODY,
    "v1/docs": EVERYBODY,
    **dict.fromkeys(READS, API),
    **dict.fromkeys(PEOPLE, ADMIN_API),
    **dict.fromkeys(ALERTS, {**ADMIN_API, "member": {200, 404}}),
    "v1/alerts/channels/<int:channel_id>/test": ALERT_WRITES,
    "v1/alerts/channels/<int:channel_id>/ask": ALERT_WRITES,
    "v1/alerts/deliveries/<int:delivery_id>/again": ALERT_WRITES,
    "v1/enrol": WRITES,
    "v1/agents/<int:key_id>/revoke": WRITES,
    "v1/agents/<int:key_id>/accept": WRITES,
    "v1/incidents/<int:incident_id>/acknowledge": WRITES,
    "v1/incidents/<int:incident_id>/notes": WRITES,
    "v1/reviews/looks": WRITES,
    "v1/reviews/looks/<int:look_id>/take-back": WRITES,
    **dict.fromkeys(ENDS, WRITES),
    "v1/contracts/<int:contract_id>/rows": WRITES,
    "v1/contracts/<int:contract_id>/reports": WRITES,
    "v1/claims/<int:claim_id>/steps": WRITES,
}
# A POST of somebody who has no business there changes nothing: it is refused, or it is the way in.
POST = {
    "": {200, 302, 405},  # a page that reads only
    "healthz": {200},
    "readyz": {200},
    "login/": {200, 302},
    "password/forgot/": {200},
    "password/forgot/sent/": {405},
    "password/new/*": {200},
    "password/new/done/": {405},
    "account/*": {200, 302, 403, 404, 405},
    "account/address/": {302, 422},
    "account/address/<str:token>/": {302, 410},
    "account/sso/login/*": {405},
    "account/oidc/*": {404},
    "rules/": {405},
    "rules/<str:version>.json": {405},
    "guide/*": {405},
    "guides/ios-dashboard-setup.txt": {405},
    "llms-full.txt": {405},
    "install-linux.sh": {405},
    "install-windows.ps1": {405},
    "docker-compose.release.yml": {405},
    "docker-compose.gpu.yml": {405},
    "env.example": {405},
    "releases/*": {405},
    "logout/": {302},
    "login/link/<str:uid>/<str:token>/": {410},
    "invitation/<str:token>/": {410},
    "alerts/confirm/<str:token>/": {410},
    "password/": {200, 302},
    "o/<slug:org_slug>/*": {302, 404},
    "admin/*": {302, 403, 404},
    "calendar/<int:feed_org>/<str:token>.ics": {405},
    "provider/*": {302, 404},
    "provider/metrics": {405},
    "v1/openapi.json": {405},
    "v1/docs": {405},
    **dict.fromkeys(READS, {401, 405}),
    **dict.fromkeys(PEOPLE, {401, 403, 405}),
    **dict.fromkeys(ALERTS, {401, 403, 405, 415, 422}),
    "v1/alerts/channels/<int:channel_id>/test": {401, 403, 404},
    "v1/alerts/channels/<int:channel_id>/ask": {401, 403, 404},
    "v1/alerts/deliveries/<int:delivery_id>/again": {401, 403, 404},
    "v1/enrol": {401, 403, 415},
    "v1/agents/<int:key_id>/revoke": {401, 403, 404},
    "v1/agents/<int:key_id>/accept": {401, 403, 404},
    "v1/incidents/<int:incident_id>/acknowledge": {401, 403, 404},
    "v1/incidents/<int:incident_id>/notes": {401, 403, 404},
    "v1/reviews/looks": {401, 403, 415},
    "v1/reviews/looks/<int:look_id>/take-back": {401, 403, 404},
    "v1/anchors": {401, 403, 415},
    **{f"v1/settings/{kind}{form}": {401, 403, 415} for kind in DATED for form in ("", ".csv", ".json")},
    **dict.fromkeys(ENDS, {401, 403, 404, 422}),
    "v1/contracts": {401, 403, 415},
    "v1/contracts/<int:contract_id>/rows": {401, 403, 404},
    "v1/contracts/<int:contract_id>/reports": {401, 403, 404},
    "v1/claims/<int:claim_id>/steps": {401, 403, 404},
    "v1/batches": {401, 415},
}


def entry(table: dict[str, Any], route: str) -> Any:
    """The expectation for a route: its own entry, else that of a group it belongs to (`…*`); KeyError without one."""
    if route in table:
        return table[route]
    groups = [group for group in table if group.endswith("*") and route.startswith(group[:-1])]
    if not groups:
        raise KeyError(f"/{route} has no entry: say in this table what outsiders get there")
    return table[max(groups, key=len)]


@pytest.fixture
def marked(beta: Any, key_of: Any) -> Any:
    """Beta with a folded-or-not batch of a cluster whose name gives it away."""
    from django_tenants.utils import tenant_context

    from fleet.models import Cluster

    headers = {"authorization": f"Bearer {key_of(beta)}", "content-encoding": "gzip"}
    body, _ = packed(cluster_id=MARKER)
    sent = Client(HTTP_HOST="localhost").post("/v1/batches", body, "application/msgpack", headers=headers)
    assert sent.status_code == 202
    with tenant_context(beta):
        Cluster.objects.get_or_create(name=MARKER)
    return beta


@pytest.fixture(params=["nobody", "member", "key"])
def asker(request: pytest.FixtureRequest, client_of: Any) -> tuple[str, Client]:
    """(who, a client of theirs)."""
    match request.param:
        case "nobody":
            return "nobody", client_of(None)
        case "member":
            return "member", client_of(request.getfixturevalue("ada"))
        case "key":
            token = request.getfixturevalue("key_of")(request.getfixturevalue("alpha"))
            return "key", Client(HTTP_HOST="localhost", HTTP_AUTHORIZATION=f"Bearer {token}")
    raise AssertionError(request.param)


def test_every_route_has_an_entry_and_every_entry_a_route() -> None:
    known = routes()
    assert len(known) > 20
    for table in (GET, POST):
        for route in known:
            entry(table, route)
        for written in table:
            assert any(
                route == written or (written.endswith("*") and route.startswith(written[:-1])) for route in known
            )


def test_a_new_route_without_an_entry_is_noticed() -> None:
    with pytest.raises(KeyError, match="say in this table"):
        entry(GET, "o-new/<slug:org_slug>/")


def test_lan_outsiders_see_nothing(asker: tuple[str, Client], marked: Any, lan: Any) -> None:
    who, client = asker
    for route in routes():
        path = path_of(route, org_slug=marked.slug)
        response = client.get(path)
        expected = entry(GET, route)[who]
        assert response.status_code in expected, (who, path, response.status_code)
        assert MARKER not in words_of(response), (who, path)


def test_lan_outsiders_change_nothing(asker: tuple[str, Client], marked: Any, lan: Any) -> None:
    who, client = asker
    for route in sorted(routes(), key=lambda route: route == "logout/"):  # last: it signs the member out
        path = path_of(route, org_slug=marked.slug)
        response = client.post(path)
        assert response.status_code in entry(POST, route), (who, path, response.status_code)
        assert MARKER not in words_of(response), (who, path)


@pytest.mark.parametrize("method", ["put", "patch", "delete"])
def test_no_other_method_does_anything(method: str, asker: tuple[str, Client], marked: Any, lan: Any) -> None:
    who, client = asker
    for route in routes():
        path = path_of(route, org_slug=marked.slug)
        response = getattr(client, method)(path)
        is_page_that_reads_only = route in ("", "healthz", "readyz") or route.startswith(
            ("login/", "password/", "account/")
        )
        assert response.status_code in {302, 401, 403, 404, 405, 410, 415} or is_page_that_reads_only, (who, path)
        assert response.status_code < 500, (who, path)


def test_local_mode_opens_its_own_org_and_no_other(asker: tuple[str, Client], marked: Any, local: Any) -> None:
    """Whoever brings no key gets the org `local`; everything else is as in lan mode."""
    who, client = asker
    for route in routes():
        path = path_of(route, org_slug=marked.slug)
        response = client.get(path)
        expected = entry(GET, route)[who]
        if who == "nobody" and expected == {401}:
            expected = {403} if route in (*PEOPLE, *ALERTS) else {200, 404}
        if who == "member" and route in (*PEOPLE, *ALERTS):
            expected = {400}  # two orgs to choose from
        if who == "member" and entry(GET, route) is API:
            expected = {200, 400, 404}  # two orgs to choose from: the API asks which
        assert response.status_code in expected, (who, path, response.status_code)
        assert MARKER not in words_of(response), (who, path)


def test_betas_own_people_and_keys_do_see_it(marked: Any, bo: Any, client_of: Any, key_of: Any, lan: Any) -> None:
    """The marker can be seen at all: otherwise the tests above prove nothing."""
    assert MARKER in client_of(bo).get("/v1/batches").content.decode()
    keyed = Client(HTTP_HOST="localhost", HTTP_AUTHORIZATION=f"Bearer {key_of(marked)}")
    assert MARKER in keyed.get("/v1/batches").content.decode()
    assert MARKER in keyed.get("/v1/clusters").content.decode()


def test_a_key_of_one_cluster_does_not_see_the_others(marked: Any, key_of: Any, lan: Any) -> None:
    keyed = Client(HTTP_HOST="localhost", HTTP_AUTHORIZATION=f"Bearer {key_of(marked, 'read', cluster='c1')}")
    for route in (route for route in routes() if route.startswith("v1/")):
        assert MARKER not in words_of(keyed.get(path_of(route))), route


def test_an_ingest_key_reads_nothing(marked: Any, key_of: Any, lan: Any) -> None:
    keyed = Client(HTTP_HOST="localhost", HTTP_AUTHORIZATION=f"Bearer {key_of(marked, 'ingest')}")
    for route in routes():
        if entry(GET, route) is API:
            response = keyed.get(path_of(route))
            assert response.status_code in {403, 404}, route


def test_a_member_cannot_choose_a_strangers_org_in_the_api(marked: Any, ada: Any, client_of: Any, lan: Any) -> None:
    for route in routes():
        if entry(GET, route) is API:
            response = client_of(ada).get(path_of(route) + "?org=beta")
            assert response.status_code == 404, route
            assert response["Content-Type"] == "application/problem+json"
