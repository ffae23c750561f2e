"""Two at once: one effect, and the other is told so."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, connections

from orgs.errors import OrgInvalid
from orgs.models import ApiKey, AuditEntry, Membership, Org, User
from orgs.services import create_org, create_user, delete_org, issue_key, remove_member, revoke_key, set_role

pytestmark = pytest.mark.django_db(transaction=True)


def at_once(*acts: Callable[[], Any]) -> list[Any]:
    """What each act returns, or the code of its refusal; all start together, each on a connection of its own."""
    ready = threading.Barrier(len(acts), timeout=20)

    def run(act: Callable[[], Any]) -> Any:
        try:
            ready.wait()
            return act()
        except OrgInvalid as error:
            return error.code
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(run, acts))


def test_one_slug_is_one_org() -> None:
    try:
        results = at_once(*[lambda: create_org("race").schema_name] * 3)
        made = Org.objects.get(slug="race")
        assert sorted(results) == sorted([made.schema_name, "slug_taken", "slug_taken"])
        with connection.cursor() as cursor:
            cursor.execute("select count(*) from pg_namespace n where nspname like 'org\\_%'")
            assert cursor.fetchone()[0] == Org.objects.count()
    finally:
        for org in Org.objects.filter(slug="race"):
            delete_org(org, actor="test")


def test_two_owners_who_remove_each_other_leave_one(alpha: Any, ada: Any, bo: Any) -> None:
    set_role(bo, alpha, "owner", actor="test")
    results = at_once(
        lambda: remove_member(bo, alpha, actor=ada.email),
        lambda: remove_member(ada, alpha, actor=bo.email),
    )
    assert sorted(map(str, results)) == ["None", "last_owner"]
    assert Membership.objects.filter(org=alpha, role="owner").count() == 1


def test_one_word_is_one_key(alpha: Any, beta: Any) -> None:
    word = "a-word-that-is-long-enough"

    def issue(org: Org) -> Callable[[], str]:
        return lambda: issue_key(org, "k", ["read"], actor="test", literal=word)[1]

    assert sorted(at_once(issue(alpha), issue(beta))) == [word, "key_taken"]
    assert ApiKey.objects.count() == 1


def test_one_address_is_one_person() -> None:
    results = at_once(*[lambda: create_user("cy@alpha.example", actor="test").pk] * 4)
    assert set(results) == {User.objects.get().pk}
    assert AuditEntry.objects.filter(action="user.created").count() == 1


def test_a_key_is_revoked_once(alpha: Any) -> None:
    key, _ = issue_key(alpha, "k", ["read"], actor="test")
    at_once(*[lambda: revoke_key(key, actor="test")] * 3)
    assert AuditEntry.objects.filter(action="key.revoked").count() == 1
