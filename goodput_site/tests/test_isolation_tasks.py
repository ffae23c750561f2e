"""Who gets what, for work in the background: every Celery task and every export has a row, and keeps to its org.

Both orgs hold the rows that the table of routes plants, under the same primary keys. A task is run for alpha; whatever
it does, beta's schema and beta's rows of the public schema are afterwards what they were.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.alerts.models import Channel, Recipient
from fleet.summary import services
from fleet.summary.export import run_export
from goodput_site.celery import app
from goodput_site.tests.isolation_table import MINE, PLANTED, THEIRS, plant
from orgs.models import Org
from orgs.services import set_org_status

pytestmark = pytest.mark.django_db

CHANNEL = 7_000_008
# Tasks of one org: what they are called with beside its id.
OF_AN_ORG: dict[str, tuple[Any, ...]] = {
    "fleet.tasks.fold_org": (),
    "fleet.tasks.close_silence_of_org": (),
    "fleet.tasks.probe_org": (),
    "fleet.tasks.seal_org": (),
    "fleet.tasks.compare_rules_of_org": (PLANTED, 0),
    "fleet.summary.tasks.summarise_org": (),
    "fleet.alerts.tasks.tell_org": (),
    "fleet.alerts.tasks.tell_channel": (CHANNEL,),
    "fleet.alerts.tasks.forget_of_org": (),
    "claims.tasks.checkpoint_org": (),
    "claims.tasks.anchor_org": (),
    "claims.tasks.tend_org": (),
    "claims.tasks.draft_org": (),
}
# Tasks of the whole server, and what keeps each from mixing orgs.
OF_THE_SERVER = {
    "fleet.tasks.sweep": "asks each org's own tables whether there is work, sends their ids",
    "fleet.tasks.close_silence": "sends ids",
    "fleet.tasks.probe": "sends ids",
    "fleet.tasks.seal": "sends ids",
    "fleet.tasks.make_partitions": "makes empty partitions by the name of each schema",
    "fleet.tasks.clear_sessions": "deletes expired sessions of the public schema",
    "fleet.alerts.tasks.sweep": "sends ids",
    "fleet.alerts.tasks.forget": "sends ids",
    "fleet.summary.tasks.summarise": "sends ids",
    "fleet.summary.tasks.export_org": "writes one org's archive; tested below",
    "claims.tasks.checkpoint_all": "sends ids",
    "claims.tasks.anchor_all": "sends ids",
    "claims.tasks.tend_all": "sends ids",
    "claims.tasks.draft_all": "sends ids",
    "orgs.tasks.send_mails": "each mail names the org of its invitation",
    "orgs.tasks.mail_reset": "people are of no org",
    "orgs.tasks.mail_notice": "people are of no org",
}


@pytest.fixture
def planted(alpha: Org, beta: Org, settings: Any, tmp_path: Any) -> tuple[Org, Org]:
    """(alpha, beta), with the same primary keys and different names in both."""
    settings.GOODPUT_VAR = tmp_path
    for org, name in ((alpha, MINE), (beta, THEIRS)):
        plant(org, name)
        with tenant_context(org):
            to = [f"{name}@x.example"]
            channel = Channel.objects.create(pk=CHANNEL, name=name, kind="email", recipients=to, target=name)
            Recipient.objects.create(channel=channel, address=to[0], confirmed_at=timezone.now())
        Org.objects.filter(pk=org.pk).update(name=name)
    return alpha, beta


def trace_of(org: Org) -> str:
    """A hash over every row of the org's schema and over the public rows that carry its id."""
    digest = hashlib.sha256()
    with connection.cursor() as cursor:
        cursor.execute(
            "select table_schema, table_name, exists (select 1 from information_schema.columns c"
            "   where (c.table_schema, c.table_name, c.column_name) = (t.table_schema, t.table_name, 'org_id'))"
            " from information_schema.tables t where table_schema in (%s, 'public') and table_type = 'BASE TABLE'"
            " order by 1, 2",
            [org.schema_name],
        )
        for schema, table, has_org_id in cursor.fetchall():
            if schema == "public" and not has_org_id:
                continue
            where = f" where org_id = {org.pk}" if schema == "public" else ""
            cursor.execute(f'select md5(to_jsonb(t)::text) from "{schema}"."{table}" t{where} order by 1')
            digest.update(f"{schema}.{table}".encode() + repr(cursor.fetchall()).encode())
    return digest.hexdigest()


def ours() -> set[str]:
    """Every registered task of ours; those that tests made up are left out."""
    app.loader.import_default_modules()
    names = {name for name in app.tasks if name.split(".")[0] in ("orgs", "fleet", "claims", "goodput_site")}
    return {name for name in names if ".tests." not in name}


def test_isolation_every_task_has_a_row() -> None:
    assert ours() == set(OF_AN_ORG) | set(OF_THE_SERVER)
    for name in OF_AN_ORG:
        assert getattr(app.tasks[name].run, "is_of_an_org", False), f"{name} opens its org by hand"
    for name in OF_THE_SERVER:
        assert not getattr(app.tasks[name].run, "is_of_an_org", False), name


@pytest.mark.parametrize("name", OF_AN_ORG)
def test_isolation_a_task_leaves_the_other_org_as_it_was(name: str, planted: tuple[Org, Org]) -> None:
    alpha, beta = planted
    before = trace_of(beta)
    app.tasks[name](alpha.pk, *OF_AN_ORG[name])
    assert trace_of(beta) == before
    with connection.cursor() as cursor:
        cursor.execute("select current_schema()")
        assert cursor.fetchone()[0] == "public"


def test_isolation_the_trace_notices_a_row(planted: tuple[Org, Org]) -> None:
    """Otherwise the test above proves nothing."""
    alpha, beta = planted
    before = trace_of(beta)
    services.set_exposure(beta.pk, {"EUR": "1"}, beta.created_at)
    assert trace_of(beta) != before
    before = trace_of(alpha)
    with connection.cursor() as cursor:
        cursor.execute(f"update {alpha.schema_name}.fleet_cluster set name = 'other'")
    assert trace_of(alpha) != before


@pytest.mark.parametrize("name", OF_AN_ORG)
def test_isolation_a_task_of_a_missing_or_suspended_org_does_not_run(name: str, planted: tuple[Org, Org]) -> None:
    alpha, beta = planted
    traces = trace_of(alpha), trace_of(beta)
    assert app.tasks[name](999_999_999, *OF_AN_ORG[name]) is None
    set_org_status(beta, "suspended", actor="test")
    before = trace_of(beta)
    assert app.tasks[name](beta.pk, *OF_AN_ORG[name]) is None
    assert trace_of(beta) == before
    assert trace_of(alpha) == traces[0]


def test_isolation_an_export_holds_one_org(planted: tuple[Org, Org], key_of: Any, ada: Any, bo: Any) -> None:
    for org, name in zip(planted, (MINE, THEIRS), strict=True):
        key_of(org, "read")
        export = run_export(services.request_export(org, actor=f"{name}@x.example").pk)
        assert export is not None
        text = read_all((services.export_folder() / export.file_name).read_bytes())
        other = THEIRS if name == MINE else MINE
        assert name in text
        assert other not in text
        assert (ada.email in text) is (name == MINE)
        assert (bo.email in text) is (name == THEIRS)


def read_all(archive: bytes) -> str:
    """Every file of a ZIP, as text."""
    with zipfile.ZipFile(io.BytesIO(archive)) as files:
        return "\n".join(files.read(name).decode(errors="replace") for name in files.namelist())
