"""Who may import whom. Walks the syntax tree of every module, so that an import inside a function counts too."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.db import connection

ROOT = Path(__file__).resolve().parents[2]
OURS = ("agent", "orgs", "fleet", "claims", "goodput_site", "benchmarks")

# Parts of the site that know no app, no settings and no org: the shape of an error and of a page of results. Every API
# view needs them, and whoever composes the site names them in the settings, so they live there; they import nothing of
# ours (asserted below), and so no circle can close.
NEUTRAL = ("goodput_site.problems", "goodput_site.pagination", "goodput_site.counters")

# Longest prefix first: what a module may import of ours.
MAY = {
    "agent": ("agent",),
    "orgs": ("orgs",),
    "fleet.errors": (),
    "fleet.domain": ("fleet.domain", "fleet.errors", "agent.wire"),
    "fleet": ("fleet", "orgs", "agent.wire", *NEUTRAL),
    "claims.errors": (),
    "claims.domain": ("claims.domain", "claims.errors", "fleet.domain", "agent.wire"),
    "claims": ("claims", "fleet", "orgs", "agent.wire", *NEUTRAL),
    **dict.fromkeys(NEUTRAL, ()),
    "goodput_site.launcher": ("goodput_site.launcher",),
    "goodput_site.exposure": (),
    "goodput_site.chaos": OURS,
    "goodput_site": ("goodput_site", "claims", "fleet", "orgs", "agent.wire"),
    "manage": ("goodput_site",),
    "benchmarks": OURS,
}
EXCEPTIONS = {
    "fleet.simulation": ("agent",),  # a simulated past is made by the agent's own simulated source, not by a second one
}

# What a module may import of others.
PURE = ("fleet.domain", "fleet.errors", "claims.domain", "claims.errors")
IMPURE = {
    *["io", "os", "pathlib", "random", "secrets", "socket", "sqlite3", "subprocess", "threading", "time", "urllib"]
}
READS_DATA = {
    ("fleet.domain.rules", "pathlib"),  # rule sets are files that are shipped beside it, read once
    ("claims.domain.worked", "pathlib"),  # a worked example is a file, named on the command line
}
CLOCK = re.compile(r"(\w+\.)*(datetime|date|timezone|time)\.(now|utcnow|today|time|time_ns|monotonic)")
NO_DJANGO = ("agent", *PURE, "goodput_site.launcher")


@cache
def modules() -> tuple[tuple[str, Path], ...]:
    """(dotted name, file) of every module that is shipped, tests left out."""
    return tuple(_modules())


@cache
def tree_of(file: Path) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(file.read_text())


def _modules() -> Iterator[tuple[str, Path]]:
    for top in (*OURS, "manage"):
        for file in [ROOT / f"{top}.py", *sorted((ROOT / top).rglob("*.py"))]:
            if file.exists() and "tests" not in file.parts and "migrations" not in file.parts:
                parts = file.relative_to(ROOT).with_suffix("").parts
                yield ".".join(part for part in parts if part != "__init__"), file


def imports_of(name: str, file: Path) -> Iterator[str]:
    """The modules that a module imports, as dotted names; `from a import b` counts as `a.b` where that is a module."""
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base]).strip(".")
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                path = ROOT.joinpath(*inner.split("."))
                yield inner if path.is_dir() or path.with_suffix(".py").exists() else base


def is_within(module: str, prefixes: tuple[str, ...]) -> bool:
    """Whether a module is one of `prefixes` or lies below one."""
    return any(module == prefix or module.startswith(prefix + ".") for prefix in prefixes)


def rule_of(name: str) -> str:
    """The longest prefix that has a rule; KeyError for a module of a part without one."""
    found = [prefix for prefix in MAY if is_within(name, (prefix,))]
    if not found:
        raise KeyError(f"{name} belongs to no part: give it a rule here")
    return max(found, key=len)


def test_the_walk_sees_the_modules_and_their_imports() -> None:
    names = dict(modules())
    assert {"agent.wire", "orgs.models", "fleet.ingest", "goodput_site.settings", "manage"} <= set(names)
    assert "orgs.keys" in set(imports_of("fleet.ingest", names["fleet.ingest"]))
    assert "goodput_site.launcher.errors" in set(
        imports_of("goodput_site.launcher.up", names["goodput_site.launcher.up"])
    )


def test_imports_point_one_way() -> None:
    wrong = []
    for name, file in modules():
        may = MAY[rule_of(name)] + EXCEPTIONS.get(name, ())
        for imported in imports_of(name, file):
            if is_within(imported, OURS) and not is_within(imported, may):
                wrong.append(f"{name} imports {imported}")
    assert wrong == []


def test_every_exception_is_still_needed() -> None:
    files = dict(modules())
    for name, granted in EXCEPTIONS.items():
        if name in files:
            used = [each for each in imports_of(name, files[name]) if is_within(each, granted)]
            assert used, f"{name} needs its exception no more"


def test_domain_code_is_pure() -> None:
    """Standard library and numpy only, and of the former nothing that reads a clock, a file or the network."""
    wrong = []
    for name, file in modules():
        if is_within(name, PURE):
            for imported in imports_of(name, file):
                top = imported.partition(".")[0]
                is_known = top in sys.stdlib_module_names or top in (*OURS, "numpy")
                if not is_known or (top in IMPURE and (name, top) not in READS_DATA):
                    wrong.append(f"{name} imports {imported}")
    assert wrong == []


def test_domain_code_reads_no_clock() -> None:
    wrong = []
    for name, file in modules():
        if is_within(name, PURE):
            for node in ast.walk(tree_of(file)):
                if isinstance(node, ast.Call) and CLOCK.fullmatch(ast.unparse(node.func)):
                    wrong.append(f"{name}:{node.lineno} calls {ast.unparse(node.func)}")
    assert wrong == []


def test_agent_domain_and_launcher_know_no_django() -> None:
    heavy = ("django", "rest_framework", "celery", "orgs", "redis", "weasyprint", "numpy")
    wrong = []
    for name, file in modules():
        if is_within(name, NO_DJANGO):
            allowed = ("numpy",) if is_within(name, PURE) else ()
            wrong += [
                f"{name} imports {imported}"
                for imported in imports_of(name, file)
                if is_within(imported, heavy) and not is_within(imported, allowed)
            ]
    assert wrong == []


def test_the_wire_needs_next_to_nothing() -> None:
    """The standard library and an encoder: a node's Python may be old and bare."""
    needs = {each.partition(".")[0] for each in imports_of("agent.wire", ROOT / "agent/wire.py")}
    assert needs - {"msgpack"} <= sys.stdlib_module_names


# Files


MANY_LINES = 460  # about 400 is the aim; a little more is better than a cut in the wrong place


def test_files_stay_readable() -> None:
    """What is longer wants to be two files."""
    long = {
        str(file.relative_to(ROOT)): lines
        for _, file in modules()
        if (lines := len(file.read_text().splitlines())) > MANY_LINES
    }
    assert long == {}


def test_every_module_says_what_lives_in_it() -> None:
    silent = [
        name
        for name, file in modules()
        if (text := file.read_text()).strip() and not ast.get_docstring(ast.parse(text))
    ]
    assert silent == []


# Tenancy


def test_no_app_is_shared_and_an_orgs_at_once() -> None:
    """A table in both would let a forgotten org read another's rows through the search path."""
    assert not set(settings.SHARED_APPS) & set(settings.TENANT_APPS)
    assert set(settings.INSTALLED_APPS) == set(settings.SHARED_APPS) | set(settings.TENANT_APPS)


# Who may enter an org: each checks before that it may. Everybody else runs where they were called.
DOORS = {
    "orgs.middleware": {"set_tenant"},  # membership, at every request
    "orgs.schemas": {"set_schema"},  # of an org that is being made
    "orgs.tasks": {"tenant_context"},  # a task's org, if it is active
    "fleet.api": {"set_schema"},  # the org of a key with the scope, or of a member's session
    "fleet.alerts.confirming": {"tenant_context"},  # the org of a signed link, for the one address in it
    "fleet.agents.api": {"set_schema"},  # the org of a key that may enrol
    "fleet.management.commands.refold": {"tenant_context"},  # whoever may run manage.py
    "fleet.management.commands.explain": {"tenant_context"},
    "fleet.management.commands.adopt_rules": {"tenant_context"},
    "fleet.management.commands.amend_rule": {"tenant_context"},
    "fleet.management.commands.simulate": {"tenant_context"},
    "fleet.management.commands.seal": {"tenant_context"},
    "fleet.summary.services": {"tenant_context"},  # provider staff let the fold try again
    "fleet.summary.rollout": {"tenant_context"},  # provider staff adopt a rule set for an org
    "claims.management.in_org": {"tenant_context"},
    "claims.demo": {"tenant_context"},  # an org of its own, rolled back
    "claims.feeds": {"tenant_context"},  # whoever has the secret address of a calendar
    "claims.views_provider_claims": {"tenant_context"},  # provider staff, for claims that were filed with them
    "benchmarks.*": {"tenant_context"},
}


def test_orgs_are_entered_by_few_doors() -> None:
    used: dict[str, set[str]] = {}
    for name, file in modules():
        for node in ast.walk(tree_of(file)):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func).rpartition(".")[2]
            is_public = called == "schema_context" and ast.unparse(node.args[0]) == "'public'"
            if called in ("set_schema", "set_tenant", "tenant_context", "schema_context") and not is_public:
                used.setdefault("benchmarks.*" if name.startswith("benchmarks.") else name, set()).add(called)
    assert {name: calls for name, calls in used.items() if not calls <= DOORS.get(name, set())} == {}


def tenant_models() -> list[Any]:
    """Every model of an org's schema."""
    labels = {app.label for app in apps.get_app_configs() if app.name in settings.TENANT_APPS}
    return [model for model in apps.get_models(include_auto_created=True) if model._meta.app_label in labels]


def test_no_model_of_an_org_points_to_a_shared_one() -> None:
    """Deleting the target would fail from every other org; ids and names are copied instead (docs/adr/0002)."""
    models = tenant_models()
    assert models
    wrong = [
        f"{model.__name__}.{field.name}"
        for model in models
        for field in model._meta.get_fields()
        if field.is_relation and field.related_model not in models
    ]
    assert wrong == []


@pytest.mark.django_db
def test_the_database_has_no_reference_across_schemas(alpha: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "select conrelid::regclass::text, confrelid::regclass::text from pg_constraint c"
            " join pg_class a on a.oid = c.conrelid join pg_class b on b.oid = c.confrelid"
            " where c.contype = 'f' and a.relnamespace <> b.relnamespace"
        )
        assert cursor.fetchall() == []


@pytest.mark.django_db
def test_no_table_exists_both_in_public_and_in_an_org(alpha: Any) -> None:
    """Reads of a missing table would fall through to public in silence."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select relname from pg_class where relkind in ('r', 'p', 'v') and relnamespace = %s::regnamespace"
            " intersect"
            " select relname from pg_class where relkind in ('r', 'p', 'v') and relnamespace = 'public'::regnamespace",
            [alpha.schema_name],
        )
        assert [row[0] for row in cursor.fetchall()] == ["django_migrations"]
