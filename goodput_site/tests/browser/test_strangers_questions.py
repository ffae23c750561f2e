"""A stranger's questions, each answered within two clicks from the Fleet page, on the bad days of the walk.

What is broken now? Since when? Whose fault? What do I do? What happened to GPU 3 of node-17 last Tuesday?
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import pytest

pytestmark = [pytest.mark.full, pytest.mark.slow]
FLEET = "/o/walk/"


class Stranger:
    """Somebody who never saw the product, and the clicks that they made."""

    def __init__(self, there: Any):
        self.there, self.page, self.clicks = there, there.page, 0

    def click(self, locator: Any) -> None:
        """Click once and wait for what comes."""
        self.clicks += 1
        locator.first.click()
        self.page.wait_for_load_state("networkidle")

    def reads(self, words: str) -> str:
        """What the page says, if it says this; whatever the case of its letters."""
        text = str(self.page.locator("main").inner_text())
        assert re.search(words, text, re.IGNORECASE), (words, text[:1500])
        return text


@pytest.fixture
def stranger(visit: Any, ids: dict[str, Any], sessions: dict[str, Any]) -> Stranger:
    """On the Fleet page, in a desktop's browser."""
    there = visit(storage_state=sessions["owner"])
    there.go(FLEET)
    there.page.wait_for_load_state("networkidle")
    return Stranger(there)


def test_what_is_broken_now_stands_on_the_first_screen(stranger: Stranger) -> None:
    top = stranger.page.evaluate(
        "[...document.querySelectorAll('main *')].filter(e => e.children.length === 0)"
        ".filter(e => e.getBoundingClientRect().bottom <= innerHeight).map(e => e.textContent).join(' ')"
    )
    assert re.search(r"GPU 3", top)
    assert re.search(r"GPU missing", top, re.IGNORECASE)
    assert stranger.clicks == 0


def test_since_when_whose_fault_and_what_to_do_stand_beside_it(stranger: Stranger) -> None:
    issue = stranger.page.locator(".issue", has_text="GPU missing").first.inner_text()
    assert re.search(r"\d+ (s|min|h)", issue)
    assert re.search(r"infrastructure", issue)
    assert re.search(r"Next", issue)
    assert stranger.clicks == 0


def test_one_incident_answers_all_four_in_two_clicks(stranger: Stranger) -> None:
    stranger.click(stranger.page.get_by_role("navigation", name="Main").get_by_role("link", name="Incidents"))
    stranger.reads("3 nodes of demo: GPU missing")
    stranger.click(stranger.page.get_by_role("link", name=re.compile("3 nodes of demo: GPU missing")))
    for words in ("open for", "whose fault", "infrastructure", "next:", "nodes in it"):
        stranger.reads(words)
    assert stranger.clicks == 2
    stranger.there.assert_clean()


def test_what_happened_to_gpu_3_last_tuesday_is_two_clicks(stranger: Stranger) -> None:
    """To the node, then on its GPU's strip of the week at that day: the slot opens, with its reason and its facts."""
    page = stranger.page
    stranger.there.go(f"{FLEET}?period=7d")
    stranger.click(page.get_by_role("link", name="sim-0002", exact=True))
    strip = page.locator("[data-span-from]").nth(3).locator(".strip")
    box = strip.bounding_box()
    first, end = (15 * int(strip.locator("..").get_attribute(f"data-span-{at}")) for at in ("from", "to"))
    strip.hover(position={"x": box["width"] / 4, "y": 4})
    assert re.search(r"\d+ \w{3}, \d\d:\d\d", page.locator(".tip").inner_text())
    stranger.clicks += 1
    strip.click(position={"x": box["width"] / 4, "y": 4})
    page.wait_for_url("**/gpus/3/?at=*")
    at = datetime.fromisoformat(re.search(r"at=([^#]+)", page.url)[1]).timestamp()  # type: ignore[index]
    assert abs(at - (first + (end - first) / 4)) < (end - first) / box["width"] + 15  # a pixel
    stranger.reads("GPU 3 of sim-0002")
    stranger.reads("Facts as received")
    assert page.get_by_role("link", name="← day").count() == 1
    assert stranger.clicks == 2
    stranger.there.assert_clean()


def test_a_past_fault_of_a_gpu_is_two_clicks_from_its_incident_list(stranger: Stranger, ids: dict[str, Any]) -> None:
    """Of the incident: the place itself, at the slot in which it began, with the facts as they were received."""
    stranger.there.go("/o/walk/incidents/?node=sim-0001&cluster=demo-claim")
    stranger.click(stranger.page.locator(f".issue a[href$='/incidents/{ids['incident']}/']"))
    stranger.click(stranger.page.locator(".portrow a.do"))
    stranger.reads("facts as received")
    assert "at=" in stranger.page.url
    assert stranger.clicks == 2


def test_which_hardware_fails_again_and_again_is_two_clicks(stranger: Stranger) -> None:
    stranger.click(stranger.page.get_by_role("navigation", name="Main").get_by_role("link", name="Incidents"))
    stranger.click(stranger.page.get_by_role("link", name="Statistics"))
    stranger.reads("Repeat offenders")
    stranger.reads("Between interruptions")
    assert stranger.clicks == 2
