"""The Fleet page in a real browser: it renders cleanly everywhere, keeps its state in the URL, and lives."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

pytestmark = [pytest.mark.full, pytest.mark.slow]

FLEET = "/o/local/"
BREAK = """
from django_tenants.utils import tenant_context
from fleet.models import NodeLive
from orgs.models import Org
with tenant_context(Org.objects.get(slug="local")):
    live = NodeLive.objects.get(node__name="sim-0002")
    words = {"g1": (0, "GPU_MISSING"), "g2": (50, "HW_THERMAL")}
    for subject in live.summary["subjects"]:
        if subject["subject"] in words:
            weight, code = words[subject["subject"]]
            subject.update(nominal=weight, lower=weight, upper=weight, certain=[code], state="observed")
            condition = {"code": code, "party": "infrastructure", "since_ms": 1_795_990_000_000, "weight": weight}
            subject["conditions"] = [{**condition, "certain": True}]
        if subject["subject"] == "g5":
            subject.update(nominal=None, lower=100, upper=0, certain=["NVML_ERROR"], state="unknown")
        if subject["subject"] == "g6":
            subject.update(state="contested", upper=0, possible=["XID_48"])
    live.save(update_fields=["summary"])
    from django.utils import timezone
    NodeLive.objects.update(last_sample_at=timezone.now() + timezone.timedelta(hours=1))
"""


@pytest.fixture(scope="module", autouse=True)
def bad_day(server: Any) -> None:
    """One node shows every state; none falls silent while the tests run."""
    server.manage("shell", "-c", BREAK.replace("timezone.timedelta", "__import__('datetime').timedelta"))


def problems_of(page: Any) -> list[str]:
    """What axe finds, one line per rule and place."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page).response["violations"]
    return [f"{rule['id']}: {node['html'][:160]}" for rule in found for node in rule["nodes"]]


CUT = (
    "[...document.querySelectorAll('.big, h1, h2, h3, .chip, .what, td')]"
    ".filter(e => e.scrollWidth > e.clientWidth + 1)"
    ".filter(e => getComputedStyle(e).display !== 'inline')"
    ".map(e => e.outerHTML.slice(0, 120))"
)


@pytest.mark.parametrize("query", ["", "?open=2&period=7d", "?state=down&q=sim", "?q=nothing"])
def test_it_is_clean_in_all_shapes(visit: Any, query: str) -> None:
    there = visit(390)
    assert there.go(FLEET + query).status == 200
    assert (there.page.locator(".node").count() >= 1) is (query != "?q=nothing")
    for width, colours in there.in_all_shapes():
        assert there.page.evaluate("document.documentElement.scrollWidth") <= width, (width, colours)
        assert there.page.evaluate(CUT) == [], (width, colours)
        if width in (390, 1440):
            assert problems_of(there.page) == [], (width, colours)
    there.assert_clean()


@pytest.mark.parametrize("path", ["/login/", "/login/link/x/y/", "/no/such/page"])
def test_a_page_for_everybody_is_clean_in_all_shapes(visit: Any, path: str) -> None:
    there = visit(390)
    there.go(path)
    for width, colours in there.in_all_shapes():
        if width in (390, 1440):
            assert problems_of(there.page) == [], (width, colours)


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_axe_finds_nothing_in_the_open_menu(visit: Any, colours: str) -> None:
    there = visit(colours=colours)
    there.go(FLEET)
    there.page.locator("summary[aria-label=Menu]").click()
    assert problems_of(there.page) == []


def test_every_state_has_a_word_and_a_shape(visit: Any) -> None:
    there = visit()
    there.go(FLEET)
    cards = there.page.locator("#live .card")
    words = " ".join(cards.all_inner_texts())
    for word in ("available", "down", "degraded", "unknown", "contested"):
        assert word in words
    shapes = {
        there.page.locator(f".card .g-{name}").first.evaluate(
            "e => [e.className, getComputedStyle(e).clipPath, getComputedStyle(e).borderStyle,"
            " getComputedStyle(e).transform, getComputedStyle(e).borderRadius].join()"
        )
        for name in ("available", "down", "degraded", "unknown")
    }
    assert len(shapes) == 4


def test_a_chip_filters_by_the_url_and_back_restores(visit: Any) -> None:
    there = visit()
    there.go(FLEET)
    page = there.page
    names = page.locator(".node h3").all_inner_texts()
    assert sorted(names) == ["sim-0001", "sim-0002"]
    page.locator("#chip-down").click()
    page.wait_for_url("**/o/local/?state=down")
    assert page.locator(".node h3").all_inner_texts() == ["sim-0002"]
    page.locator("#period-7d").click()
    page.wait_for_url("**/o/local/?period=7d&state=down")
    page.go_back()
    page.wait_for_url("**/o/local/?state=down")
    assert page.locator("#period-24h").get_attribute("aria-current") == "true"
    page.go_back()
    page.wait_for_url(f"**{FLEET}")
    assert page.locator(".node h3").all_inner_texts() == names
    there.assert_clean()


def test_an_opened_node_is_in_the_url_and_survives_refresh_and_reload(visit: Any) -> None:
    there = visit()
    there.go(FLEET)
    page = there.page
    page.get_by_role("link", name="GPUs of sim-0002", exact=True).click()
    page.wait_for_url(re.compile(r"open=\d+"))
    table = page.locator(".gpus table")
    assert table.locator("tbody tr").count() == 8
    text = table.inner_text()
    assert "GPU missing" in text
    assert "Hardware thermal slowdown" in text
    assert len(re.findall(r"GPU-[0-9a-f]{8}-", text)) == 8
    refresh(page)
    assert page.locator(".gpus tbody tr").count() == 8
    page.reload()
    assert page.locator(".gpus tbody tr").count() == 8
    page.go_back()
    assert page.locator(".gpus").count() == 0


def refresh(page: Any) -> str:
    """Press Refresh; the new as-of. The page itself must not be loaded again."""
    page.evaluate("window.stillHere = true")
    before = page.locator("#live").get_attribute("data-as-of")
    page.locator("[data-refresh]").click()
    page.wait_for_function("b => document.getElementById('live').dataset.asOf !== b", arg=before)
    assert page.evaluate("window.stillHere") is True
    return str(page.locator("#asof time").get_attribute("datetime"))


def test_it_refreshes_in_place_and_when_the_tab_comes_back(visit: Any) -> None:
    there = visit()
    there.go(FLEET)
    page = there.page
    page.evaluate("scrollTo(0, 300)")
    refresh(page)
    assert page.evaluate("scrollY") == 300
    before = page.locator("#live").get_attribute("data-as-of")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_function("b => document.getElementById('live').dataset.asOf !== b", arg=before)
    there.assert_clean()


def test_it_asks_again_by_itself(visit: Any) -> None:
    there = visit()
    there.go(FLEET)
    before = there.page.locator("#live").get_attribute("data-as-of")
    there.page.wait_for_function("b => document.getElementById('live').dataset.asOf !== b", arg=before, timeout=20_000)
    there.assert_clean()


def test_a_lost_connection_is_said(visit: Any) -> None:
    there = visit()
    there.go(FLEET)
    there.page.route("**/o/local/**", lambda route: route.abort())
    there.page.locator("[data-refresh]").click()
    there.page.locator("[data-stale-word]").wait_for(state="visible")
    there.page.unroute("**/o/local/**")
    there.page.locator("[data-refresh]").click()
    there.page.locator("[data-stale-word]").wait_for(state="hidden")


def test_times_are_the_viewers_and_utc_on_hover(visit: Any) -> None:
    there = visit(timezone_id="Asia/Kolkata")
    there.go(FLEET)
    clock = there.page.locator("#asof time")
    hour, minute = (int(part) for part in clock.inner_text().split(":")[:2])
    utc = clock.get_attribute("datetime")
    assert (int(utc[11:13]) * 60 + int(utc[14:16]) + 330) % 1440 == hour * 60 + minute
    assert clock.get_attribute("title").endswith(" UTC")


def test_colours_are_remembered(visit: Any) -> None:
    there = visit(colours="light")
    there.go(FLEET)
    page = there.page
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("summary[aria-label=Menu]").click()
    page.locator("[data-theme-set=dark]").click()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark != light
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.locator("summary[aria-label=Menu]").click()
    page.locator("[data-theme-set=system]").click()
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == light
    there.assert_clean()


def test_everything_is_reached_by_the_keyboard(visit: Any) -> None:
    there = visit()
    there.go(FLEET)
    page = there.page
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate("(document.activeElement.id || document.activeElement.textContent || '').trim().slice(0, 30)")
        )
    assert reached[0] == "Skip to content"
    assert {"period-24h", "period-7d", "period-30d", "chip-down", "chip-unknown"} <= set(reached)
    assert any(re.fullmatch(r"o\d+", each) for each in reached)
    page.locator("summary[aria-label=Menu]").focus()
    page.keyboard.press("Enter")
    assert page.locator("details.menu[open]").count() == 1
    page.keyboard.press("Escape")
    assert page.locator("details.menu[open]").count() == 0


def test_host_index_and_uuid_show_on_hover(visit: Any) -> None:
    there = visit()
    there.go(FLEET)
    there.page.locator(".hint").focus()
    there.page.keyboard.press("Tab")
    there.page.keyboard.press("Shift+Tab")
    assert "lower bound" in there.page.locator(".tip").inner_text()
    title = there.page.locator(".card.down").get_attribute("title")
    assert re.match(r"sim-0002 · GPU 1\nGPU-[0-9a-f-]{36}$", title)


def test_it_is_an_app_of_the_home_screen(visit: Any) -> None:
    there = visit(390, height=844)
    there.go(FLEET)
    session = there.page.context.new_cdp_session(there.page)
    found = session.send("Page.getAppManifest")
    assert found["errors"] == []
    manifest = json.loads(found["data"])
    assert (manifest["name"], manifest["id"], manifest["scope"]) == ("Goodput", FLEET, "/")
    for icon in manifest["icons"]:
        assert there.page.request.get(there.server.url + icon["src"]).headers["content-type"] == "image/png"
    hindrances = {each["errorId"] for each in session.send("Page.getInstallabilityErrors")["installabilityErrors"]}
    assert hindrances <= {"in-incognito"}  # as every context of a test is
    left = "parseFloat(getComputedStyle(document.querySelector('.bar')).paddingLeft)"
    assert there.page.evaluate(left) < 40
    session.send("Emulation.setSafeAreaInsetsOverride", {"insets": {"left": 59, "right": 59, "bottom": 21}})
    assert there.page.evaluate(left) == 59
    assert there.page.locator("meta[content*=black-translucent]").count() == 0


@pytest.fixture
def owner_of_fresh(server: Any) -> str:
    """The one-time link of the owner of an org without any node."""
    server.manage("create_org", "fresh")
    said = server.manage("create_user", "--email", "olga@fresh.example", "--owner-of", "fresh")
    return re.search(r"/login/link/\S+", said).group(0)  # type: ignore[union-attr]


def test_from_the_link_to_the_first_node(visit: Any, server: Any, owner_of_fresh: str) -> None:
    there = visit()
    page = there.page
    there.go(owner_of_fresh)
    assert problems_of(page) == []
    page.get_by_role("button", name="Enter").click()
    page.wait_for_url("**/password/")
    assert problems_of(page) == []
    for box in page.locator("input[type=password]").all():
        box.fill("a long and strange sentence")
    page.get_by_role("button", name="Set password").click()
    page.wait_for_load_state()
    there.go("/o/fresh/")
    assert f"--endpoint {server.url}/v1/batches" in page.locator("#connect").inner_text()
    assert problems_of(page) == []
    page.evaluate("window.stillHere = true")
    server.simulate("fresh", nodes=1, minutes=3)
    page.get_by_role("link", name="sim-0001", exact=True).wait_for(timeout=15_000)
    assert page.evaluate("window.stillHere") is True
    there.assert_clean()
    page.get_by_role("button", name="Remove the demo").click()
    page.get_by_text("The simulated cluster demo is removed").wait_for()
    page.get_by_text("Waiting for the first node").wait_for()
    there.assert_clean()
    page.context.clear_cookies()  # the session ends: a refresh must lead to the login, not put it into the page
    page.locator("[data-refresh]").click()
    page.wait_for_url("**/login/?next=/o/fresh/")
    assert page.locator("h1").all_inner_texts() == ["Sign in"]


def test_signing_out(visit: Any, server: Any) -> None:
    said = server.manage("create_user", "--email", "sigrid@example.org", "--owner-of", "local")
    there = visit()
    there.go(re.search(r"/login/link/\S+", said).group(0))  # type: ignore[union-attr]
    there.page.get_by_role("button", name="Enter").click()
    there.page.wait_for_load_state()
    there.go(FLEET)
    there.page.locator("summary[aria-label=Menu]").click()
    assert "sigrid@example.org" in there.page.locator("header .menu .sheet").inner_text()
    there.page.get_by_role("button", name="Sign out").click()
    there.page.wait_for_load_state()
    there.page.locator("summary[aria-label=Menu]").click()
    assert there.page.get_by_role("link", name="Sign in").count() == 1
    there.assert_clean()
