"""One's own account in a real browser: a passkey is made and used, an app is set up, every page is clean."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from goodput_site.tests.browser.test_fleet_page import problems_of
from goodput_site.tests.browser.test_people_pages import enter  # noqa: F401

pytestmark = [pytest.mark.full, pytest.mark.slow]
PASSWORD = "correct horse battery"


def device(page: Any) -> None:
    """A phone or key that this browser knows and that says yes to everything (WebAuthn's virtual authenticator)."""
    protocol = page.context.new_cdp_session(page)
    protocol.send("WebAuthn.enable", {"enableUI": False})
    options = {
        **{"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True},
        **{"isUserVerified": True, "automaticPresenceSimulation": True},
    }
    protocol.send("WebAuthn.addVirtualAuthenticator", {"options": options})


def assert_good(there: Any, width: int) -> None:
    """No violation, no overflow, nothing that axe finds."""
    there.assert_clean()
    assert there.page.evaluate("document.documentElement.scrollWidth") <= width
    assert problems_of(there.page) == []


def sign_out(there: Any) -> None:
    """By the menu."""
    there.go("/")
    there.page.get_by_label("Menu").click()
    there.page.get_by_role("button", name="Sign out").click()
    there.page.wait_for_load_state()


@pytest.mark.parametrize(("width", "colours"), [(390, "dark"), (1440, "light")])
def test_a_passkey_lets_in_without_a_password(visit: Any, enter: Any, width: int, colours: str) -> None:  # noqa: F811
    there, email = visit(width, colours), f"passkey-{width}@local.example"
    device(there.page)
    enter(there, "--owner-of", "local", email=email)
    assert_good(there, width)  # the page that asks for a first password
    there.page.get_by_label("New password", exact=True).fill(PASSWORD)
    there.page.get_by_label("New password, again").fill(PASSWORD)
    there.page.get_by_role("button", name="Set password").click()
    there.page.wait_for_load_state()
    for path in ("/account/second-factor/", "/account/sessions/", "/password/", "/account/second-factor/webauthn/add/"):
        there.go(path)
        assert_good(there, width)
    there.page.get_by_label("Name").fill("my phone")
    there.page.get_by_label("It replaces the password as well").check()
    there.page.get_by_role("button", name="Add").click()
    there.page.wait_for_selector("#codes")
    assert len(there.page.locator("#codes").inner_text().split()) == 10
    assert_good(there, width)
    there.go("/account/second-factor/webauthn/")
    assert "my phone" in there.page.content()
    assert_good(there, width)

    sign_out(there)
    there.go("/login/")
    assert_good(there, width)
    there.page.get_by_role("button", name="Sign in with a passkey").click()
    there.page.wait_for_url("**/o/local/")
    assert email in there.page.content()  # the menu says who is in

    sign_out(there)
    there.go("/login/")
    there.page.get_by_label("E-mail address").fill(email)
    there.page.get_by_label("Password").fill(PASSWORD)
    there.page.get_by_role("button", name="Sign in", exact=True).click()
    there.page.wait_for_url("**/account/second-factor/authenticate/")
    assert_good(there, width)
    there.page.get_by_role("button", name="Use a passkey").click()
    there.page.wait_for_url("**/o/local/")
    there.assert_clean()


def test_an_app_is_set_up_from_its_picture(visit: Any, enter: Any) -> None:  # noqa: F811
    from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value

    there = visit(390, "light")
    enter(there, "--owner-of", "local", email="app@local.example")
    there.go("/account/second-factor/totp/activate/")
    assert_good(there, 390)
    assert there.page.locator(".qr svg path").bounding_box()["width"] > 100
    secret = re.sub(r"\s", "", there.page.locator("#totp-secret").inner_text())
    there.page.get_by_label("Authenticator code").fill(format_hotp_value(hotp_value(secret, int(time.time()) // 30)))
    there.page.get_by_role("button", name="Turn on").click()
    there.page.wait_for_selector("#codes")
    there.go("/account/second-factor/totp/deactivate/")
    assert_good(there, 390)


def test_an_address_without_a_name_offers_no_passkey(visit: Any, enter: Any) -> None:  # noqa: F811
    """Browsers refuse them there, so the page says so instead of failing."""
    there = visit(1440, "light")
    there.page.goto(there.server.url.replace("localhost", "127.0.0.1") + "/login/")
    assert there.page.get_by_role("button", name="Sign in with a passkey").count() == 0
