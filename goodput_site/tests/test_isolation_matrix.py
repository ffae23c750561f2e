"""Who gets what: every route of an org, of the API and of the console × everybody (isolation_table.py).

Two orgs hold rows with the same primary keys and different names. No answer to anybody may hold the name of an org
that is not theirs.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import pytest
from django.test import Client

from goodput_site.tests.isolation_table import (
    KEYS,
    MINE,
    NOTHING,
    PEOPLE,
    PLANTED,
    SHOWS,
    STRANGERS,
    TABLE,
    THEIRS,
    O,
    ours,
    path_for,
    plant,
)
from goodput_site.tests.routes import routes, words_of
from goodput_site.tests.test_outsiders import entry

pytestmark = pytest.mark.django_db
LINK = re.compile(r'(?:href|hx-get)="([^"#]*)')


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
