"""The pages in a browser: nothing for axe to find, nothing wider than the screen, nothing that the policy blocks."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from django.db import connection
from django_tenants.utils import tenant_context

from claims.models import Claim
from claims.services import Actor, add_contract, add_overlay, read_terms
from claims.services_reports import issue_report
from claims.tests.conftest import NOW
from claims.tests.months import DOWN, fill, terms

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.full,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here"),
]
SCREENS = ((1280, "light"), (1280, "dark"), (390, "light"), (320, "dark"))


@pytest.fixture
def paths(alpha: Any) -> list[str]:
    """Every page of an org with an issued month, a claim, and a contract that can't be measured."""
    with tenant_context(alpha):
        actor = Actor("ada@alpha.example", alpha)
        fill(faults={"g3": [(10_000, 10_960, DOWN)], "g6": [(10_000, 10_960, DOWN)]}, gap=(500, 512))
        made = [
            add_contract(read_terms(terms(name=f'"{name} {alpha.pk}"', counts=counts)), actor).contract
            for name, counts in (("Browser", '["hardware_failure"]'), ("Reach", '["unreachable"]'))
        ]
        add_overlay(actor, contract=None, kind="entitlement", resource="gpu-017", starts_at="2026-09-01T00:00:00Z")
        report = issue_report(made[0], "2026-10", actor, now=NOW)
        claim = Claim.objects.get(report=report)
    connection.set_schema_to_public()
    return [
        "sla/?all=1&month=2026-10", *(f"sla/{one.pk}/?month=2026-10" for one in made), "sla/catalog/", "sla/new/",
        "reports/", f"reports/{report.pk}/", "claims/", f"claims/{claim.pk}/",
    ]  # fmt: skip


def test_pages_are_accessible_and_fit(
    live_server: Any, paths: list[str], ada: Any, client_of: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import sync_playwright

    settings.ALLOWED_HOSTS = ["*"]
    name = settings.SESSION_COOKIE_NAME
    cookie = {"name": name, "value": client_of(ada).cookies[name].value, "url": live_server.url}
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    errors: list[str] = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for width, scheme in SCREENS:
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
            context.add_cookies([cookie])
            page = context.new_page()
            page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
            for path in paths:
                page.goto(f"{live_server.url}/o/alpha/{path}")
                found = Axe().run(page).response["violations"]
                assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found] == [], (path, width, scheme)
                assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, (path, width)
                assert errors == [], (path, errors)
        browser.close()
