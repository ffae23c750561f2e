"""Node, timeline and incidents in a real browser: clean at every width, axe finds nothing, a click finds its slot."""

from __future__ import annotations

import re
from typing import Any

import pytest

from goodput_site.tests.browser.test_fleet_page import BREAK, problems_of

pytestmark = [pytest.mark.full, pytest.mark.slow]

HAPPEN = """
from django_tenants.utils import tenant_context
from fleet.models import Incident, IncidentNote, Node
from orgs.models import Org
import time
with tenant_context(Org.objects.get(slug="local")):
    node = Node.objects.get(name="sim-0002")
    first = int(time.time()) // 15 - 200
    for number in range(3):
        code = ("GPU_MISSING", "XID_48", "HW_THERMAL")[number]
        span = [first, first + 79, (0, 0, 50)[number]]
        part = {"subject": f"g{number + 1}", "first_slot": first, "end_slot": first + 80, "bad_slots": 80,
                "lost": 8000 - number * 2000, "weight": span[2], "codes": {code: span}, "settled": None}
        one = Incident.objects.create(
            node=node, cluster_id=node.cluster_id, scope="gpu", code=code, party="infrastructure", weight=span[2],
            first_slot=first, end_slot=first + 80, is_open=number != 1, lost_gpu_seconds=1200, parts=[part])
        IncidentNote.objects.create(incident=one, author="ada@alpha.example", text="Asked the provider.")
        print(f"incident={one.pk}")
"""
PAGES = (
    "/o/local/nodes/2/",
    "/o/local/nodes/1/?period=7d",
    "/o/local/nodes/2/gpus/1/",
    "/o/local/nodes/2/gpus/3/?at=2026-01-01T00:00:00Z",
    "/o/local/nodes/2/gpus/3/?at=nonsense",
    "/o/local/incidents/",
    "/o/local/incidents/?state=open&party=ambiguous",
    "/o/local/incidents/1/",
    "/o/local/settings/clusters/",
)


@pytest.fixture(scope="module", autouse=True)
def bad_day(server: Any) -> None:
    """One node shows every state and has incidents; none falls silent while the tests run."""
    server.manage("shell", "-c", BREAK.replace("timezone.timedelta", "__import__('datetime').timedelta"))
    server.manage("shell", "-c", HAPPEN)


def opened(there: Any, path: str) -> Any:
    """The page at this path, with its parts that come later."""
    if "incidents/1/" in path:
        there.go("/o/local/incidents/?node=sim-0002")
        path = there.page.locator(".issue .what a").first.get_attribute("href")
    response = there.go(path)
    there.page.wait_for_load_state("networkidle")
    return response


@pytest.mark.parametrize("path", PAGES)
def test_it_is_clean_in_all_shapes(visit: Any, path: str) -> None:
    there = visit(390)
    response = opened(there, path)
    assert response.status == (422 if "nonsense" in path else 200)
    for width, colours in there.in_all_shapes():
        assert there.page.evaluate("document.documentElement.scrollWidth") <= width, (width, colours)
        if width in (390, 1440):
            assert problems_of(there.page) == [], (width, colours)
    there.errors = [error for error in there.errors if "status of 422" not in error]
    there.assert_clean()


def test_what_happened_is_two_clicks_from_the_fleet(visit: Any) -> None:
    there = visit()
    there.go("/o/local/")
    there.page.get_by_role("link", name="sim-0002", exact=True).click()
    there.page.wait_for_url(re.compile(r"/nodes/\d+/"))
    there.page.get_by_role("link", name="GPU 1 of sim-0002, slot by slot").click()
    there.page.wait_for_url(re.compile(r"/gpus/1/"))
    assert "Facts as received" in there.page.locator("main").inner_text()
    there.assert_clean()


def test_a_click_on_the_hour_opens_the_slot_under_it(visit: Any) -> None:
    there = visit()
    there.go("/o/local/nodes/2/gpus/1/")
    there.page.get_by_role("link", name="← day").click()
    there.page.wait_for_url(re.compile(r"at="))
    strip = there.page.locator(".lane.chosen .slots")
    box = strip.bounding_box()
    assert box
    strip.click(position={"x": box["width"] * 0.5, "y": 10})
    there.page.wait_for_url(re.compile(r"at=\d{4}-\d\d-\d\dT\d\d:30:00Z"))
    there.page.get_by_role("link", name="15 s →").click()
    there.page.wait_for_url(re.compile(r"at=\d{4}-\d\d-\d\dT\d\d:30:15Z"))
    there.page.go_back()
    assert "30:00Z" in there.page.url
    there.assert_clean()


def test_events_and_days_come_by_themselves(visit: Any) -> None:
    there = visit()
    there.go("/o/local/nodes/2/")
    there.page.locator("#days svg.days").wait_for()
    there.page.locator("#events h2").wait_for()
    there.page.get_by_text("Show the events").wait_for(state="detached")
    there.page.locator("[data-refresh]").click()
    there.page.wait_for_timeout(600)
    assert there.page.locator("#days svg.days").count() == 1
    there.assert_clean()


def test_a_note_and_a_ticket_are_kept(visit: Any) -> None:
    there = visit(390)
    opened(there, "/o/local/incidents/1/")
    page = there.page
    page.get_by_label("Note").fill("Fan 3 replaced.")
    page.get_by_role("button", name="Add the note").click()
    page.locator("#story").get_by_text("Fan 3 replaced.").wait_for()
    page.get_by_label("Ticket number at the provider").fill("48213")
    page.get_by_role("button", name="Keep").click()
    page.locator(".notes").get_by_text("Kept.").wait_for()
    assert page.get_by_label("Ticket number at the provider").input_value() == "48213"
    there.assert_clean()
