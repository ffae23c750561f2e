"""Fixtures of the attacks on ingest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.tests.ingest.server import Server


@pytest.fixture(autouse=True)
def _forget_partitions() -> Iterator[None]:
    """A test's partitions may be rolled back with it, so no process-wide memory of them may outlive it."""
    from fleet import ingest

    ingest._known_partitions.clear()
    yield
    ingest._known_partitions.clear()


@pytest.fixture
def token(alpha: Any, key_of: Any) -> str:
    """A key of alpha that may send batches."""
    return str(key_of(alpha, "ingest"))


@pytest.fixture(scope="session")
def database_url(django_db_setup: None) -> str:
    """The URL of the database that the tests use."""
    from django.db import connection

    server = os.environ["DATABASE_URL"].rpartition("/")[0]
    return f"{server}/{connection.settings_dict['NAME']}"


@pytest.fixture(scope="session")
def server(database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The real application in granian, in lan mode, on the tests' database; keys live one second in its cache."""
    folder: Path = tmp_path_factory.mktemp("web")
    with Server(folder / "web.log", DATABASE_URL=database_url, GOODPUT_EXPOSE="lan") as running:
        yield running
    log = running.log.read_text()
    assert "Traceback" not in log, log
    assert "Internal Server Error" not in log, log
