"""The isolation tests are tested: each guard is taken away in a run of its own, and the run must fail.

The untouched run passes, so what fails does so because of the guard that is gone.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from goodput_site.tests.mutants import MUTANTS

pytestmark = [pytest.mark.full, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
FILES = ("orgs/tests/test_isolation.py", "goodput_site/tests/test_isolation_tasks.py")
ROUTES = "goodput_site/tests/test_isolation_matrix.py::test_isolation_everybody_gets_what_the_table_says"
# What must be among the failures.
NOTICED = {
    "membership": "test_isolation_everybody_gets_what_the_table_says",
    "cache_prefix": "test_a_cached_value_of_one_org_is_not_there_in_the_other",
    "schema_reset": "test_a_page_runs_in_the_org_of_its_path_and_leaves_it",
    "task_org": "test_isolation_a_task_of_a_missing_or_suspended_org_does_not_run",
    "key_org": "test_isolation_everybody_gets_what_the_table_says",
}


def failures(mutant: str) -> tuple[int, set[str]]:
    """(exit status, names of failed tests) of the isolation tests without this guard, on a database of their own."""
    base, name = os.environ["DATABASE_URL"], f"mutant_{secrets.token_hex(4)}"
    with psycopg.connect(base, autocommit=True) as admin:
        admin.execute(f'create database "{name}"')
    environ = {**os.environ, "DATABASE_URL": urlunsplit(urlsplit(base)._replace(path=f"/{name}"))}
    environ["GOODPUT_MUTANT"] = mutant
    command = [sys.executable, "-m", "pytest", "-q", "-p", "goodput_site.tests.mutants", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run([*command, *FILES, ROUTES], cwd=ROOT, env=environ, capture_output=True, text=True)
    finally:
        with psycopg.connect(base, autocommit=True) as admin:
            admin.execute(f'drop database "{name}" with (force)')
    found = set(re.findall(r"^(?:FAILED|ERROR) \S+?::(\w+)", done.stdout, re.MULTILINE))
    assert done.returncode in (0, 1), done.stdout[-3000:] + done.stderr[-2000:]
    return done.returncode, found


def test_with_every_guard_in_place_the_tests_pass() -> None:
    assert failures("") == (0, set())


@pytest.mark.parametrize("mutant", MUTANTS)
def test_without_this_guard_the_tests_fail(mutant: str) -> None:
    status, found = failures(mutant)
    assert status == 1
    assert NOTICED[mutant] in found, sorted(found)
