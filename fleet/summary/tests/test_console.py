"""The provider's console: a customer from the form to the tombstone, and what stands on its pages."""

from __future__ import annotations

import io
import json
import re
import zipfile
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone
from django_tenants.utils import schema_exists, tenant_context

from fleet.models import Cluster
from fleet.summary import services, tasks
from fleet.summary.export import run_export
from fleet.summary.models import Export, JobBeat, OrgSummary
from fleet.summary.selectors import BEAT, list_org_rows, queues
from fleet.tests.bodies import packed
from orgs import keys
from orgs.models import ApiKey, AuditEntry, Membership, Org, OrgTombstone
from orgs.services import create_org

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("lan")]
NEW = {"slug": "gamma", "name": "Gamma AI", "email": "gia@gamma.example", "cluster": "prod"}


@pytest.fixture(autouse=True)
def _own_folder(settings: Any, tmp_path: Any) -> None:
    """Exports of a test stay in its folder."""
    settings.GOODPUT_VAR = tmp_path


@pytest.fixture
def staff(pat: Any, client_of: Any) -> Client:
    """Pat at the console."""
    return client_of(pat)


def upload(token: str, **more: Any) -> bytes:
    """Send one batch; its bytes."""
    body, _ = packed(**more)
    headers = {"authorization": f"Bearer {token}", "content-encoding": "gzip"}
    sent = Client(HTTP_HOST="localhost").post("/v1/batches", body, "application/msgpack", headers=headers)
    assert sent.status_code == 202, sent.content
    return body


def test_only_staff_find_the_console(ada: Any, client_of: Any) -> None:
    assert client_of(None).get("/provider/")["Location"] == "/login/?next=/provider/"
    assert client_of(ada).get("/provider/").status_code == 404
    assert client_of(ada).post("/provider/orgs/new/", NEW).status_code == 404
    assert not Org.objects.filter(slug="gamma").exists()


def test_a_customer_in_one_form(staff: Client, client_of: Any, settings: Any) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
    page = staff.post("/provider/orgs/new/", NEW).content.decode()
    token = re.search(r'id="secret"[^>]*>(gp_[\w-]+)<', page)[1]  # type: ignore[index]
    link = re.search(r'id="link"[^>]*>http://localhost(/invitation/[^<]+)<', page)[1]  # type: ignore[index]
    assert "--endpoint http://localhost/v1/batches --cluster prod" in page
    info = keys.resolve(token)
    assert (info.org_slug, info.cluster, info.scopes) == ("gamma", "prod", {"ingest"})
    upload(token, cluster_id="prod")
    gia = client_of(None)
    assert gia.post(link, {"password": "correct horse battery"})["Location"] == "/o/gamma/"
    assert gia.get("/o/gamma/").status_code == 200
    assert gia.get("/o/alpha/").status_code == 404
    assert Membership.objects.get(org__slug="gamma").role == "owner"
    assert {"org.created", "key.created", "invitation.created"} <= set(
        AuditEntry.objects.filter(org_slug="gamma", actor="pat@provider.example").values_list("action", flat=True)
    )


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"slug": "alpha"}, "There is an org alpha already"),
        ({"slug": "provider"}, "A slug has 1 to 40"),
        ({"slug": "Not A Slug"}, "A slug has 1 to 40"),
        ({"email": "nobody"}, "valid email address"),
        ({"name": ""}, "required"),
    ],
)
def test_a_bad_customer_is_refused_and_leaves_nothing(wrong: dict[str, str], sentence: str, staff: Client) -> None:
    before = (Org.objects.count(), ApiKey.objects.count())
    response = staff.post("/provider/orgs/new/", {**NEW, **wrong})
    assert response.status_code == 422
    assert sentence in response.content.decode()
    assert (Org.objects.count(), ApiKey.objects.count()) == before


def test_a_row_says_how_the_fleet_is(alpha: Any, key_of: Any, staff: Client) -> None:
    upload(key_of(alpha, expires_at=timezone.now() + timedelta(days=3)))
    with tenant_context(alpha):
        waiting = services.write_summary(alpha, timezone.now())
    assert (waiting.waiting_batches, waiting.keys_expiring) == (1, 1)
    tasks.summarise_org(alpha.pk)
    assert OrgSummary.objects.get(org_id=alpha.pk).as_of >= waiting.as_of
    page = staff.get("/provider/").content.decode()
    assert "Alpha" in page
    assert staff.get("/provider/orgs.json").json()["orgs"]
    assert "alpha" in staff.get("/provider/orgs.csv").content.decode()


def test_worst_orgs_come_first_and_suspended_ones_last(alpha: Any, beta: Any, local: Any) -> None:
    now = timezone.now()
    OrgSummary.objects.create(org_id=beta.pk, as_of=now, gpus=8, down=2)
    OrgSummary.objects.create(org_id=alpha.pk, as_of=now - timedelta(hours=1), gpus=8, available=8)
    Org.objects.filter(pk=local.pk).update(status="suspended")
    rows = list_org_rows(now)
    assert [row.org.slug for row in rows] == ["beta", "alpha", "local"]
    assert [row.is_stale for row in rows] == [False, True, True]


def test_the_version_of_an_orgs_tables_is_shown(alpha: Any, staff: Client) -> None:
    page = staff.get(f"/provider/orgs/{alpha.pk}/").content.decode()
    assert re.search(r"fleet \d{4}.*, up to date", page)


def test_a_late_beat_is_shown(staff: Client) -> None:
    assert "never since the start" in staff.get("/provider/jobs/").content.decode()
    JobBeat.objects.create(name=BEAT, at=timezone.now())
    assert "on time" in staff.get("/provider/jobs/").content.decode()
    JobBeat.objects.update(at=timezone.now() - timedelta(minutes=9))
    assert "No beat for three minutes" in staff.get("/provider/jobs/").content.decode()


def test_failed_batches_are_listed_and_tried_again(alpha: Any, beta: Any, key_of: Any, staff: Client) -> None:
    for org in (alpha, beta):
        upload(key_of(org))
        with tenant_context(org), connection.cursor() as cursor:
            cursor.execute("delete from fleet_waiting")
            cursor.execute(
                "insert into fleet_batchmark (sample_day, sha256, reason, error, marked_at)"
                " select sample_day, sha256, 'failed', %s, now() from fleet_inbox",
                [f"KeyError: <b>{org.slug}</b>"],
            )
    page = staff.get("/provider/jobs/").content.decode()
    assert "KeyError: &lt;b&gt;alpha&lt;/b&gt;" in page
    assert staff.post(f"/provider/orgs/{alpha.pk}/retry/").status_code == 302
    found = {queue.org.slug: (queue.waiting, queue.failed) for queue in queues([alpha, beta])}
    assert found == {"alpha": (1, 0), "beta": (0, 1)}
    assert AuditEntry.objects.get(action="batches.retried").after == {"batches": 1}


def test_an_export_holds_everything_of_one_org(alpha: Any, beta: Any, ada: Any, key_of: Any, staff: Client) -> None:
    body = upload(key_of(alpha), cluster_id="alphas-own")
    upload(key_of(beta), cluster_id="betas-own")
    with tenant_context(alpha):
        Cluster.objects.create(name="alphas-cluster")
    export = services.request_export(alpha, actor="pat@provider.example")
    done = run_export(export.pk)
    assert done is not None
    assert run_export(export.pk) is None  # once
    answer = staff.get(f"/provider/exports/{done.file_name[:32]}/")
    archive = zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content)))  # type: ignore[attr-defined]
    names = archive.namelist()
    facts = [name for name in names if name.startswith("facts/")]
    assert len(facts) == done.facts == 1
    assert archive.read(facts[0]) == body  # the exact bytes
    text = "\n".join(archive.read(name).decode() for name in names if name not in facts)
    assert "alphas-own" in text
    assert "alphas-cluster" in text
    assert ada.email in text
    assert "betas-own" not in text
    assert "secret_hash" not in text
    manifest = json.loads(archive.read("manifest.json"))
    assert manifest["rows"]["tables/fleet_cluster.jsonl"] == 1
    assert answer["Content-Disposition"].startswith('attachment; filename="goodput-alpha-')


def test_an_export_is_for_staff_and_its_name_can_not_be_guessed(
    alpha: Any, ada: Any, client_of: Any, staff: Client
) -> None:
    done = run_export(services.request_export(alpha, actor="x").pk)
    assert done is not None
    path = f"/provider/exports/{done.file_name[:32]}/"
    assert re.fullmatch(r"[0-9a-f]{32}\.zip", done.file_name)
    assert client_of(ada).get(path).status_code == 404
    assert client_of(None).get(path).status_code == 302
    assert staff.get("/provider/exports/" + "0" * 32 + "/").status_code == 404
    assert staff.get("/provider/exports/..%2f..%2fsecrets/").status_code == 404


def test_exports_go_after_a_week_and_stuck_ones_are_given_up(alpha: Any) -> None:
    now = timezone.now()
    done = run_export(services.request_export(alpha, actor="x").pk)
    assert done is not None
    stuck = services.request_export(alpha, actor="x")
    Export.objects.filter(pk=stuck.pk).update(state="running", started_at=now - timedelta(hours=3))
    assert services.clear_exports(now) == 0
    stuck.refresh_from_db()
    assert stuck.state == "failed"
    assert services.clear_exports(now + timedelta(days=8)) == 2
    assert not (services.export_folder() / done.file_name).exists()


def test_suspend_reactivate_delete(staff: Client, client_of: Any) -> None:
    org = create_org("doomed", "Doomed")
    from orgs.services import create_user, issue_key

    owner = create_user("di@doomed.example", actor="test", owner_of=org)
    _, token = issue_key(org, "k", ["read"], actor="test")
    page, owners = f"/provider/orgs/{org.pk}/", client_of(owner)
    assert owners.get("/o/doomed/").status_code == 200
    staff.post(page + "delete/", {"slug": "doomed"})
    assert Org.objects.filter(pk=org.pk).exists()  # not while it is active
    staff.post(page + "status/", {"status": "suspended"})
    assert owners.get("/o/doomed/").status_code == 404
    with pytest.raises(keys.KeyRefused):
        keys.resolve(token)
    staff.post(page + "status/", {"status": "active"})
    assert owners.get("/o/doomed/").status_code == 200
    keys.resolve(token)
    staff.post(page + "status/", {"status": "suspended"})
    staff.post(page + "delete/", {"slug": "doomd"})
    assert Org.objects.filter(pk=org.pk).exists()
    assert staff.post(page + "delete/", {"slug": "doomed"})["Location"] == "/provider/"
    assert not schema_exists(org.schema_name)
    assert OrgTombstone.objects.get(org_id=org.pk).slug == "doomed"
    assert AuditEntry.objects.filter(action="org.deleted", target="doomed").exists()
    assert create_org("doomed").schema_name != org.schema_name
    assert staff.get(page).status_code == 404


def test_view_as_customer_is_read_only_and_audited(alpha: Any, staff: Client) -> None:
    assert staff.post(f"/provider/orgs/{alpha.pk}/view/")["Location"] == "/o/alpha/"
    page = staff.get("/o/alpha/settings/members/").content.decode()
    assert "viewing as customer" in page
    assert "Invite somebody" not in page
    assert staff.get("/o/alpha/settings/audit/").status_code == 403
    made = staff.post("/o/alpha/settings/keys/", {"name": "k", "scope": "ingest", "days": 0})
    assert made.status_code == 403
    assert staff.post(f"/provider/orgs/{alpha.pk}/status/", {"status": "suspended"}).status_code == 403
    assert staff.get("/v1/audit?org=alpha").status_code == 403  # a viewer's session reads no trail
    assert staff.post("/v1/incidents/1/notes?org=alpha", {"text": "x"}, "application/json").status_code == 403
    assert not ApiKey.objects.exists()
    assert staff.post("/provider/view/end/")["Location"] == f"/provider/orgs/{alpha.pk}/"
    assert "viewing as customer" not in staff.get("/o/alpha/settings/members/").content.decode()
    told = AuditEntry.objects.filter(org_id=alpha.pk, action__startswith="org.view").order_by("id")
    assert [(one.action, one.actor) for one in told] == [
        ("org.view_began", "pat@provider.example"),
        ("org.view_ended", "pat@provider.example"),
    ]


def test_a_view_ends_after_half_an_hour(alpha: Any, staff: Client) -> None:
    staff.post(f"/provider/orgs/{alpha.pk}/view/")
    session = staff.session
    session["viewing"] = {**session["viewing"], "until": timezone.now().timestamp() - 1}
    session.save()
    assert "viewing as customer" not in staff.get("/o/alpha/settings/members/").content.decode()
    assert AuditEntry.objects.get(action="org.view_ended").after == {"why": "its time was over"}


def test_the_trail_of_all_orgs(alpha: Any, beta: Any, key_of: Any, staff: Client) -> None:
    key_of(alpha), key_of(beta)
    page = staff.get("/provider/audit/?action=key.").content.decode()
    assert page.count("created key") == 2
    assert staff.get("/provider/audit/?org=beta&action=key.").content.decode().count("created key") == 1
    assert len(staff.get("/provider/audit.csv?action=key.").content.decode().splitlines()) == 3


def test_the_minute_job_sends_every_org(alpha: Any, beta: Any, settings: Any) -> None:
    settings.CELERY_TASK_ALWAYS_EAGER = True
    from goodput_site.celery import app

    eager, app.conf.task_always_eager = app.conf.task_always_eager, True
    try:
        waiting = services.request_export(alpha, actor="x")
        assert tasks.summarise() == Org.objects.filter(status="active").count()
    finally:
        app.conf.task_always_eager = eager
    waiting.refresh_from_db()
    assert waiting.state == "done"
    assert set(OrgSummary.objects.values_list("org_id", flat=True)) >= {alpha.pk, beta.pk}
