"""The audit trail: written with the change or not at all, and never changed."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from orgs import services
from orgs.models import ApiKey, AuditEntry

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "statement",
    [
        "update public.orgs_auditentry set actor = 'somebody else'",
        "delete from public.orgs_auditentry",
        "insert into public.orgs_auditentry (id, at, org_slug, actor, action, target)"
        " select id, at, '', 'x', 'x', '' from public.orgs_auditentry"
        " on conflict (id) do update set actor = 'somebody else'",
    ],
)
def test_the_database_refuses_to_change_an_entry(statement: str) -> None:
    entry = services.record("test", actor="ada")
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    entry.refresh_from_db()
    assert entry.actor == "ada"


def test_the_orm_can_change_none_either() -> None:
    entry = services.record("test", actor="ada")
    entry.actor = "bo"
    for change in (entry.save, entry.delete, AuditEntry.objects.all().delete):
        with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
            change()


def test_an_entry_is_undone_with_the_change_it_tells_of(alpha: Any) -> None:
    with transaction.atomic():
        services.issue_key(alpha, "k", ["read"], actor="ada")
        transaction.set_rollback(True)
    assert not AuditEntry.objects.filter(action="key.created").exists()
    assert not ApiKey.objects.exists()


def test_a_change_is_undone_when_its_entry_cannot_be_written(alpha: Any, bo: Any) -> None:
    """An actor that the entry's column can't hold: no role without an entry."""
    with pytest.raises(DatabaseError), transaction.atomic():
        services.set_role(bo, alpha, "viewer", actor="x" * 300)
    assert not bo.memberships.filter(org=alpha).exists()


def test_every_change_names_who_what_and_which_org(alpha: Any, ada: Any) -> None:
    key, _ = services.issue_key(alpha, "k", ["read"], actor=ada.email, cluster="c1")
    services.revoke_key(key, actor=ada.email)
    services.revoke_key(key, actor=ada.email)  # nothing changes, nothing is told
    services.set_role(services.create_user("cy@alpha.example", actor=ada.email), alpha, "viewer", actor=ada.email)
    told = list(AuditEntry.objects.filter(actor=ada.email).order_by("id").values_list("action", "org_slug", "target"))
    assert told == [
        ("key.created", "alpha", key.prefix),
        ("key.revoked", "alpha", key.prefix),
        ("user.created", "", "cy@alpha.example"),
        ("member.role", "alpha", "cy@alpha.example"),
    ]


def test_entries_outlive_the_person(ada: Any) -> None:
    services.record("test", actor=ada.email, target=ada.email)
    ada.delete()
    assert AuditEntry.objects.filter(action="test", actor="ada@alpha.example").exists()


def test_no_secret_is_ever_told(alpha: Any, ada: Any) -> None:
    key, token = services.issue_key(alpha, "k", ["read"], actor="ada")
    services.set_password(ada, "a long enough password", actor="ada")
    services.issue_link(ada, "http://localhost", actor="ada")
    text = " ".join(str(vars(entry)) for entry in AuditEntry.objects.all())
    assert key.prefix in text
    assert token.removeprefix(key.prefix) not in text
    assert "a long enough password" not in text
    assert ada.password not in text
    assert "/login/link/" not in text
