"""The API's documentation in a real browser: nothing from elsewhere, no violation, and trying out works."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = [pytest.mark.full, pytest.mark.slow]


def test_the_documentation_opens_and_an_operation_can_be_tried(visit: Any) -> None:
    docs = visit()
    docs.go("/v1/docs")
    docs.page.wait_for_selector(".opblock", timeout=20_000)
    assert docs.page.locator(".opblock").count() > 15
    operation = docs.page.locator("#operations-v1-list_nodes, [id^=operations-][id$=list_nodes]").first
    operation.locator(".opblock-summary-control").click()
    operation.locator("button.try-out__btn").click()
    operation.locator("button.execute").click()
    operation.locator(".live-responses-table .response-col_status", has_text="200").wait_for(timeout=20_000)
    docs.assert_clean()
