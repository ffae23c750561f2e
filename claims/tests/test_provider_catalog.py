"""The SLA catalogue in the console: for staff, searchable, with what should be read again."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from claims.catalog import load_catalog
from claims.views_provider import is_old

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("lan")]


def test_staff_see_every_entry_and_where_it_comes_from(pat: Any, client_of: Any) -> None:
    page = client_of(pat).get("/provider/catalog/").content.decode()
    for entry in load_catalog():
        assert entry.source.replace("&", "&amp;") in page
    assert 'href="/provider/catalog/" aria-current="page"' in page  # its tab


def test_it_is_searched(pat: Any, client_of: Any) -> None:
    page = client_of(pat).get("/provider/catalog/?q=NEBIUS").content.decode()
    assert "Nebius" in page
    assert "Vultr" not in page
    assert "Nothing matches" in client_of(pat).get("/provider/catalog/?q=no-such-provider").content.decode()


def test_the_downloads_hold_what_the_page_shows(pat: Any, client_of: Any) -> None:
    client = client_of(pat)
    ids = {entry.id for entry in load_catalog()}
    assert {one["id"] for one in client.get("/provider/catalog.json").json()["entries"]} == ids
    assert len(client.get("/provider/catalog.csv").content.decode().splitlines()) == len(ids) + 1


def test_terms_that_nobody_read_for_a_quarter_are_marked() -> None:
    entry = load_catalog()[0]
    read = date.fromisoformat(entry.checked_on)
    assert not is_old(entry, date.fromordinal(read.toordinal() + 90))
    assert is_old(entry, date.fromordinal(read.toordinal() + 91))


def test_nobody_else_finds_it(ada: Any, client_of: Any) -> None:
    for path in ("/provider/catalog/", "/provider/catalog.csv", "/provider/catalog.json"):
        assert client_of(ada).get(path).status_code == 404
        assert client_of(None).get(path).status_code == 302
