"""What no migration of an org may do: read off every one of them, and the rules themselves on made-up ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as configured
from django.db import migrations, models

from orgs import checks, migration_rules
from orgs.migration_rules import (
    TriggerSQL,
    newest_migrations,
    not_written_down,
    org_migrations,
    refused_by_citus,
    statements_in,
)

ROOT = Path(__file__).resolve().parents[2]


def made_of(*operations: Any, name: str = "0002_x") -> migrations.Migration:
    """A migration of the fleet app."""
    migration = migrations.Migration(name, "fleet")
    migration.operations = list(operations)
    return migration


def detach_concurrently(apps: Any, schema_editor: Any) -> None:
    """What no RunPython may say."""
    schema_editor.execute("alter table a detach partition b concurrently")


def test_citus_refuses_nothing_of_any_migration() -> None:
    found = list(org_migrations())
    assert len(found) > 10
    assert [str(finding) for migration in found for finding in refused_by_citus(migration)] == []


def test_the_release_before_can_live_with_every_later_migration() -> None:
    found = [one for migration in org_migrations() for one in migration_rules.unfit_for_the_version_before(migration)]
    assert [str(one) for one in found] == []


def test_what_the_changelog_calls_released_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert not_written_down(changelog) == ""
    monkeypatch.setattr(migration_rules, "RELEASED_VERSION", "")
    monkeypatch.setattr(migration_rules, "RELEASED", {})
    dated = changelog.replace("## [Unreleased]", "## [Unreleased]\n\n## [9.0.0] - 2027-01-31")
    said = not_written_down(dated)
    assert 'RELEASED_VERSION = "9.0.0", RELEASED = {' in said
    monkeypatch.setattr(migration_rules, "RELEASED_VERSION", "9.0.0")
    assert not_written_down(dated) != ""
    monkeypatch.setattr(migration_rules, "RELEASED", newest_migrations())
    assert not_written_down(dated) == "" == not_written_down(dated, "9.0.0")
    assert "no dated section for 9.0.1" in not_written_down(dated, "9.0.1")
    assert {"fleet", "claims"} <= set(newest_migrations())


@pytest.mark.parametrize(
    ("operation", "sentence"),
    [
        (migrations.AddField("node", "owner", models.ForeignKey("orgs.User", models.CASCADE)), "foreign key"),
        (migrations.CreateModel("A", [("o", models.ForeignKey("orgs.org", models.CASCADE))]), "foreign key"),
        (
            migrations.AddField("node", "u", models.ForeignKey(configured.AUTH_USER_MODEL, models.CASCADE)),
            "foreign key",
        ),
        (migrations.RunSQL("create table a (x int); create index b on a (x)"), "2 statements in one string"),
        (migrations.RunSQL(["select 1", "select 2; select 3"]), "2 statements in one string"),
        (migrations.RunSQL("create trigger t before update on a execute function f()"), "makes a trigger"),
        (migrations.RunSQL("CREATE OR REPLACE TRIGGER t before update on a execute function f()"), "makes a trigger"),
        (migrations.RunSQL("alter table a detach partition b concurrently"), "detaches a partition concurrently"),
        (migrations.RunSQL("create extension pgcrypto"), "makes an extension"),
        (migrations.RunPython(detach_concurrently), "detaches a partition concurrently, in detach_concurrently"),
        (
            migrations.SeparateDatabaseAndState([migrations.RunSQL("select 1; select 2")]),
            "2 statements in one string",
        ),
    ],
)
def test_what_citus_refuses_is_found(operation: Any, sentence: str) -> None:
    found = refused_by_citus(made_of(operation))
    assert [sentence in str(one) for one in found] == [True], found
    assert str(found[0]).startswith("fleet.0002_x ")


@pytest.mark.parametrize(
    "operation",
    [
        migrations.AddField("node", "cluster", models.ForeignKey("fleet.Cluster", models.CASCADE)),
        migrations.RunSQL(["create table a (x int);", "create index b on a (x)"]),
        migrations.RunSQL("create function f() returns int language sql as $$ select 1; select 2 $$"),
        migrations.RunSQL("insert into a values ('x; y') -- ; no more\n"),
        TriggerSQL("create trigger t before update on a execute function f()"),
        migrations.RunSQL("alter table a detach partition b"),
    ],
)
def test_what_citus_takes_is_let_through(operation: Any) -> None:
    assert refused_by_citus(made_of(operation)) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        *[("", 0), ("select 1", 1), ("select 1;", 1), ("select 1; select 2", 2), (" ; ; ", 0)],
        *[("select ';'", 1), ('select ";"', 1), ("select 1 -- ; 2", 1), ("select /* ; */ 1", 1)],
        *[("do $x$ a; b; $x$", 1), ("do $$ a; $$; select 1", 2), ("select 'it''s; one'", 1)],
    ],
)
def test_statements_are_counted(text: str, count: int) -> None:
    assert statements_in(text) == count


@pytest.mark.parametrize(
    ("operation", "is_unfit"),
    [
        (migrations.RemoveField("node", "name"), True),
        (migrations.RenameField("node", "name", "title"), True),
        (migrations.DeleteModel("node"), True),
        (migrations.AddField("node", "x", models.IntegerField(default=0)), True),
        (migrations.AddField("node", "x", models.IntegerField(db_default=0)), False),
        (migrations.AddField("node", "x", models.IntegerField(null=True)), False),
        (migrations.RunSQL("alter table a drop column b"), True),
        (migrations.RunSQL("alter table a alter column b set not null"), True),
        (migrations.RunSQL("create index b on a (x)"), False),
    ],
)
def test_what_the_release_before_could_not_live_with_is_found(
    operation: Any, is_unfit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration_rules, "RELEASED", {"fleet": "0002_x"})
    later, old = made_of(operation, name="0003_y"), made_of(operation)
    assert bool(migration_rules.unfit_for_the_version_before(later)) is is_unfit
    assert migration_rules.unfit_for_the_version_before(old) == []


def test_the_check_tells_of_it_where_citus_is_asked_for(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = made_of(migrations.RunSQL("select 1; select 2"))
    monkeypatch.setattr(checks, "org_migrations", lambda: [wrong])
    assert checks.nothing_that_citus_refuses() == []
    settings.GOODPUT_CITUS = True
    found = checks.nothing_that_citus_refuses()
    assert [(one.id, one.msg) for one in found] == [
        ("orgs.E004", "Citus refuses this: fleet.0002_x sends 2 statements in one string.")
    ]


def test_triggers_are_left_out_where_orgs_are_shards(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    for name in ("database_forwards", "database_backwards"):
        monkeypatch.setattr(migrations.RunSQL, name, lambda *_, name=name: done.append(name))
    operation = TriggerSQL("create trigger t", "drop trigger t")
    for is_citus, expected in ((True, []), (False, ["database_forwards", "database_backwards"])):
        settings.GOODPUT_CITUS = is_citus
        operation.database_forwards("fleet", None, None, None)
        operation.database_backwards("fleet", None, None, None)
        assert done == expected


def test_no_code_detaches_concurrently_either() -> None:
    """Partitions are detached by the code as well, not only by migrations."""
    pattern = re.compile(r"detach\s+partition[^\"']*concurrently", re.IGNORECASE)
    files = [file for app in ("fleet", "claims", "orgs") for file in (ROOT / app).rglob("*.py")]
    assert len(files) > 100
    wrong = [file for file in files if "tests" not in file.parts and pattern.search(file.read_text())]
    assert wrong == []
    assert pattern.search("alter table a detach partition b concurrently")
