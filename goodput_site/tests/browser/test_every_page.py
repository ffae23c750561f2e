"""Every page × its states × light and dark × widths, from the URL configuration, on bad days of `month_mixed`.

What is asked of each: its status, nothing wider than the screen, no console error, nothing that the policy blocks, no
request to another host, and that axe finds nothing. A usual run takes three of the ten for each state: a phone in
light, a desk in dark, and one of the others in turn; `GOODPUT_WALK=all` takes all of them, in a quarter of an hour.
"""

from __future__ import annotations

import os
from itertools import product
from typing import Any

import pytest

from goodput_site.tests.browser.pages import State, is_page, states_of
from goodput_site.tests.browser.test_fleet_page import problems_of
from goodput_site.tests.routes import routes

pytestmark = [pytest.mark.full, pytest.mark.slow]
WIDTHS = (320, 390, 820, 1440, 3840)
WITH_AXE = (390, 1440)
STATES = [(route, state) for route in routes() if is_page(route) for state in states_of(route)]
ALWAYS = ((390, "light"), (1440, "dark"))
OTHERS = tuple(pair for pair in product(WIDTHS, ("light", "dark")) if pair not in ALWAYS)


def walk(everything: bool) -> list[Any]:
    """(state, width, colours) of a run."""
    return [
        pytest.param(state, width, colours, id=f"{route or 'home'}: {state.name}, {width}, {colours}")
        for number, (route, state) in enumerate(STATES)
        for width, colours in (*ALWAYS, *(OTHERS if everything else (OTHERS[number % len(OTHERS)],)))
    ]


@pytest.fixture
def look(visit: Any, request: pytest.FixtureRequest) -> Any:
    """A function: this state at this width and in these colours, with everything that comes later loaded.

    Public pages need neither data nor a session, so that they can be walked alone in a moment.
    """

    def opened(state: State, width: int, colours: str) -> Any:
        path, session = state.path, None
        if state.who != "nobody":
            session = request.getfixturevalue("sessions")[state.who]
            path = path.format(**request.getfixturevalue("ids"))
        there = visit(width, colours, storage_state=session)
        response = there.go(path)
        there.page.wait_for_load_state("networkidle")
        assert response.status == state.status, (path, response.status)
        there.errors = [one for one in there.errors if f"status of {state.status}" not in one or state.status == 200]
        return there

    return opened


@pytest.mark.parametrize(("state", "width", "colours"), walk(os.environ.get("GOODPUT_WALK") == "all"))
def test_every_page_is_clean(look: Any, state: State, width: int, colours: str) -> None:
    there = look(state, width, colours)
    there.assert_clean()
    assert there.page.evaluate("document.documentElement.scrollWidth") <= width
    if state.is_ours:
        assert there.page.locator("h1").count() >= 1
    if state.is_ours and width in WITH_AXE:
        assert problems_of(there.page) == []
