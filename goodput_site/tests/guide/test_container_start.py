"""How a container waits: cheap questions while the migrations run, the costly one when they seem to be done."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, with a clock of its own."""
    spec = importlib.util.spec_from_file_location("wait", ROOT / "deploy/docker/wait.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec.loader.exec_module(module)
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    return module


def test_nothing_costly_is_asked_while_the_number_of_migrations_grows(
    wait: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = iter([("database: refused", 0), ("", 0), ("", 7), ("", 40), ("", 90), ("", 90), ("", 90), ("", 90)])
    asked: list[str] = []
    answers = iter(["migrations: pending", "migrations: pending", ""])

    def migrations() -> str:
        asked.append("asked")
        return next(answers)

    monkeypatch.setattr(wait, "services", lambda: next(seen))
    monkeypatch.setattr(wait, "migrations", migrations)
    monkeypatch.setattr(sys, "argv", ["wait.py", "migrations"])
    assert wait.main() == 0
    assert len(asked) == 3
    assert next(seen, None) is None


def test_it_gives_up_in_the_end(
    wait: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GOODPUT_WAIT_SECONDS", "5")
    monkeypatch.setattr(wait, "services", lambda: ("database: refused", 0))
    monkeypatch.setattr(sys, "argv", ["wait.py", "services"])
    assert wait.main() == 1
    assert capsys.readouterr().err.splitlines() == [
        "waiting for database: refused",
        "gave up waiting for database: refused",
    ]


@pytest.mark.django_db(transaction=True)
def test_the_script_itself_sees_a_migrated_database(settings: Any) -> None:
    from django.db import connection

    there = connection.settings_dict
    url = f"postgresql://{there['USER']}:{there['PASSWORD']}@{there['HOST']}:{there['PORT']}/{there['NAME']}"
    environment = {**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "goodput_site.settings"}
    command = [sys.executable, str(ROOT / "deploy/docker/wait.py"), "migrations"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "migrations: pending" in done.stderr  # it never believes the first look
