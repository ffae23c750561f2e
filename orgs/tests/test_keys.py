"""Keys: what opens, what does not, and how soon it stops."""

from __future__ import annotations

import re
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import RequestFactory
from django.utils import timezone

from goodput_site.exposure import Exposure
from orgs import keys
from orgs.authentication import key_of as key_of_request
from orgs.errors import KeyRefused, OrgInvalid
from orgs.models import ApiKey, Org
from orgs.services import issue_key, revoke_key, set_org_status

pytestmark = pytest.mark.django_db


def refusal(token: str) -> str:
    """The code with which this token is refused."""
    with pytest.raises(KeyRefused) as error:
        keys.resolve(token)
    return error.value.code


def test_a_key_names_its_org_scopes_and_cluster(alpha: Any, key_of: Any) -> None:
    info = keys.resolve(key_of(alpha, "ingest", cluster="c1"))
    assert (info.org_id, info.org_slug, info.schema_name) == (alpha.pk, "alpha", alpha.schema_name)
    assert info.scopes == {"ingest"}
    assert info.cluster == "c1"
    info.require("ingest")
    with pytest.raises(KeyRefused) as error:
        info.require("read")
    assert (error.value.status, error.value.code) == (403, "missing_scope")


def test_tokens_are_long_random_and_not_stored(alpha: Any, key_of: Any) -> None:
    token, other = key_of(alpha), key_of(alpha)
    assert token != other
    secret = re.fullmatch(r"gp_[0-9a-f]{8}_([\w-]{43})", token, re.ASCII)  # 43 characters of base64 are 256 bits
    assert secret is not None
    for key in ApiKey.objects.all():
        assert len(bytes(key.secret_hash)) == 32
        assert secret[1] not in str(vars(key))


@pytest.mark.parametrize("cut", ["", "gp_", "gp_00000000_", "x" * 256])
def test_an_unknown_token_is_refused(cut: str, alpha: Any, key_of: Any) -> None:
    key_of(alpha)
    assert refusal(cut) == "invalid_key"


def test_the_prefix_alone_or_a_changed_letter_opens_nothing(alpha: Any, key_of: Any) -> None:
    token = key_of(alpha)
    assert refusal(token[:-1]) == "invalid_key"
    assert refusal(token[:11]) == "invalid_key"
    assert refusal(token.swapcase()) == "invalid_key"
    assert refusal(token + "A") == "invalid_key"


def test_an_expired_key_is_refused_also_from_the_cache(alpha: Any, key_of: Any, monkeypatch: Any) -> None:
    token = key_of(alpha, expires_at=timezone.now() + timedelta(hours=1))
    keys.resolve(token)
    later = timezone.now() + timedelta(hours=2)
    monkeypatch.setattr("orgs.keys.timezone.now", lambda: later)
    assert refusal(token) == "expired_key"


def test_a_revoked_key_stops_within_half_a_minute_everywhere(alpha: Any, settings: Any) -> None:
    """Another process has it in its cache: nothing is cleared there."""
    key, token = issue_key(alpha, "k", ["read"], actor="test")
    keys.resolve(token)
    cached = dict(keys.cache._entries)
    revoke_key(key, actor="test")
    assert refusal(token) == "revoked_key"  # here at once
    keys.cache._entries.update(cached)
    keys.resolve(token)
    for digest, (until, found) in cached.items():  # half a minute later
        keys.cache._entries[digest] = (until - 30, found)
    assert settings.GOODPUT_KEY_CACHE_SECONDS <= 30
    assert refusal(token) == "revoked_key"


def test_a_suspended_orgs_keys_are_refused(alpha: Any, key_of: Any) -> None:
    token = key_of(alpha)
    set_org_status(alpha, Org.Status.SUSPENDED, actor="test")
    with pytest.raises(KeyRefused) as error:
        keys.resolve(token)
    assert (error.value.status, error.value.code) == (403, "org_suspended")


def test_last_use_is_noted_at_most_once_a_minute(alpha: Any, key_of: Any, monkeypatch: Any) -> None:
    token = key_of(alpha)
    keys.resolve(token, "192.0.2.1")
    first = ApiKey.objects.get()
    assert first.last_used_address == "192.0.2.1"
    keys.cache.clear()
    keys.resolve(token, "192.0.2.2")
    assert ApiKey.objects.get().last_used_at == first.last_used_at
    later = timezone.now() + timedelta(seconds=61)
    monkeypatch.setattr("orgs.keys.timezone.now", lambda: later)
    keys.cache.clear()
    keys.resolve(token, None)
    assert ApiKey.objects.get().last_used_at == later


@pytest.mark.parametrize("peer", ["", "unix:", "127.0.0.1:5000", "fe80::1%eth0", "::ffff:192.0.2.1"])
def test_an_odd_peer_address_refuses_nobody(peer: str, alpha: Any, key_of: Any) -> None:
    request = RequestFactory().get("/", headers={"authorization": f"Bearer {key_of(alpha)}"}, REMOTE_ADDR=peer)
    assert key_of_request(request).org_slug == "alpha"


@pytest.mark.parametrize("form", ["Bearer {}", "bearer {}", "BEARER {}", "Bearer  {} "])
def test_the_schemes_case_and_blanks_do_not_matter(form: str, alpha: Any, key_of: Any) -> None:
    assert keys.resolve(keys.token_of(form.format(key_of(alpha)))).org_slug == "alpha"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "{}",
        "Basic {}",
        "Token {}",
        "Bearer {} {}",
        "Bearer {}, Bearer {}",  # what a server makes of two headers
        "Bearer {}\x00",
        "Bearer\t{}",
        'Bearer "{}"',
        "Bearer {}é",
        "Bearer " + "x" * 257,
    ],
)
def test_anything_but_one_bearer_token_is_refused(header: str, alpha: Any, key_of: Any) -> None:
    token = key_of(alpha)
    with pytest.raises(KeyRefused) as error:
        keys.resolve(keys.token_of(header.replace("{}", token)))
    assert (error.value.status, error.value.code) == (401, "invalid_key")


def test_a_key_is_read_from_the_header_only(alpha: Any, key_of: Any, client_of: Any, lan: Any) -> None:
    token = key_of(alpha)
    client = client_of(None)
    client.cookies["authorization"] = token
    response = client.get(f"/v1/batches?key={token}&token={token}&api_key={token}", headers={"x-api-key": token})
    assert response.status_code == 401
    assert response["WWW-Authenticate"] == "Bearer"


def test_a_made_up_key_is_refused_in_local_mode_too(client_of: Any) -> None:
    """A wrong key is a mistake to tell, never a reason to let in as the local visitor."""
    for header in ("Bearer gp_wrong", "Basic YTpi", ""):
        assert client_of(None).get("/v1/fleet", headers={"authorization": header}).status_code == 401


def test_a_literal_key_works_in_local_mode(local: Any) -> None:
    key, token = issue_key(local, "k", ["ingest"], actor="test", literal="devtoken")
    assert token == "devtoken"
    assert key.prefix == "devt"
    assert keys.resolve("devtoken").org_slug == "local"


@pytest.mark.parametrize("mode", [Exposure.LAN, Exposure.PUBLIC])
def test_a_default_key_opens_nothing_elsewhere_even_when_it_is_stored(mode: Any, local: Any, settings: Any) -> None:
    for word in settings.GOODPUT_DEFAULT_SECRETS:
        issue_key(local, "k", ["ingest", "read"], actor="test", literal=word)
        keys.resolve(word)
    settings.GOODPUT_EXPOSE = mode
    for word in settings.GOODPUT_DEFAULT_SECRETS:
        assert refusal(word) == "default_secret"
        with pytest.raises(OrgInvalid) as error:
            issue_key(local, "k", ["read"], actor="test", literal=word)
        assert error.value.code == "default_secret"


@pytest.mark.parametrize(
    ("literal", "code"),
    [
        ("short", "weak_literal"),
        ("two words that are long", "invalid_literal"),
        ("x" * 257, "invalid_literal"),
        ("clé-assez-longue-pour-ça", "invalid_literal"),
        ("", "invalid_literal"),
    ],
)
def test_a_chosen_word_must_be_sendable_and_hard_to_guess(literal: str, code: str, alpha: Any, lan: Any) -> None:
    with pytest.raises(OrgInvalid) as error:
        issue_key(alpha, "k", ["read"], actor="test", literal=literal)
    assert error.value.code == code


def test_a_word_is_a_key_once_even_after_it_was_revoked(alpha: Any, beta: Any) -> None:
    word = "a-word-that-is-long-enough"
    assert refusal(word) == "invalid_key"
    key, _ = issue_key(alpha, "k", ["read"], actor="test", literal=word)
    assert keys.resolve(word).org_slug == "alpha"  # although it was just remembered as unknown
    revoke_key(key, actor="test")
    with pytest.raises(OrgInvalid) as error:
        issue_key(beta, "k", ["read"], actor="test", literal=word)
    assert error.value.code == "key_taken"


def test_the_cache_does_not_grow_without_end(monkeypatch: Any) -> None:
    monkeypatch.setattr(keys, "MAX_CACHED", 10)
    for number in range(50):
        keys.cache.put(str(number).encode(), KeyRefused("no"))
    assert len(keys.cache._entries) <= 10


def test_the_command_issues_a_key_and_says_what_is_wrong(alpha: Any) -> None:
    out = StringIO()
    call_command("create_key", "--org=alpha", "--name=n", "--scope=ingest", "--cluster=c1", "--days=7", stdout=out)
    info = keys.resolve(out.getvalue().removeprefix("key: ").strip())
    assert (info.org_slug, info.cluster, info.scopes) == ("alpha", "c1", {"ingest"})
    assert info.expires_at is not None
    assert timedelta(days=6) < info.expires_at - timezone.now() <= timedelta(days=7)
    for arguments, sentence in (
        (["--org=nobody", "--name=n", "--scope=read"], "There is no org nobody"),
        (["--org=alpha", "--name=n", "--scope=admin"], "Scopes are"),
        (["--org=alpha", "--name=" + "n" * 121, "--scope=read"], "at most 120"),
        (["--org=alpha", "--name=n", "--scope=read", "--cluster=" + "c" * 257], "at most 256"),
    ):
        with pytest.raises(CommandError, match=sentence):
            call_command("create_key", *arguments, stdout=StringIO())
