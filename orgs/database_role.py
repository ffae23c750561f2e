"""The server's role in PostgreSQL: owner of its database and no superuser, made by somebody who is one.

What a superuser made before, by an installation that used one for everything, is handed over schema by schema: one
transaction each, because thousands of tables in one would run out of locks. Repeating it finds nothing left to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

import psycopg
from psycopg import sql

LOCK_PATIENCE = "10s"
TRIES = 3
SCHEMAS = (
    "select nspname::text from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema' order by 1"
)
# What may be owned by itself. Indexes and sequences of columns follow their tables, row types theirs; what belongs to
# an extension stays.
OWNED = (
    """
    select format('alter %%s %%I.%%I owner to ', case c.relkind when 'v' then 'view' when 'm' then 'materialized view'
        when 'S' then 'sequence' when 'f' then 'foreign table' else 'table' end, n.nspname, c.relname)
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relowner = %(old)s and n.nspname = %(schema)s and c.relkind in ('r', 'p', 'v', 'm', 'S', 'f')
        and not exists (select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid
            and (d.deptype = 'e' or c.relkind = 'S' and d.deptype in ('a', 'i')))
    """,
    """
    select format('alter routine %%s owner to ', p.oid::regprocedure)
    from pg_proc p join pg_namespace n on n.oid = p.pronamespace
    where p.proowner = %(old)s and n.nspname = %(schema)s and not exists (
        select from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e')
    """,
    """
    select format('alter type %%I.%%I owner to ', n.nspname, t.typname)
    from pg_type t join pg_namespace n on n.oid = t.typnamespace
    where t.typowner = %(old)s and n.nspname = %(schema)s and t.typtype in ('e', 'd', 'r') and not exists (
        select from pg_depend d where d.classid = 'pg_type'::regclass and d.objid = t.oid and d.deptype = 'e')
    """,
    """
    select format('alter schema %%I owner to ', nspname) from pg_namespace
    where nspowner = %(old)s and nspname = %(schema)s
    """,
)


class RoleRefused(Exception):
    """A sentence for the operator: the role can't be made as asked."""


def own(url: str, admin: psycopg.Connection) -> Iterator[str]:
    """Let the role of `url` own the database of `url`, through `admin`, a superuser there; a line per step.

    `admin` is in autocommit. Raises RoleRefused for roles that can't be told apart or may not do it.
    """
    role, database = role_and_database(url)
    if admin.info.user == role:
        raise RoleRefused(f"The server would be {role}, the superuser itself. Give DATABASE_URL another role.")
    if not _one(admin, "select rolsuper from pg_roles where rolname = current_user"):
        raise RoleRefused(f"{admin.info.user} is no superuser of PostgreSQL and can't hand over what others own.")
    yield from _make(url, role, admin)
    if not _one(admin, "select datdba = %s::regrole from pg_database where datname = %s", _quoted(role), database):
        admin.execute(sql.SQL("alter database {} owner to {}").format(sql.Identifier(database), sql.Identifier(role)))
        yield f"{role} owns the database {database}"
    for schema in _schemas(admin):
        if count := _hand_over(admin, schema, role):
            yield f"{role} owns {count} objects of {schema}"


def role_and_database(url: str) -> tuple[str, str]:
    """Both names of a postgresql:// address."""
    parts = urlsplit(url)
    return unquote(parts.username or ""), unquote(parts.path.lstrip("/"))


def password_of(admin: psycopg.Connection, role: str, password: str) -> sql.Composed:
    """The statement that gives `role` this password; only its hash is in it, so that no log of statements holds it."""
    hashed = admin.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256").decode()
    return sql.SQL("alter role {} password {}").format(sql.Identifier(role), sql.Literal(hashed))


def _make(url: str, role: str, admin: psycopg.Connection) -> Iterator[str]:
    """The role with the password of `url`, sent as its hash; no superuser, nothing but a login."""
    name = sql.Identifier(role)
    if not _one(admin, "select count(*) from pg_roles where rolname = %s", role):
        admin.execute(sql.SQL("create role {} login").format(name))
        yield f"made the role {role}"
    if _one(admin, "select rolsuper from pg_roles where rolname = %s", role):
        admin.execute(sql.SQL("alter role {} nosuperuser").format(name))
        yield f"{role} is no superuser any more"
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.OperationalError:
        admin.execute(password_of(admin, role, unquote(urlsplit(url).password or "")))
        yield f"set the password of {role}"


def _schemas(admin: psycopg.Connection) -> list[str]:
    return [name for (name,) in admin.execute(SCHEMAS)]


def _hand_over(admin: psycopg.Connection, schema: str, role: str) -> int:
    """Everything of `schema` that the superuser owns goes to `role`; how many things. A lock is waited for thrice."""
    old = _one(admin, "select oid from pg_roles where rolname = current_user")
    for left in reversed(range(TRIES)):
        try:
            with admin.transaction():
                admin.execute(sql.SQL("set local lock_timeout = {}").format(LOCK_PATIENCE))
                admin.execute("set local search_path = pg_catalog")
                found = [row[0] for text in OWNED for row in admin.execute(text, {"old": old, "schema": schema})]
                for statement in found:
                    # the names in it were quoted by PostgreSQL's own format()
                    admin.execute(sql.SQL(statement) + sql.Identifier(role))
                return len(found)
        except psycopg.errors.LockNotAvailable:
            if not left:
                raise
    raise AssertionError("unreachable")


def _quoted(role: str) -> str:
    return '"' + role.replace('"', '""') + '"'


def _one(admin: psycopg.Connection, query: str, *values: object) -> object:
    row = admin.execute(query, values).fetchone()
    return row[0] if row else None
