"""Making and unmaking orgs: whole or not at all, and never twice the same schema."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django_tenants.utils import tenant_context

from fleet.models import Cluster
from orgs.errors import OrgInvalid
from orgs.models import AuditEntry, Membership, Org, OrgTombstone
from orgs.services import create_org, delete_org, issue_key, set_org_status, set_role

pytestmark = pytest.mark.django_db


def schemas() -> set[str]:
    """The orgs' schemas that PostgreSQL has."""
    with connection.cursor() as cursor:
        cursor.execute("select nspname from pg_namespace where nspname like 'org\\_%'")
        return {row[0] for row in cursor.fetchall()}


@pytest.mark.parametrize(
    "slug",
    [
        "",
        "A",
        "acme ai",
        "acme_ai",
        "-acme",
        "acme-",
        "a" * 41,
        "acme\n",
        "acme/x",
        "akmé",
        "admin",
        "public",
        "new",
        '"',
    ],
)
def test_a_bad_slug_is_refused(slug: str) -> None:
    before = schemas()
    with pytest.raises(OrgInvalid) as error:
        create_org(slug)
    assert error.value.code == "invalid_slug"
    assert schemas() == before


def test_a_new_org_has_its_own_schema_named_after_its_id(alpha: Any) -> None:
    org = create_org("gamma", "Gamma GmbH", actor="pat@provider.example")
    assert org.schema_name == f"org_{org.pk}"
    assert org.schema_name in schemas()
    with tenant_context(org):
        assert not Cluster.objects.exists()
    entry = AuditEntry.objects.get(action="org.created", org_id=org.pk)
    assert (entry.actor, entry.target, entry.after) == ("pat@provider.example", "gamma", {"name": "Gamma GmbH"})


def test_an_org_can_be_made_from_inside_another(alpha: Any) -> None:
    with tenant_context(alpha):
        org = create_org("gamma")
        assert connection.schema_name == alpha.schema_name
    assert org.schema_name in schemas()


def test_a_taken_slug_is_refused_and_leaves_nothing(alpha: Any) -> None:
    before = schemas()
    with pytest.raises(OrgInvalid) as error:
        create_org("alpha")
    assert error.value.code == "slug_taken"
    assert schemas() == before
    assert Org.objects.filter(slug="alpha").count() == 1


def test_a_failure_midway_leaves_neither_row_nor_schema(alpha: Any, monkeypatch: Any) -> None:
    """The schema of the next id is there already: CREATE SCHEMA fails after the row was written."""
    with connection.cursor() as cursor:
        cursor.execute("select nextval(pg_get_serial_sequence('public.orgs_org', 'id')) + 1")
        foreign = f"org_{cursor.fetchone()[0]}"
        cursor.execute(f'create schema "{foreign}"')
    before = schemas()
    with pytest.raises(Exception, match="already exists"):
        create_org("gamma")
    assert schemas() == before
    assert not Org.objects.filter(slug="gamma").exists()
    assert not AuditEntry.objects.filter(org_slug="gamma").exists()
    assert connection.schema_name == "public"
    assert create_org("gamma").schema_name != foreign


def test_a_deleted_org_leaves_a_tombstone_and_its_name_gets_a_new_schema(ada: Any) -> None:
    first = create_org("gamma")
    set_role(ada, first, Membership.Role.OWNER, actor="test")
    _, token = issue_key(first, "k", ["read"], actor="test")
    with tenant_context(first):
        Cluster.objects.create(name="c1")
    first_id, first_schema = first.pk, first.schema_name
    delete_org(first, actor="pat@provider.example")
    assert first_schema not in schemas()
    assert OrgTombstone.objects.get(org_id=first_id).slug == "gamma"
    assert AuditEntry.objects.filter(action="org.deleted", org_id=first_id, actor="pat@provider.example").exists()

    second = create_org("gamma")
    assert (second.pk, second.schema_name) != (first_id, first_schema)
    with tenant_context(second):
        assert not Cluster.objects.exists()
    assert not Membership.objects.filter(org=second).exists()


def test_saving_an_org_never_makes_a_schema() -> None:
    """Not even for a row whose schema is gone: it would be migrated and look alive."""
    org = create_org("gamma")
    with connection.cursor() as cursor:
        cursor.execute(f'drop schema "{org.schema_name}" cascade')
    org.name = "Gamma again"
    org.save()
    assert org.schema_name not in schemas()


def test_status_changes_once_and_is_audited(alpha: Any) -> None:
    set_org_status(alpha, Org.Status.SUSPENDED, actor="pat")
    entry = AuditEntry.objects.get(action="org.status", org_id=alpha.pk)
    assert (entry.before, entry.after) == ("active", "suspended")


def test_commands_make_orgs_and_say_what_is_wrong() -> None:
    out = StringIO()
    call_command("create_org", "gamma", "--name", "Gamma", stdout=out)
    assert out.getvalue().startswith("org: gamma\nschema: org_")
    with pytest.raises(CommandError, match="There is an org gamma already"):
        call_command("create_org", "gamma")
    with pytest.raises(CommandError, match="lower-case"):
        call_command("create_org", "Gamma")
    with pytest.raises(CommandError, match="at most 120"):
        call_command("create_org", "delta", "--name", "x" * 121)


def test_the_default_org_is_made_once(settings: Any) -> None:
    settings.GOODPUT_DEFAULT_ORG = "first-org"
    for _ in range(2):
        call_command("ensure_local_org", stdout=StringIO())
    assert Org.objects.filter(slug="first-org").count() == 1
