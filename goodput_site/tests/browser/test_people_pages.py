"""Settings and the provider's console in a real browser: clean at every width, axe finds nothing, forms work."""

from __future__ import annotations

import re
from typing import Any

import pytest

from goodput_site.tests.browser.test_fleet_page import problems_of

pytestmark = [pytest.mark.full, pytest.mark.slow]


@pytest.fixture
def enter(server: Any) -> Any:
    """A function: sign this visit in by a one-time link, as owner of `local` or as provider staff."""

    def go(there: Any, *flags: str, email: str) -> None:
        printed = server.manage("create_user", "--email", email, "--base-url", server.url, *flags)
        there.page.goto(re.search(r"link: (\S+)", printed)[1])  # type: ignore[index]
        there.page.get_by_role("button", name="Enter").click()
        there.page.wait_for_load_state()

    return go


@pytest.mark.parametrize(("width", "colours"), [(320, "light"), (390, "dark"), (1440, "light"), (1440, "dark")])
def test_settings_pages_are_clean(visit: Any, enter: Any, width: int, colours: str) -> None:
    there = visit(width, colours)
    enter(there, "--owner-of", "local", email="owner@local.example")
    for part in ("members", "keys", "audit"):
        assert there.go(f"/o/local/settings/{part}/").status == 200
        there.assert_clean()
        assert there.page.evaluate("document.documentElement.scrollWidth") <= width
        assert problems_of(there.page) == []


def test_a_key_is_made_and_revoked_by_keyboard_and_click(visit: Any, enter: Any) -> None:
    there = visit()
    enter(there, "--owner-of", "local", email="owner@local.example")
    there.go("/o/local/settings/keys/")
    there.page.get_by_label("Name").fill("rack 7")
    there.page.get_by_label("Name").press("Enter")
    there.page.wait_for_load_state()
    secret = there.page.locator("#secret").inner_text()
    assert secret.startswith("gp_")
    assert f"--endpoint {there.server.url}/v1/batches" in there.page.locator("#run").inner_text()
    assert problems_of(there.page) == []
    there.page.get_by_role("link", name="Done").click()
    there.page.wait_for_load_state()
    assert secret not in there.page.content()
    there.page.locator("tr", has_text="rack 7").locator("summary").first.click()
    assert problems_of(there.page) == []
    there.page.get_by_role("button", name="Revoke rack 7").first.click()
    there.page.wait_for_load_state()
    assert "revoked" in there.page.locator("tr", has_text="rack 7").first.inner_text()
    there.assert_clean()


@pytest.mark.parametrize(("width", "colours"), [(390, "light"), (1440, "dark")])
def test_a_customer_is_made_from_the_console(visit: Any, enter: Any, width: int, colours: str) -> None:
    """Then its owner joins by the link on another machine, and the provider looks at it as a customer."""
    there, slug = visit(width, colours), f"customer-{width}"
    enter(there, "--provider", email="pat@provider.example")
    for path in ("/provider/", "/provider/jobs/", "/provider/audit/", "/provider/orgs/new/"):
        there.go(path)
        there.assert_clean()
        assert there.page.evaluate("document.documentElement.scrollWidth") <= width
        assert problems_of(there.page) == []
    for label, value in (("Name", "Customer"), ("Short name", slug), ("E-mail address", f"{slug}@x.example")):
        there.page.get_by_label(label, exact=label == "Name").first.fill(value)
    there.page.get_by_role("button", name="Create org").click()
    there.page.wait_for_selector("#link")
    link = there.page.locator("#link").inner_text()
    assert problems_of(there.page) == []
    there.assert_clean()

    owner = visit(width, colours)
    owner.page.goto(link)
    assert problems_of(owner.page) == []
    owner.page.get_by_label("Password").fill("correct horse battery")
    owner.page.get_by_role("button", name="Join Customer").click()
    owner.page.wait_for_url(f"**/o/{slug}/")
    owner.assert_clean()

    there.page.get_by_role("link", name="Done").click()
    there.page.get_by_role("button", name="View as customer").click()
    there.page.wait_for_url(f"**/o/{slug}/")
    assert "viewing as customer" in there.page.content()
    there.page.get_by_role("button", name="End the view").click()
    there.page.wait_for_url("**/provider/orgs/*/")
    assert problems_of(there.page) == []
