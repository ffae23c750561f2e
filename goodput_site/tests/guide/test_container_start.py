"""How a container waits: for its services, for `prepare` to have ended, for every table to be up to date."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection

from goodput_site.management.commands import prepare

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The script as a module, with a clock of its own and without an image's file."""
    spec = importlib.util.spec_from_file_location("wait", ROOT / "deploy/docker/wait.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec.loader.exec_module(module)
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(module, "NAMES", tmp_path / "image-migrations.json")
    return module


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch, transactional_db: Any) -> str:
    """The address of the tests' database, where the script looks for it."""
    there = connection.settings_dict
    url = f"postgresql://{there['USER']}:{there['PASSWORD']}@{there['HOST']}:{there['PORT']}/{there['NAME']}"
    monkeypatch.setenv("DATABASE_URL", url)
    return url


def test_it_asks_until_nothing_is_missing(wait: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    answers = iter(["database: refused", "migrations: pending", "migrations: pending", ""])
    monkeypatch.setattr(wait, "migrations", lambda: next(answers))
    monkeypatch.setattr(sys, "argv", ["wait.py", "migrations"])
    assert wait.main() == 0
    assert capsys.readouterr().err.splitlines() == ["waiting for database: refused", "waiting for migrations: pending"]


def test_it_gives_up_in_the_end(wait: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("GOODPUT_WAIT_SECONDS", "5")
    monkeypatch.setattr(wait, "services", lambda: "database: refused")
    monkeypatch.setattr(sys, "argv", ["wait.py", "services"])
    assert wait.main() == 1
    assert capsys.readouterr().err.splitlines() == [
        "waiting for database: refused",
        "gave up waiting for database: refused",
    ]


def test_nobody_serves_while_prepare_is_under_way(
    wait: ModuleType, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every table may be there and no key yet: an agent that is refused then asks again a quarter of an hour later."""
    seen: list[str] = []
    monkeypatch.setattr(prepare.Command, "ensure_agent_key", lambda *_: seen.append(wait.migrations()))
    call_command("prepare", "--no-static", "--agent-token-file", "unused")
    assert seen == ["migrations: under way"]
    assert wait.migrations() == ""


def test_two_prepares_take_turns(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with psycopg.connect(database) as session:
        session.execute(prepare.TAKE_TURN)
        monkeypatch.setenv("PGOPTIONS", "-c lock_timeout=50ms")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            call_command("prepare", "--no-static")


@pytest.mark.parametrize("behind", [None, "shared", "an org"])
def test_an_image_knows_its_migrations_without_django(
    behind: str | None, wait: ModuleType, database: str, alpha: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: Any = wait.names()
    if behind == "shared":
        names["shared"].append(("orgs", "9999_of_the_next_release"))
    if behind == "an org":
        names["orgs"]["fleet"] = "9999_of_the_next_release"
    wait.NAMES.write_text(json.dumps(names))
    monkeypatch.setattr(wait, "asked", lambda: pytest.fail("Django was asked"))
    assert wait.migrations() == ("migrations: pending" if behind else "")


def test_the_script_itself_sees_a_migrated_database(database: str) -> None:
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "goodput_site.settings"}
    command = [sys.executable, str(ROOT / "deploy/docker/wait.py"), "migrations"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_the_image_has_ready_what_a_start_would_work_out_again() -> None:
    recipe = (ROOT / "deploy/docker/server.Dockerfile").read_text()
    for step in ("collectstatic", "wait.py names > /app/image-migrations.json", "compileall"):
        assert step in recipe
    (folder,) = re.findall(r"GOODPUT_STATIC_ROOT=(\S+)", recipe)
    assert folder.startswith("/app/")
    assert "collectstatic" not in (ROOT / "deploy/docker/server-entry.sh").read_text()


def test_what_the_databases_address_asks_of_the_connection_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """`sslmode=verify-full` that is dropped without a word would be a connection to anybody."""
    monkeypatch.setenv("DATABASE_URL", "postgresql://a:b@db.example/c?sslmode=verify-full&sslrootcert=/ca.pem")
    read = runpy.run_path(str(ROOT / "goodput_site/settings.py"))
    options = read["DATABASES"]["default"]["OPTIONS"]
    assert (options["sslmode"], options["sslrootcert"]) == ("verify-full", "/ca.pem")
    assert options["connect_timeout"] == 5
