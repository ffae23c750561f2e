"""The cast of every test run: two orgs, made once, and three people.

Ada is a member of alpha, Bo of beta, Pat is provider staff. A test that needs real commits (threads, a server, a
worker) uses `transaction=True`; the orgs' rows are put back for it, their schemas stay.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest_plugins = ["goodput_site.tests.attack_table"]
ORGS = ("local", "alpha", "beta")
SECRET_OF_PAT = "JBSWY3DPEHPK3PXP"  # of an authenticator app


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> None:
    """The test database with its orgs and this month's partitions."""
    from django.utils import timezone

    from fleet.partitions import ensure_partitions
    from orgs.models import Org
    from orgs.services import create_org

    with django_db_blocker.unblock():
        for slug in ORGS:
            org = Org.objects.filter(slug=slug).first() or create_org(slug, slug.title())
            ensure_partitions(org.schema_name, timezone.now())


@pytest.fixture(scope="session")
def _org_rows(django_db_setup: None, django_db_blocker: Any) -> list[dict[str, Any]]:
    """The rows of the orgs as they were made."""
    from orgs.models import Org

    with django_db_blocker.unblock():
        return list(Org.objects.filter(slug__in=ORGS).values())


@pytest.fixture(autouse=True)
def _clean_process(request: pytest.FixtureRequest) -> Iterator[None]:
    """Forget cached keys and go back to the public schema; put the orgs back after a test that truncates."""
    if "django_db" not in request.keywords and not {"db", "transactional_db"} & set(request.fixturenames):
        yield
        return
    from django.core.cache import caches
    from django.db import connection

    from fleet import dated, ingest, quotas
    from orgs import keys
    from orgs.models import Org

    dated.forget()
    ingest._known_partitions.clear()  # a test's partitions may be rolled back with it
    rows = request.getfixturevalue("_org_rows")
    marker = request.node.get_closest_marker("django_db")
    flushes = bool(marker and marker.kwargs.get("transaction")) or "transactional_db" in request.fixturenames
    request.getfixturevalue("transactional_db" if flushes else "db")
    keys.cache.clear()
    keys.guesses.clear()
    quotas.buckets.clear()
    caches["default"].key_prefix = secrets.token_hex(4)  # limits that an earlier test counted up are not this one's
    connection.set_schema_to_public()  # type: ignore[attr-defined]
    if flushes or Org.objects.filter(slug__in=ORGS).count() < len(rows):  # this test truncates, or one before it did
        Org.objects.bulk_create([Org(**row) for row in rows], ignore_conflicts=True)
        empty_schemas([row["schema_name"] for row in rows])
    yield
    connection.set_schema_to_public()  # type: ignore[attr-defined]
    keys.cache.clear()


#: What a schema's migrations put there and every org has: one row each, or the history of the schema itself.
SEEDED = [
    *("django_migrations", "agents_countedthrough", "fleet_datedstamp", "fleet_folded_through"),
    *("fleet_ruleadoption", "fleet_whole"),
]


def empty_schemas(schemas: list[str]) -> None:
    """Remove the rows that an earlier transactional test committed in the orgs' schemas, whatever table they are in."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(
            "select format('%%I.%%I', n.nspname, c.relname)"
            " from pg_class c join pg_namespace n on n.oid = c.relnamespace"
            " where n.nspname = any(%s) and c.relkind in ('r', 'p') and not c.relispartition and c.relname <> all(%s)",
            [schemas, SEEDED],
        )
        tables = ", ".join(table for (table,) in cursor.fetchall())
        cursor.execute(f"truncate {tables} restart identity cascade")


@pytest.fixture(scope="session")
def database_url(django_db_setup: None) -> str:
    """The URL of the database that the tests use, for processes that a test starts."""
    from django.db import connection

    server = os.environ["DATABASE_URL"].rpartition("/")[0]
    return f"{server}/{connection.settings_dict['NAME']}"


def _org(slug: str) -> Any:
    from orgs.models import Org

    return Org.objects.get(slug=slug)


@pytest.fixture
def alpha(_clean_process: None) -> Any:
    """Ada's org."""
    return _org("alpha")


@pytest.fixture
def beta(_clean_process: None) -> Any:
    """Bo's org."""
    return _org("beta")


@pytest.fixture
def local(_clean_process: None) -> Any:
    """The org that stands open in local mode."""
    return _org("local")


@pytest.fixture
def ada(alpha: Any) -> Any:
    """Owner of alpha."""
    from orgs.services import create_user

    return create_user("ada@alpha.example", actor="test", owner_of=alpha)


@pytest.fixture
def bo(beta: Any) -> Any:
    """Owner of beta."""
    from orgs.services import create_user

    return create_user("bo@beta.example", actor="test", owner_of=beta)


@pytest.fixture
def pat(_clean_process: None) -> Any:
    """Provider staff, with the second factor that a server in lan and public mode wants of them."""
    from allauth.mfa.totp.internal.auth import TOTP

    from orgs.services import create_user

    person = create_user("pat@provider.example", actor="test", is_provider=True)
    TOTP.activate(person, SECRET_OF_PAT)
    return person


@pytest.fixture
def client_of() -> Callable[[Any], Any]:
    """A function: a test client signed in as this person just now (None: nobody)."""
    from allauth.account.internal.flows import login as flow
    from django.test import Client

    def signed_in(user: Any) -> Client:
        client = Client(HTTP_HOST="localhost")
        if user is not None:
            client.force_login(user)
            session = client.session
            session[flow.AUTHENTICATION_METHODS_SESSION_KEY] = [{"method": "password", "at": time.time()}]
            session[flow._AUTHENTICATION_METHODS_USER_SESSION_KEY] = str(user.pk)
            session.save()
        return client

    return signed_in


@pytest.fixture
def member(alpha: Any, client_of: Any, lan: Any) -> Callable[[str], Any]:
    """A function: a test client of a new member of alpha with this role."""
    from orgs.services import create_user, set_role

    def of(role: str) -> Any:
        user = create_user(f"{role}@alpha.example", actor="test")
        set_role(user, alpha, role, actor="test")
        return client_of(user)

    return of


@pytest.fixture
def key_of() -> Callable[..., str]:
    """A function: a fresh token of an org with these scopes."""
    from orgs.services import issue_key

    def issue(org: Any, *scopes: str, **more: Any) -> str:
        return issue_key(org, "test", scopes or ("ingest", "read"), actor="test", **more)[1]

    return issue


@pytest.fixture
def lan(settings: Any) -> Any:
    """The settings of a server in lan mode: nothing stands open."""
    from goodput_site.exposure import Exposure

    settings.GOODPUT_EXPOSE = Exposure.LAN
    return settings
