"""What no migration of an org's app may do: what Citus refuses, and what the version before could not live with.

Read off the operations, without a database. `orgs.checks` tells of it at start where `GOODPUT_CITUS` is set, a test
reads every migration always. Measured facts behind the Citus rules: a foreign key to a local table, a trigger, two
statements in one string and DETACH … CONCURRENTLY are refused on a schema that is a shard.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.conf import settings
from django.db import migrations
from django.db.migrations.loader import MigrationLoader

# The last release, and its newest migration by app: later ones must leave tables as that release can use them, because
# its processes run on beside migrated schemas. Nothing is released yet. Whoever dates a section of CHANGELOG.md writes
# its version down here; a test compares, and `release --sign-key` tells of it.
RELEASED_VERSION = ""
RELEASED: dict[str, str] = {}
DOLLAR = re.compile(r"\$\w*\$")
PLAIN = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
REFUSED = (
    (re.compile(r"\bcreate\s+(?:or\s+replace\s+)?(?:constraint\s+)?trigger\b", re.I), "makes a trigger"),
    (re.compile(r"\bdetach\s+partition\b.*\bconcurrently\b", re.I | re.S), "detaches a partition concurrently"),
    (re.compile(r"\bcreate\s+extension\b", re.I), "makes an extension, which must be there on every server"),
)
SECTION = re.compile(r"^## \[(\d[^\]]*)\] - \d{4}-\d{2}-\d{2}$", re.M)
LOSES = re.compile(r"\b(drop\s+(table|column)|rename\s+(to|column)|set\s+not\s+null)\b", re.I)


class TriggerSQL(migrations.RunSQL):
    """SQL that makes triggers; where orgs are shards of Citus, which has none there, it is left out.

    What a trigger guards is guarded by the services alone then (docs/scale-out.md).
    """

    def database_forwards(self, *args: Any, **kwargs: Any) -> None:
        """Nothing under Citus."""
        if not settings.GOODPUT_CITUS:
            super().database_forwards(*args, **kwargs)

    def database_backwards(self, *args: Any, **kwargs: Any) -> None:
        """Nothing under Citus."""
        if not settings.GOODPUT_CITUS:
            super().database_backwards(*args, **kwargs)


@dataclass(frozen=True)
class Finding:
    """A migration, and what is wrong with it."""

    migration: str
    what: str

    def __str__(self) -> str:
        return f"{self.migration} {self.what}"


def org_migrations() -> Iterator[migrations.Migration]:
    """Every migration of an org's apps."""
    labels = {config.label for config in apps.get_app_configs() if config.name in settings.TENANT_APPS}
    for (app, _), migration in sorted(MigrationLoader(None).disk_migrations.items()):
        if app in labels:
            yield migration


def newest_migrations() -> dict[str, str]:
    """The newest migration of each of an org's apps: what RELEASED must hold for a release of this code."""
    newest: dict[str, str] = {}
    for migration in org_migrations():
        newest[migration.app_label] = max(migration.name, newest.get(migration.app_label, ""))
    return newest


def not_written_down(changelog: str, version: str = "") -> str:
    """What is missing here for the newest dated section of the changelog, and for `version` where one is asked for.

    A sentence for the one who releases; empty when nothing is.
    """
    dated = SECTION.findall(changelog)
    if version and version not in dated:
        return f"CHANGELOG.md has no dated section for {version}: ## [{version}] - YYYY-MM-DD"
    newest = dated[0] if dated else ""
    if newest == RELEASED_VERSION and (not newest or set(RELEASED) == set(newest_migrations())):
        return ""
    return (
        f"CHANGELOG.md: {newest or 'nothing'} is released; orgs/migration_rules.py: {RELEASED_VERSION or 'nothing'}."
        f' Write there: RELEASED_VERSION = "{newest}", RELEASED = {newest_migrations() if newest else {}}'
    )


def statements_in(text: str) -> int:
    """How many statements a string of SQL holds; semicolons in quotes, comments and bodies of functions don't count."""
    rest, kept = text, []
    while opening := DOLLAR.search(rest):
        closing = rest.find(opening[0], opening.end())
        kept.append(rest[: opening.start()])
        rest = rest[closing + len(opening[0]) :] if closing >= 0 else ""
    plain = PLAIN.sub(" ", "".join([*kept, rest]))
    return sum(bool(part.strip()) for part in plain.split(";"))


def _sql_of(operation: Any) -> Iterator[str]:
    """The strings that an operation sends forwards."""
    if isinstance(operation, migrations.RunSQL):
        sent = operation.sql
        for one in sent if isinstance(sent, list | tuple) else [sent]:
            yield one[0] if isinstance(one, list | tuple) else str(one)
    if isinstance(operation, migrations.SeparateDatabaseAndState):
        for inner in operation.database_operations:
            yield from _sql_of(inner)


def _fields_of(operation: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(operation, migrations.CreateModel):
        yield from operation.fields
    if isinstance(operation, migrations.AddField | migrations.AlterField):
        yield operation.name, operation.field


def refused_by_citus(migration: migrations.Migration) -> list[Finding]:
    """What Citus would refuse of it in a schema that is a shard."""
    name, found = f"{migration.app_label}.{migration.name}", []
    shared = {config.label for config in apps.get_app_configs() if config.name not in settings.TENANT_APPS}
    for operation in migration.operations:
        for field_name, field in _fields_of(operation):
            target: Any = getattr(getattr(field, "remote_field", None), "model", None)
            label = str((getattr(target, "_meta", None) and target._meta.app_label) or target).split(".")[0].lower()
            if target is not None and label in {*shared, settings.AUTH_USER_MODEL.split(".")[0].lower()}:
                found.append(Finding(name, f"has a foreign key from an org's table to a shared one ({field_name})"))
        for text in _sql_of(operation):
            if (count := statements_in(text)) > 1:
                found.append(Finding(name, f"sends {count} statements in one string"))
            if not isinstance(operation, TriggerSQL):
                found += [Finding(name, what) for pattern, what in REFUSED if pattern.search(text)]
        if isinstance(operation, migrations.RunPython):
            code: Any = operation.code
            source = inspect.getsource(code)
            found += [Finding(name, f"{what}, in {code.__name__}") for p, what in REFUSED if p.search(source)]
    return found


def unfit_for_the_version_before(migration: migrations.Migration) -> list[Finding]:
    """What the release before could not live with: its code inserts without new columns and reads what is gone."""
    name, found = f"{migration.app_label}.{migration.name}", []
    released = RELEASED.get(migration.app_label)
    if released is None or migration.name <= released:
        return []
    gone = (migrations.RemoveField, migrations.DeleteModel, migrations.RenameField, migrations.RenameModel)
    for operation in migration.operations:
        if isinstance(operation, gone):
            found.append(Finding(name, f"takes away what the release before uses: {operation.describe()}"))
        if isinstance(operation, migrations.AddField):
            field = operation.field
            if not field.null and not field.has_db_default() and not field.many_to_many:
                found.append(Finding(name, f"adds {operation.name} without null or a default in the database"))
        if any(LOSES.search(text) for text in _sql_of(operation)):
            found.append(Finding(name, "drops, renames or narrows something by SQL"))
    return found
