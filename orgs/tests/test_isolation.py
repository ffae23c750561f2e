"""One org never sees another: PostgreSQL is asked, not the wrapper."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.cache import cache
from django.db import IntegrityError, ProgrammingError, connection, connections, transaction
from django.test import Client
from django_tenants.utils import schema_context, tenant_context

from fleet.models import Cluster
from fleet.sql import ask_org, execute
from orgs.services import create_org, delete_org
from orgs.tests.probe_urls import ask

pytestmark = pytest.mark.django_db


@pytest.fixture
def probe(settings: Any) -> None:
    """The site with the probe's routes in front."""
    settings.ROOT_URLCONF = "orgs.tests.probe_urls"


@pytest.mark.usefixtures("probe")
def test_a_page_runs_in_the_org_of_its_path_and_leaves_it(
    alpha: Any, beta: Any, ada: Any, bo: Any, client_of: Any
) -> None:
    for org, person in ((alpha, ada), (beta, bo)):
        answer = client_of(person).get(f"/o/{org.slug}/where").json()
        assert answer["schema"] == org.schema_name
        assert [part.strip(' "') for part in answer["search_path"].split(",")] == [org.schema_name, "public"]
        assert ask()["schema"] == "public"


@pytest.mark.usefixtures("probe")
def test_a_page_outside_an_org_runs_in_public_whatever_ran_before(alpha: Any, client_of: Any) -> None:
    connection.set_tenant(alpha)
    assert client_of(None).get("/where").json()["schema"] == "public"


@pytest.mark.usefixtures("probe")
def test_a_stranger_gets_404_and_nobody_in_particular_the_login(alpha: Any, bo: Any, client_of: Any) -> None:
    assert client_of(bo).get("/o/alpha/where").status_code == 404
    assert client_of(bo).get("/o/no-such-org/where").status_code == 404
    for slug in ("alpha", "no-such-org"):  # one answer for both
        response = client_of(None).get(f"/o/{slug}/where")
        assert response.status_code == 302
        assert response["Location"] == f"/login/?next=/o/{slug}/where"


@pytest.mark.usefixtures("probe")
def test_the_host_never_chooses_the_org(alpha: Any, ada: Any, client_of: Any) -> None:
    response = client_of(ada).get("/o/alpha/where", headers={"host": "127.0.0.1:8080"})
    assert response.json()["schema"] == alpha.schema_name


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("probe")
def test_an_exception_leaves_the_org(alpha: Any, ada: Any, client_of: Any) -> None:
    client = client_of(ada)
    client.raise_request_exception = False
    assert client.get("/o/alpha/boom").status_code == 500
    assert ask()["schema"] == "public"


@pytest.mark.usefixtures("probe")
def test_a_page_of_an_org_must_not_stream(alpha: Any, ada: Any, client_of: Any) -> None:
    with pytest.raises(RuntimeError, match="must not stream"):
        client_of(ada).get("/o/alpha/stream")
    assert ask()["schema"] == "public"


def test_a_forgotten_org_is_an_error_and_not_another_orgs_rows(alpha: Any) -> None:
    with tenant_context(alpha):
        Cluster.objects.create(name="c1")
    with pytest.raises(ProgrammingError, match="does not exist"), transaction.atomic():
        Cluster.objects.count()
    with pytest.raises(ProgrammingError, match="does not exist"), transaction.atomic():
        Cluster.objects.create(name="c2")


def test_rows_of_one_org_are_not_there_in_the_other(alpha: Any, beta: Any) -> None:
    with tenant_context(alpha):
        mine = Cluster.objects.create(name="c1")
    with tenant_context(beta):
        assert not Cluster.objects.exists()
        assert not Cluster.objects.filter(pk=mine.pk).exists()
        Cluster.objects.create(name="c1")  # no clash of names across orgs


def test_the_same_id_in_two_orgs_is_two_things(alpha: Any, beta: Any, key_of: Any) -> None:
    for org in (alpha, beta):
        with tenant_context(org):
            Cluster.objects.create(pk=7, name=f"only-in-{org.slug}")
    for org, other in ((alpha, beta), (beta, alpha)):
        client = Client(HTTP_HOST="localhost", HTTP_AUTHORIZATION=f"Bearer {key_of(org)}")
        text = client.get("/v1/clusters").content.decode()
        assert f"only-in-{org.slug}" in text
        assert f"only-in-{other.slug}" not in text


def test_a_cached_value_of_one_org_is_not_there_in_the_other(alpha: Any, beta: Any) -> None:
    with tenant_context(alpha):
        cache.set("isolation-test", "alpha's", 60)
    with tenant_context(beta):
        assert cache.get("isolation-test") is None
    assert cache.get("isolation-test") is None
    with tenant_context(alpha):
        assert cache.get("isolation-test") == "alpha's"
        cache.delete("isolation-test")


def test_deleting_an_org_leaves_the_others_alone(alpha: Any, ada: Any) -> None:
    doomed = create_org("gamma")
    for org in (alpha, doomed):
        with tenant_context(org):
            Cluster.objects.create(name="c1")
    delete_org(doomed, actor="test")
    with tenant_context(alpha):
        assert Cluster.objects.get().name == "c1"
    assert ada.memberships.get().org == alpha


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("probe")
def test_a_crowd_of_requests_with_errors_between_never_crosses(alpha: Any, beta: Any, ada: Any, bo: Any) -> None:
    """Connections are kept between requests of a thread, as in the web process."""

    def visit(number: int) -> list[str]:
        org, person = ((alpha, ada), (beta, bo))[number % 2]
        client = Client(HTTP_HOST="localhost", raise_request_exception=False)
        client.force_login(person)
        wrong = []
        dice = random.Random(number)
        try:
            for _ in range(12):
                what = dice.choice(("where", "where", "boom", "stranger", "public"))
                if what == "where" and (seen := client.get(f"/o/{org.slug}/where").json()["schema"]) != org.schema_name:
                    wrong.append(f"{org.slug} saw {seen}")
                if what == "boom":
                    client.get(f"/o/{org.slug}/boom")
                if (
                    what == "stranger"
                    and client.get(f"/o/{'beta' if org == alpha else 'alpha'}/where").status_code != 404
                ):
                    wrong.append(f"{org.slug} entered the other")
                if what == "public" and (seen := client.get("/where").json()["schema"]) != "public":
                    wrong.append(f"public saw {seen}")
        finally:
            connections.close_all()
        return wrong

    with ThreadPoolExecutor(6) as pool:
        assert [each for wrong in pool.map(visit, range(12)) for each in wrong] == []


def test_a_rolled_back_savepoint_does_not_leave_the_org(alpha: Any, beta: Any) -> None:
    """The case in which a cached search path would lie (django-tenants' TENANT_LIMIT_SET_CALLS)."""
    with tenant_context(alpha):
        Cluster.objects.create(name="c1")
        twice = [Cluster(name="c1"), Cluster(name="c1")]
        with pytest.raises(IntegrityError), transaction.atomic(), tenant_context(beta):
            Cluster.objects.bulk_create(twice)
        assert ask()["schema"] == alpha.schema_name
        assert Cluster.objects.count() == 1


def test_statements_of_the_fold_do_not_trust_a_path_that_was_rolled_back(alpha: Any, beta: Any) -> None:
    """Within a transaction `fleet.sql.execute` sets the search path once; a rollback to a savepoint undoes the SET."""

    def where() -> str:
        ((schema,),) = execute("select current_schema()::text", [])
        return str(schema)

    def enter_and_fail(org: Any) -> None:
        with transaction.atomic(), tenant_context(org):
            assert where() == org.schema_name
            raise KeyError

    with transaction.atomic(), tenant_context(alpha):
        assert [where(), where()] == [alpha.schema_name] * 2
        with pytest.raises(KeyError):
            enter_and_fail(beta)
        assert where() == alpha.schema_name
        with tenant_context(beta):
            with pytest.raises(KeyError):
                enter_and_fail(beta)
            assert where() == beta.schema_name, "the database is back in alpha here until it is told again"
        assert where() == alpha.schema_name
    assert where() == "public"


def test_a_statement_that_names_the_schema_asks_the_current_org_wherever_the_path_points(alpha: Any, beta: Any) -> None:
    """`fleet.sql.ask_org` sets no search path, so the connection still points to the org that was asked before."""

    def clusters() -> int:
        ((count,),) = ask_org("select count(*) from {cluster}", "cluster")
        return int(count)

    with tenant_context(alpha):
        Cluster.objects.create(name="c1")
        assert execute("select current_schema()::text", []) == [(alpha.schema_name,)]
        with tenant_context(beta):
            assert clusters() == 0
        assert clusters() == 1
    with tenant_context(beta):
        assert execute("select current_schema()::text", []) == [(beta.schema_name,)]
        with tenant_context(alpha):
            assert clusters() == 1
    with pytest.raises(ProgrammingError):
        clusters()  # no org: the public schema has no such table


def test_contexts_nest_and_come_back_after_an_exception(alpha: Any, beta: Any) -> None:
    with tenant_context(alpha):
        with pytest.raises(KeyError), schema_context(beta.schema_name):
            raise KeyError
        assert ask()["schema"] == alpha.schema_name
    assert ask()["schema"] == "public"


def test_two_threads_stay_in_their_orgs(alpha: Any, beta: Any) -> None:
    both_inside = threading.Barrier(2, timeout=20)

    def look(org: Any) -> list[str]:
        try:
            seen = []
            for _ in range(20):
                with tenant_context(org):
                    both_inside.wait()
                    seen.append(ask()["schema"])
                    both_inside.wait()
                seen.append(ask()["schema"])
            return seen
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(look, (alpha, beta)))
    assert answers == [[alpha.schema_name, "public"] * 20, [beta.schema_name, "public"] * 20]
