"""The list of attacks is whole, each has a test that exists or says why not, and the table is of this list."""

from __future__ import annotations

import re
from pathlib import Path

from goodput_site.tests.attack_table import attacks, table

ROOT = Path(__file__).resolve().parents[2]
HOW_MANY = {"I": 40, "T": 22, "P": 8, "W": 22, "A": 22, "S": 13, "E": 30}
A_TEST = re.compile(r"^\s*(?:async )?def (test_\w+)", re.M)


def nodeids() -> list[str]:
    """Every test function there is, without its cases."""
    files = [
        file for top in ("agent", "orgs", "fleet", "claims", "goodput_site") for file in (ROOT / top).rglob("test_*.py")
    ]
    return [f"{file.relative_to(ROOT)}::{name}" for file in files for name in A_TEST.findall(file.read_text())]


def test_the_list_has_every_attack_once() -> None:
    assert [attack.id for attack in attacks()] == [
        f"{kind}{number:02}" for kind, count in HOW_MANY.items() for number in range(1, count + 1)
    ]


def test_each_attack_has_a_test_or_a_reason() -> None:
    there = nodeids()
    untried = [
        attack.id
        for attack in attacks()
        if not attack.open
        and not any(attack.is_tried_by(nodeid) for nodeid in there)
        and not _by_case(attack.tests, there)
    ]
    assert untried == []


def test_each_pattern_meets_a_test() -> None:
    there = nodeids()
    for attack in attacks():
        for pattern in attack.tests:
            assert _by_case((pattern,), there), f"{attack.id}: no test is called {pattern}"


def _by_case(patterns: tuple[str, ...], there: list[str]) -> bool:
    """Whether the functions of patterns that name a case (`name[[]case]`) exist."""
    from fnmatch import fnmatchcase

    bare = [pattern.partition("[[]")[0] for pattern in patterns]
    return any(fnmatchcase(nodeid.replace("::test_", "::"), pattern) for nodeid in there for pattern in bare)


def test_a_failed_case_shows_in_the_table() -> None:
    nodeid = "fleet/tests/ingest/test_gzip.py::test_i02_gzip_in_gzip_is_refused"
    assert "| I02 | gzip in gzip | 400 | 1 failed |" in table({nodeid: "failed"})
    assert "| I02 | gzip in gzip | 400 | 1 passed |" in table({nodeid: "passed"})
    assert "| I02 | gzip in gzip | 400 | not tried |" in table({})


def test_the_table_in_the_docs_is_of_this_list_and_a_run_without_failures() -> None:
    page = (ROOT / "docs" / "security-tests.md").read_text()
    rows = dict(re.findall(r"^\| (\w\d\d) \| (.*) \|$", page, re.M))
    assert list(rows) == [attack.id for attack in attacks()]
    for attack in attacks():
        assert rows[attack.id].startswith(f"{attack.attack} | {attack.expected} | "), attack.id
        assert rows[attack.id].endswith(f" | {attack.open}"), attack.id
        assert not re.search(r"\d failed", rows[attack.id]), attack.id
        assert attack.open or "passed" in rows[attack.id], attack.id
