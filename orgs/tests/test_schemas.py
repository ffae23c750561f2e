"""Schemas of many orgs: a recipe makes what migrations make, migrating goes on where it stopped, skew is told of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import ProgrammingError, connection
from django.test import Client
from django_tenants.utils import schema_context, tenant_context

from conftest import SEEDED, empty_schemas
from fleet.models import Cluster
from fleet.sql import execute
from orgs import migrating, schemas
from orgs.models import Org, SchemaRecipe
from orgs.schemas import code_version, versions_of
from orgs.services import create_org
from orgs.tasks import MOST_SPREAD_SECONDS, fan_out, org_task

pytestmark = pytest.mark.django_db
CATALOGUE = {
    "columns": "select table_name, column_name, ordinal_position, column_default, is_nullable, data_type,"
    " character_maximum_length, is_identity, identity_generation, is_generated, generation_expression"
    " from information_schema.columns where table_schema = %(schema)s",
    "indexes": "select tablename, indexname, indexdef from pg_indexes where schemaname = %(schema)s",
    "constraints": "select conrelid::regclass::text, conname, contype, pg_get_constraintdef(oid) from pg_constraint"
    " where connamespace = %(schema)s::regnamespace",
    "storage": "select c.relname, c.relkind, c.relpersistence, c.reloptions, a.attname, a.attstorage from pg_class c"
    " left join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped"
    " where c.relnamespace = %(schema)s::regnamespace",
    "triggers": "select tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) from pg_trigger where tgrelid in"
    " (select oid from pg_class where relnamespace = %(schema)s::regnamespace) and not tgisinternal",
    "functions": "select proname, pg_get_functiondef(oid) from pg_proc where pronamespace = %(schema)s::regnamespace",
    "sequences": "select sequencename, start_value, increment_by, data_type from pg_sequences"
    " where schemaname = %(schema)s",
}


def described(org: Org) -> dict[str, list[str]]:
    """Everything that the catalogue says of an org's schema, and every row in it, without names and instants."""
    found: dict[str, list[str]] = {}
    with connection.cursor() as cursor:
        for what, statement in CATALOGUE.items():
            cursor.execute(statement, {"schema": org.schema_name})
            found[what] = sorted(str(row) for row in cursor.fetchall())
        cursor.execute("select tablename from pg_tables where schemaname = %s order by 1", [org.schema_name])
        for (table,) in cursor.fetchall():
            cursor.execute(f'select to_jsonb(t) from "{org.schema_name}"."{table}" t')
            found[f"rows of {table}"] = sorted(str(row) for row in cursor.fetchall())
    plain = re.compile(rf"\b{org.schema_name}\b|\d{{4}}-\d\d-\d\dT[\d:.+]+")
    return {what: [plain.sub("…", row) for row in rows] for what, rows in found.items()}


def test_a_schema_by_recipe_is_the_one_that_the_migrations_make() -> None:
    SchemaRecipe.objects.all().delete()
    migrated = create_org("by-migrations")
    assert SchemaRecipe.objects.count() == 1
    followed = create_org("by-recipe")
    before, after = described(migrated), described(followed)
    assert before.keys() == after.keys()
    for what in before:
        assert after[what] == before[what], what
    assert len(before["columns"]) > 200
    assert any("fleet_inbox" in row for row in before["storage"])
    assert before["triggers"]
    assert before["rows of fleet_ruleadoption"]
    assert "⟦" not in str(after)
    assert "now()" in str(SchemaRecipe.objects.get().statements)  # instants are those of the making


def test_an_org_of_the_tests_that_is_emptied_is_like_new() -> None:
    org = create_org("emptied")
    new = described(org)
    assert {what for what, rows in new.items() if rows and what.startswith("rows of ")} == {
        f"rows of {table}" for table in SEEDED
    }
    with tenant_context(org):
        Cluster.objects.create(name="c1")
    assert described(org) != new
    empty_schemas([org.schema_name])
    assert described(org) == new


def test_a_recipe_is_of_its_migrations_only() -> None:
    create_org("first")
    old = SchemaRecipe.objects.get()
    SchemaRecipe.objects.filter(pk=old.pk).update(digest="0" * 64)  # as after an upgrade
    create_org("second")
    assert SchemaRecipe.objects.get().digest == schemas.migrations_digest()


def test_a_recipe_that_fails_leaves_nothing() -> None:
    create_org("first")
    SchemaRecipe.objects.update(statements=["create table a (id int)", "create table a (id int)"])
    with pytest.raises(Exception, match="already exists"):
        create_org("second")
    assert not Org.objects.filter(slug="second").exists()
    with connection.cursor() as cursor:
        cursor.execute("select current_schema()")
        assert cursor.fetchone()[0] == "public"


# Migrating many


@contextmanager
def without_a_column(org: Org, *, is_behind: bool) -> Iterator[None]:
    """The org's tables as those of another version, in a way that a query notices; said so in its version, or not."""
    newest, schema = code_version()["fleet"], org.schema_name
    where = f"{schema}.django_migrations where app = 'fleet' and name = %s"
    with connection.cursor() as cursor:
        cursor.execute(f"alter table {schema}.fleet_cluster rename column name to name_of_before")
        if is_behind:
            cursor.execute(f"delete from {where}", [newest])
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"alter table {schema}.fleet_cluster rename column name_of_before to name")
            cursor.execute(
                f"insert into {schema}.django_migrations (app, name, applied) select 'fleet', %s, now()"
                f" where not exists (select 1 from {where})",
                [newest, newest],
            )


@pytest.fixture
def outdated(alpha: Org) -> Iterator[Org]:
    """Alpha, a version behind."""
    with without_a_column(alpha, is_behind=True):
        yield alpha


@pytest.mark.django_db(transaction=True)
def test_the_version_of_each_org_is_told(outdated: Org, beta: Org) -> None:
    by_slug = {version.org.slug: version for version in versions_of(Org.objects.all())}
    assert by_slug["alpha"].is_behind
    assert not by_slug["beta"].is_behind
    out = StringIO()
    call_command("migrate_orgs", list=True, stdout=out)
    assert re.search(r"alpha: .*fleet \d{4}.* \(behind\)", out.getvalue())
    assert re.search(r"beta: .* \(up to date\)", out.getvalue())
    assert [org.slug for org in migrating.behind()] == ["alpha"]


def test_a_schema_of_a_newer_release_is_ahead(beta: Org) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"insert into {beta.schema_name}.django_migrations (app, name, applied) values ('fleet', '9999_x', now())"
        )
    version = versions_of([beta])[0]
    assert (version.is_behind, version.is_ahead) == (False, True)


@pytest.mark.django_db(transaction=True)
def test_schemas_are_migrated_several_at_once_and_one_that_fails_stops_no_other() -> None:
    """Real processes. The broken one is named; after it is mended, a second run does it and it alone."""
    made = [create_org(f"many-{number}") for number in range(4)]
    table = "django_migrations"
    try:
        with connection.cursor() as cursor:
            for org in made:
                cursor.execute(f"delete from {org.schema_name}.{table} where app = 'claims'")
                cursor.execute(
                    "select tablename from pg_tables where schemaname = %s and tablename like 'claims%%'",
                    [org.schema_name],
                )
                names = ", ".join(f'{org.schema_name}."{row[0]}"' for row in cursor.fetchall())
                if org != made[2]:  # there the tables stand in the way
                    cursor.execute(f"drop table {names} cascade")
                    cursor.execute(f"drop function if exists {org.schema_name}.claims_refuse_change() cascade")
        out = StringIO()
        with pytest.raises(CommandError, match="1 of 4 orgs are not up to date. Run it again"):
            call_command("migrate_orgs", jobs=2, stdout=out)
        assert "4/4" in out.getvalue()
        assert "many-2: FAILED" in out.getvalue()
        assert [org.slug for org in migrating.behind()] == ["many-2"]
        with connection.cursor() as cursor:
            cursor.execute(f"drop table {names.replace(made[3].schema_name, made[2].schema_name)} cascade")
            cursor.execute(f"drop function {made[2].schema_name}.claims_refuse_change() cascade")
        out = StringIO()
        call_command("migrate_orgs", jobs=2, stdout=out)
        assert "1/1 many-2: up to date" in out.getvalue()
        assert migrating.behind() == []
    finally:
        with schema_context("public"):
            for org in made:
                org.delete(force_drop=True)


# One version of skew


@org_task(name="orgs.tests.count_clusters")
def count_clusters(org: Org) -> int:
    """Asks a table of the org."""
    return Cluster.objects.filter(name="x").count()


@org_task(name="orgs.tests.count_clusters_as_the_fold_asks")
def count_clusters_as_the_fold_asks(org: Org) -> int:
    """The same past the ORM."""
    ((count,),) = execute("select count(*) from fleet_cluster where name = 'x'", [])
    return int(count)


@pytest.mark.django_db(transaction=True)
def test_while_an_org_is_a_version_behind_its_pages_ask_for_a_moment(
    outdated: Org, beta: Org, ada: Any, bo: Any, client_of: Any, key_of: Any, lan: Any
) -> None:
    page = client_of(ada).get("/o/alpha/")
    assert (page.status_code, page["Retry-After"]) == (503, "15")
    assert "being upgraded" in page.content.decode()
    keyed = Client(HTTP_HOST="localhost", HTTP_AUTHORIZATION=f"Bearer {key_of(outdated)}")
    answer = keyed.get("/v1/clusters")
    assert (answer.status_code, answer.json()["code"]) == (503, "upgrading")
    assert count_clusters(outdated.pk) is None  # its turn comes again
    assert count_clusters_as_the_fold_asks(outdated.pk) is None
    assert client_of(bo).get("/o/beta/").status_code == 200  # nobody else notices
    assert count_clusters(beta.pk) == 0


@pytest.mark.django_db(transaction=True)
def test_a_missing_column_of_an_org_that_is_up_to_date_is_an_error(beta: Org, bo: Any, client_of: Any) -> None:
    client = client_of(bo)
    client.raise_request_exception = False
    with without_a_column(beta, is_behind=False):
        assert client.get("/o/beta/").status_code == 500
        with pytest.raises(ProgrammingError, match="does not exist"):
            count_clusters(beta.pk)


# Work of all orgs


def test_hundreds_of_orgs_do_not_begin_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, float, float]] = []
    monkeypatch.setattr(
        count_clusters,
        "apply_async",
        lambda args, countdown, expires: sent.append((args[0], countdown, expires)),
    )
    assert fan_out(count_clusters, range(1, 501), over=50, expires=60) == 500
    per_second = [sum(int(wait) == second for _, wait, _ in sent) for second in range(50)]
    assert max(per_second) <= 30  # ten on average
    assert all(expires - wait == 60 for _, wait, expires in sent)
    first, sent[:] = dict((org, wait) for org, wait, _ in sent), []
    fan_out(count_clusters, range(1, 501), over=50, expires=60)
    assert {org: wait for org, wait, _ in sent} == first  # each at its own moment, every time
    with pytest.raises(ValueError, match="waits longer"):
        fan_out(count_clusters, [1], over=MOST_SPREAD_SECONDS + 1, expires=60)


def test_the_spread_stays_below_the_brokers_patience(settings: Any) -> None:
    """Redis gives a message to a second worker when the first holds it longer."""
    assert settings.CELERY_BROKER_TRANSPORT_OPTIONS["visibility_timeout"] > MOST_SPREAD_SECONDS


def test_rows_of_one_org_stay_there(alpha: Org, beta: Org) -> None:
    made = create_org("by-recipe-too")
    with tenant_context(made):
        Cluster.objects.create(name="mine")
    with tenant_context(alpha):
        assert not Cluster.objects.filter(name="mine").exists()
