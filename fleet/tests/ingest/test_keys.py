"""I28 to I33: whose batch it is, and who may send it."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from fleet.tests.bodies import packed
from fleet.tests.ingest.server import Server, answers, request
from fleet.tests.ingest.uploads import count, post
from orgs import keys
from orgs.models import ApiKey, Org
from orgs.services import revoke_key, set_org_status
from orgs.tests.races import wait_for

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("lan")]


def test_i28_anothers_batch_under_ones_own_key_is_ones_own_fact(alpha: Any, beta: Any, key_of: Any) -> None:
    """The key names the org and the bytes carry no owner, so there is nothing to refuse: beta says this of itself.

    Alpha's row is untouched, and beta does not learn that alpha has the same bytes.
    """
    body = packed(agent_id="a", seq=1)[0]
    first = post(body, key_of(alpha, "ingest"))
    second = post(body, key_of(beta, "ingest"))
    assert (first.status, second.status) == (202, 202)
    assert second.json()["duplicate"] is False
    assert (count(alpha), count(beta)) == (1, 1)
    assert post(packed(agent_id="a", seq=1, node_id="n2")[0], key_of(beta, "ingest")).code == "seq_conflict"
    assert count(alpha) == 1


def test_i29_a_key_of_one_cluster_is_good_for_it_only(alpha: Any, key_of: Any) -> None:
    token = key_of(alpha, "ingest", cluster="c1")
    assert post(packed(cluster_id="c1")[0], token).status == 202
    for other in ("c2", "C1", "c1 ", " c1", "c1\u0301"):
        answer = post(packed(cluster_id=other)[0], token)
        assert (answer.status, answer.code) == (403, "other_cluster")
        assert answer.json()["permanent"] is False, "a key can be issued again, so the agent keeps the batch"
    assert count(alpha) == 1


def test_i29_a_key_without_a_cluster_speaks_for_every_node_of_its_org(alpha: Any, key_of: Any) -> None:
    """One key for a whole org is the guide's install line; keys are not per node."""
    token = key_of(alpha, "ingest")
    for cluster, node in (("c1", "n1"), ("c2", "n9")):
        assert post(packed(cluster_id=cluster, node_id=node)[0], token).status == 202
    assert count(alpha) == 2


@pytest.mark.parametrize(("scopes", "status"), [(["read"], 403), (["ingest"], 202), (["ingest", "read"], 202)])
def test_i30_only_the_scope_ingest_sends(scopes: list[str], status: int, alpha: Any, key_of: Any) -> None:
    answer = post(packed()[0], key_of(alpha, *scopes))
    assert answer.status == status
    assert answer.code in (None, "missing_scope")
    assert count(alpha) == (status == 202)


def test_i30_a_key_that_only_sends_reads_nothing(alpha: Any, key_of: Any) -> None:
    from django.test import Client

    for scopes, status in ((["ingest"], 403), (["read"], 200)):
        answer = Client().get("/v1/fleet", HTTP_AUTHORIZATION=f"Bearer {key_of(alpha, *scopes)}", HTTP_HOST="localhost")
        assert answer.status_code == status


@pytest.mark.django_db(transaction=True)
def test_i31_a_key_that_is_revoked_while_a_body_comes_stores_nothing(server: Server, alpha: Any, key_of: Any) -> None:
    token, body = key_of(alpha, "ingest"), packed(agent_id="a", seq=1)[0]
    key = ApiKey.objects.get()
    with server.connect(60) as slow:
        slow.sendall(request(body, token)[:-10])
        wait_for(lambda: ApiKey.objects.get().last_used_at is not None)  # the server has looked the key up
        assert server.talk(request(packed(agent_id="a", seq=0)[0], token))[0].status == 202
        revoke_key(key, actor="test")
        wait_for(lambda: server.talk(request(b"no gzip", token))[0].code == "revoked_key")  # its cache ran out
        slow.sendall(body[-10:])
        (answer,) = answers(slow)
    assert (answer.status, answer.code) == (401, "revoked_key")
    assert answer.json()["permanent"] is False, "the agent keeps the batch: a key can be issued again"
    assert count(alpha) == 1


def test_i31_a_revoked_expired_or_suspended_key_sends_nothing(alpha: Any, key_of: Any) -> None:
    tokens = {name: key_of(alpha, "ingest") for name in ("revoked", "expired", "suspended")}
    keys = dict(zip(tokens, ApiKey.objects.order_by("pk"), strict=True))
    revoke_key(keys["revoked"], actor="test")
    ApiKey.objects.filter(pk=keys["expired"].pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert post(packed()[0], tokens["revoked"]).code == "revoked_key"
    assert post(packed()[0], tokens["expired"]).code == "expired_key"
    set_org_status(alpha, Org.Status.SUSPENDED, actor="test")
    answer = post(packed()[0], tokens["suspended"])
    assert (answer.status, answer.code) == (403, "org_suspended")
    set_org_status(alpha, Org.Status.ACTIVE, actor="test")
    assert post(packed()[0], tokens["suspended"]).status == 202, "nothing about a suspension is final"
    assert count(alpha) == 1


def test_i31_a_key_that_expires_while_it_is_cached_is_refused_at_once(alpha: Any, key_of: Any) -> None:
    import time

    token = key_of(alpha, "ingest", expires_at=timezone.now() + timedelta(seconds=1))
    assert post(packed()[0], token).status == 202
    time.sleep(1.05)
    assert post(packed()[0], token).code == "expired_key"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer\t{token}",
        "Bearer \t{token}",
        "Basic {token}",
        "{token}",
        "Bearer {token} {token}",
        "Bearer {token},Bearer {token}",
        "Bearer {token}, Bearer gp_x",
        "Bearer {token}\u00e9",
        "Bearer {token}\x00",
        "Bearer {token}x",
        "Bearer {prefix}",
        "Bearer {short}",
        "Bearer " + "x" * 10_000,
        "Bearer gp_00000000_" + "A" * 43,
    ],
)
def test_i32_what_is_not_exactly_a_key_is_refused(header: str, alpha: Any, key_of: Any) -> None:
    """A prefix alone, a prefix of another, two headers (a server joins them with a comma), ten kilobytes."""
    token = key_of(alpha, "ingest")
    sent = header.format(token=token, short=token[:-1], prefix=token[:11])
    answer = post(packed()[0], HTTP_AUTHORIZATION=sent)
    assert (answer.status, answer.code) == (401, "invalid_key")
    assert count(alpha) == 0


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_i32_the_scheme_is_known_in_any_case(scheme: str, token: str) -> None:
    """RFC 9110, 11.1: schemes are case-insensitive."""
    assert post(packed()[0], HTTP_AUTHORIZATION=f"{scheme} {token}").status == 202


def test_i32_a_key_in_the_url_opens_nothing_and_is_in_no_log(token: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        query = f"key={token}&access_token={token}&token={token}"
        assert post(packed()[0], QUERY_STRING=query).code == "missing_key"
        assert post(packed()[0], "gp_wrong" + token).status == 401
        assert post(packed()[0], token).status == 202
    assert token not in caplog.text


def test_i32_keys_with_one_prefix_are_told_apart(alpha: Any, beta: Any, key_of: Any) -> None:
    tokens = {org: key_of(org, "ingest") for org in (alpha, beta)}
    ApiKey.objects.update(prefix="gp_collide")
    for org, token in tokens.items():
        assert post(packed()[0], token).status == 202
        assert count(org) == 1


def test_i33_only_the_hash_of_a_secret_is_ever_compared(alpha: Any, token: str) -> None:
    """No comparison of secrets happens in Python, so there is no timing to measure: the index is asked for a hash."""
    import hashlib

    stored = bytes(ApiKey.objects.get().secret_hash)
    assert stored == hashlib.sha256(token.encode()).digest()
    assert token.encode() not in stored


def test_an_unknown_key_asks_the_database_once_in_a_cache_life() -> None:
    with CaptureQueriesContext(connection) as queries:
        for _ in range(5):
            assert post(packed()[0], "gp_nobody").code == "invalid_key"
    assert sum("orgs_apikey" in query["sql"] for query in queries) == 1


def test_i31_an_upload_for_an_org_that_was_deleted_meanwhile_is_no_receipt_and_no_500(
    alpha: Any, token: str, monkeypatch: Any
) -> None:
    """The key is still in the cache, the schema is gone."""
    from dataclasses import replace

    from fleet import api_ingest

    key = replace(keys.resolve(token), schema_name="org_999999999")
    monkeypatch.setattr(api_ingest, "key_of_meta", lambda meta: key)
    answer = post(packed()[0], token)
    assert (answer.status, answer.code) == (503, "not_stored")
    assert b"batch_sha256" not in answer.body
    assert answer.json()["permanent"] is False, "the agent keeps the batch"
