"""`manage.py prepare`: the agent's key of this machine, made once and never a weak one outside local mode."""

from __future__ import annotations

import stat
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from goodput_site.exposure import Exposure
from goodput_site.management.commands.prepare import Command
from orgs import keys
from orgs.errors import KeyRefused
from orgs.models import ApiKey
from orgs.services import revoke_key

pytestmark = pytest.mark.django_db


@pytest.fixture
def file(tmp_path: Path, local: Any, monkeypatch: Any) -> Path:
    """Where the agent's key goes; nobody has chosen a word for it."""
    monkeypatch.delenv("GOODPUT_AGENT_TOKEN", raising=False)
    return tmp_path / "agent" / "token"


def prepare(file: Path) -> str:
    """Run the step of the key; the token that stands in the file."""
    Command().ensure_agent_key(file)
    return file.read_text().strip()


def test_the_key_is_made_once_for_this_user_only(file: Path) -> None:
    token = prepare(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert prepare(file) == token
    assert ApiKey.objects.count() == 1
    info = keys.resolve(token)
    assert (info.org_slug, info.scopes) == ("local", {"ingest"})
    assert [each.name for each in file.parent.iterdir()] == ["token"]


@pytest.mark.parametrize("damage", ["revoked", "deleted", "cut", "of another database"])
def test_a_key_that_opens_nothing_is_replaced(damage: str, file: Path) -> None:
    token = prepare(file)
    match damage:
        case "revoked":
            revoke_key(ApiKey.objects.get(), actor="test")
        case "deleted":
            file.unlink()
        case "cut":
            file.write_text(token[:10])
        case "of another database":
            ApiKey.objects.all().delete()
    assert prepare(file) != token
    assert keys.resolve(prepare(file)).org_slug == "local"


def test_a_chosen_word_is_used_as_it_is(file: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("GOODPUT_AGENT_TOKEN", "devtoken")
    assert prepare(file) == prepare(file) == "devtoken"
    assert keys.resolve("devtoken").org_slug == "local"


@pytest.mark.parametrize(
    ("word", "sentence"),
    [("devtoken", "public knowledge"), ("short", "at least 16"), ("two words are too many", "one word")],
)
def test_a_weak_word_stops_a_server_that_others_reach(
    word: str, sentence: str, file: Path, lan: Any, monkeypatch: Any
) -> None:
    monkeypatch.setenv("GOODPUT_AGENT_TOKEN", word)
    with pytest.raises(CommandError, match=sentence):
        prepare(file)
    assert not file.exists()


def test_a_server_that_opens_up_replaces_devtoken(file: Path, settings: Any, monkeypatch: Any) -> None:
    """First `up` with the guide's word, then `up --lan` without it: the agent must not go on with a dead key."""
    monkeypatch.setenv("GOODPUT_AGENT_TOKEN", "devtoken")
    assert prepare(file) == "devtoken"
    monkeypatch.delenv("GOODPUT_AGENT_TOKEN")
    settings.GOODPUT_EXPOSE = Exposure.LAN
    token = prepare(file)
    assert token.startswith("gp_")
    assert keys.resolve(token).org_slug == "local"
    with pytest.raises(KeyRefused):
        keys.resolve("devtoken")


def test_a_revoked_word_is_not_brought_back(file: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("GOODPUT_AGENT_TOKEN", "a-word-that-is-long-enough")
    prepare(file)
    revoke_key(ApiKey.objects.get(), actor="test")
    with pytest.raises(CommandError, match="was a key before"):
        prepare(file)


def test_the_whole_command_can_be_repeated(local: Any) -> None:
    for _ in range(2):
        out = StringIO()
        call_command("prepare", "--no-static", stdout=out)
        assert out.getvalue().endswith("ready\n")


@pytest.mark.parametrize("promise", ["synchronous_commit"])
def test_a_database_that_may_forget_is_refused(promise: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"set local {promise} = off")
    with pytest.raises(CommandError, match=f"{promise} = off"):
        Command().check_durability()
