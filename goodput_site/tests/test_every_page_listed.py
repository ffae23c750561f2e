"""The walk through all pages forgets none: its list is compared with the URL configuration."""

from __future__ import annotations

import pytest
from django.test import Client

from goodput_site.tests.browser.pages import NO_PAGE, PAGES, SENT_ONLY, kind_of
from goodput_site.tests.routes import path_of, routes


def test_every_route_is_a_page_with_states_or_says_why_it_is_none() -> None:
    known = [route for route in routes() if not route.startswith("admin/")]
    kinds = {route: kind_of(route) for route in known}
    assert sum(kind == "page" for kind in kinds.values()) > 50
    assert set(PAGES) <= set(known), "a page that is gone"
    assert all(PAGES[route] for route in PAGES)


def test_a_new_page_without_an_entry_is_noticed() -> None:
    with pytest.raises(KeyError, match="stands in no list"):
        kind_of("o/<slug:org_slug>/weather/")
    with pytest.raises(KeyError, match="stands in no list"):
        kind_of("o/<slug:org_slug>/settings/weather/")


def test_no_entry_covers_nothing() -> None:
    """A pattern that matches no route any more would hide the next one that it matches."""
    used = {kind_of(route) for route in routes()}
    assert set(NO_PAGE.values()) <= used
    assert SENT_ONLY


@pytest.mark.django_db
def test_what_is_only_sent_shows_no_page(ada: object, client_of: object, lan: object) -> None:
    from typing import Any

    made: Any = client_of
    member: Client = made(ada)
    wrong = {}
    for route in routes():
        if kind_of(route) == "sent" and route.startswith("o/"):
            status = member.get(path_of(route, org_slug="alpha")).status_code
            if status != 405:
                wrong[route] = status
    assert wrong == {}
