"""The short list of what needs attention: many silent nodes are one line, and that line is never the one left out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.attention import Trouble, gathered, shortened
from fleet.models import NodeLive
from fleet.tests.test_pages import fill, text_of


def trouble(number: int, code: str) -> Trouble:
    """Of one node: a fault that is known, or its silence."""
    is_fault = code != "NO_DATA"
    node = f"n{number}"
    return Trouble(
        number, node, "train", "down" if is_fault else "unknown", code, "", "", "", "none", None, (), is_fault, True,
        headline=f"{node}: {code}",
    )  # fmt: skip


def test_the_silence_of_many_nodes_is_told_beside_more_faults_than_are_listed() -> None:
    faults = [trouble(number, "XID_79") for number in range(10)]
    silent = [trouble(number, "NO_DATA") for number in range(20, 50)]
    told = [one.headline for one in shortened(gathered([*faults, *silent]), 8)]
    assert told == [*(f"n{number}: XID_79" for number in range(7)), "30 nodes are silent"]


def test_the_list_stays_as_it_is_where_nothing_of_many_is_left_out() -> None:
    faults = [trouble(number, "XID_79") for number in range(10)]
    assert shortened(faults, 8) == faults[:8]
    all_of_it = gathered([*faults[:3], *(trouble(number, "NO_DATA") for number in range(20, 50))])
    assert shortened(all_of_it, 8) == all_of_it
    one_silent = [*faults, trouble(20, "NO_DATA")]
    assert shortened(gathered(one_silent), 8) == faults[:8]


@pytest.mark.django_db
def test_the_line_of_many_silent_nodes_leads_to_all_of_them(alpha: Any, ada: Any, client_of: Any) -> None:
    fill(alpha, nodes=4, minutes=2)
    with tenant_context(alpha):
        NodeLive.objects.update(last_sample_at=timezone.now() - timedelta(hours=1))
    response = client_of(ada).get("/o/alpha/")
    page = response.content.decode()
    assert "4 nodes are silent" in text_of(response)
    assert '?state=unknown">4 nodes are silent</a>' in page
