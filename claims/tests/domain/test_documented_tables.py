"""Every line of the tables in docs/sla-arithmetic.md is what the code computes."""

from __future__ import annotations

import pytest

from claims.tests.domain.tables import compute, lines

LINES = list(lines())


def test_the_document_has_tables():
    assert len(LINES) > 40


@pytest.mark.parametrize(("heading", "cells"), LINES, ids=lambda value: value if isinstance(value, str) else None)
def test_line(heading, cells):
    slots, fields, rows, answer = cells
    found = compute(slots, fields, rows)
    for item in answer.split(";"):
        name, _, wanted = item.strip().partition("=")
        assert found.get(name, "") == wanted, f"{heading}: {slots}: {name} is {found.get(name)}"
