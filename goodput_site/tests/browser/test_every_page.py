"""Every page × its states × light and dark × widths, from the URL configuration, on bad days of `month_mixed`.

What is asked of each: its status, nothing wider than the screen, no console error, nothing that the policy blocks, no
request to another host, and that axe finds nothing.
"""

from __future__ import annotations

from typing import Any

import pytest

from goodput_site.tests.browser.pages import State, is_page, states_of
from goodput_site.tests.browser.test_fleet_page import problems_of
from goodput_site.tests.routes import routes

pytestmark = [pytest.mark.full, pytest.mark.slow]
WITH_AXE = {(390, "light"), (1440, "dark")}  # sizes and colours are the style sheet's: each is looked at once
# Mark, org and menu share a line of the header; on a phone the navigation alone has one of its own below.
HEAD_TORN = """(() => {
    const parts = [...document.querySelectorAll(".bar > .wordmark, .bar > .org, .bar > .menu, .bar > .right")];
    const boxes = parts.map((e) => e.getBoundingClientRect()).filter((r) => r.height);
    const middles = boxes.map((r) => r.top + r.height / 2);
    return Math.max(...middles, -Infinity) - Math.min(...middles, Infinity) > 12;
})()"""
STATES = [
    pytest.param(state, id=f"{route or 'home'}: {state.name}")
    for route in routes()
    if is_page(route)
    for state in states_of(route)
]


@pytest.fixture
def look(visit: Any, request: pytest.FixtureRequest) -> Any:
    """A function: this state on a phone in light, with everything that comes later loaded.

    Public pages need neither data nor a session, so that they can be walked alone in a moment.
    """

    def opened(state: State) -> Any:
        path, session = state.path, None
        if state.who != "nobody":
            session = request.getfixturevalue("sessions")[state.who]
            path = path.format(**request.getfixturevalue("ids"))
        there = visit(390, storage_state=session)
        response = there.go(path)
        there.page.wait_for_load_state("networkidle")
        assert response.status == state.status, (path, response.status)
        there.errors = [one for one in there.errors if f"status of {state.status}" not in one or state.status == 200]
        return there

    return opened


@pytest.mark.parametrize("state", STATES)
def test_every_page_is_clean(look: Any, state: State) -> None:
    there = look(state)
    if state.is_ours:
        assert there.page.locator("h1").count() >= 1
    for width, colours in there.in_all_shapes():
        assert there.page.evaluate("document.documentElement.scrollWidth") <= width, (width, colours)
        assert there.page.evaluate(HEAD_TORN) is False, (width, colours)
        if state.is_ours and (width, colours) in WITH_AXE:
            assert problems_of(there.page) == [], (width, colours)
    there.assert_clean()
