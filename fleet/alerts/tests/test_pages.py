"""Settings → Alerts by page: make, change, test, roll, remove, the log; and who may not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django_tenants.utils import tenant_context

from fleet.alerts.models import Channel, Delivery
from fleet.alerts.sealing import unseal
from fleet.alerts.tests.conftest import HttpSink
from orgs.models import AuditEntry
from orgs.services import create_user, set_role

pytestmark = pytest.mark.django_db
Make = Callable[..., Any]
BASE = "/o/alpha/settings/alerts/"
FILTERS = {"least_severity": "warning", "hold_seconds": "60"}


@pytest.fixture
def owner(ada: Any, client_of: Make, lan: Any, settings: Any) -> Any:
    """Ada's browser; this server may be called on loopback."""
    from goodput_site.exposure import Exposure, networks

    settings.GOODPUT_ALERT_NETWORKS = networks("auto", Exposure.LOCAL)
    return client_of(ada)


@pytest.fixture
def stored(alpha: Any) -> Callable[[], Channel]:
    """A function: the one channel of alpha."""

    def one() -> Channel:
        with tenant_context(alpha):
            return Channel.objects.get()

    return one


def make_webhook(owner: Any, url: str, **more: str) -> Any:
    """The answer to the form of a webhook."""
    values = {"name": "our hook", "url": url, "digest_minutes": "0", **FILTERS, **more}
    return owner.post(f"{BASE}new/webhook/", values)


def test_a_webhook_is_made_and_its_secret_is_shown_once(owner: Any, stored: Make, http_sink: HttpSink) -> None:
    assert "Nobody is told of anything yet" in owner.get(BASE).content.decode()
    made = make_webhook(owner, f"{http_sink.url}/hook/PATHSECRET")
    assert made.status_code == 200
    assert made["Cache-Control"] == "private, no-store"
    signing = unseal(stored().sealed)["signing"]
    assert signing in made.content.decode()
    for path in (BASE, f"{BASE}{stored().pk}/", f"{BASE}log/"):
        page = owner.get(path).content.decode()
        assert signing not in page
        assert "PATHSECRET" not in page
    assert http_sink.url in owner.get(BASE).content.decode()


def test_each_kind_has_a_form_of_its_own(owner: Any) -> None:
    for kind, has, has_not in (
        ("email", "recipients", "routing_key"),
        ("slack", 'name="url"', "recipients"),
        ("pagerduty", "routing_key", "digest_minutes"),
        ("alertmanager", "authorization", "digest_minutes"),
        ("webhook", "template", "routing_key"),
    ):
        page = owner.get(f"{BASE}new/{kind}/")
        assert page.status_code == 200
        assert has in page.content.decode()
        assert has_not not in page.content.decode()
    assert owner.get(f"{BASE}new/pigeon/").status_code == 404


def test_what_is_wrong_stands_beside_its_field(owner: Any) -> None:
    page = make_webhook(owner, "http://169.254.169.254/latest/")
    assert page.status_code == 422
    assert "may not reach" in page.content.decode()
    page = make_webhook(owner, "http://127.0.0.1:1/", template="{")
    assert page.status_code == 422
    assert "This is not JSON" in page.content.decode()
    values = {"name": "ops", "recipients": "no address", "digest_minutes": "0", **FILTERS}
    page = owner.post(f"{BASE}new/email/", values)
    assert page.status_code == 422
    assert "is not an e-mail address" in page.content.decode()


def test_a_change_keeps_the_secrets_that_are_not_typed_again(owner: Any, stored: Make) -> None:
    make_webhook(owner, "http://127.0.0.1:1/a", authorization="Bearer x")
    before = unseal(stored().sealed)
    path = f"{BASE}{stored().pk}/"
    values = {"name": "renamed", "url": "", "authorization": "", "digest_minutes": "15", "is_enabled": "on"}
    assert owner.post(path, {**FILTERS, **values, "kinds": ["incident"]}).status_code == 302
    assert (stored().name, stored().digest_minutes, stored().kinds) == ("renamed", 15, ["incident"])
    assert unseal(stored().sealed) == before
    owner.post(path, {**FILTERS, **values, "url": "http://127.0.0.1:1/b"})
    assert unseal(stored().sealed) == {**before, "url": "http://127.0.0.1:1/b"}
    trail = AuditEntry.objects.filter(action="alert_channel.changed").order_by("pk")
    assert trail[0].before == {"name": "our hook", "digest_minutes": 0, "kinds": []}
    assert trail[1].after["secrets"] == "replaced"
    assert "/b" not in str(trail[1].after)
    rolled = owner.post(f"{path}roll/")
    assert unseal(stored().sealed)["signing"] in rolled.content.decode()
    assert unseal(stored().sealed)["signing"] != before["signing"]


def test_the_button_sends_a_test_and_the_log_shows_what_came_of_it(
    owner: Any, alpha: Any, stored: Make, http_sink: HttpSink, tell: Make
) -> None:
    make_webhook(owner, http_sink.url)
    channel = f"{BASE}{stored().pk}/"
    page = owner.post(f"{channel}test/", follow=True).content.decode()
    assert "A test is on its way" in page
    assert 'data-every="3"' in page
    with tenant_context(alpha):
        assert tell() == 1
        sent = Delivery.objects.get()
    page = owner.get(f"{BASE}log/?status=sent").content.decode()
    assert "Test: ada@alpha.example tries the channel our hook" in page
    assert "200" in page
    assert owner.get(f"{BASE}log/?status=failed").content.decode().count("<tr") == 0
    csv = owner.get(f"{BASE}log.csv").content.decode().splitlines()
    assert csv[0].startswith("id,uid,channel_id,channel,kind,to,thread,what")
    assert len(csv) == 2
    again = owner.post(f"{BASE}deliveries/{sent.pk}/again/", follow=True).content.decode()
    assert "It goes out again" in again
    part = owner.get(channel, headers={"hx-request": "true"}).content.decode()
    assert part.lstrip().startswith('<section id="live"')
    for _ in range(3):
        last = owner.post(f"{channel}test/", follow=True).content.decode()
    assert "Some tests wait already" in last or "on its way" in last


def test_a_removed_channel_is_gone_with_its_secrets_and_its_log_stays(
    owner: Any, alpha: Any, stored: Make, http_sink: HttpSink, tell: Make
) -> None:
    make_webhook(owner, http_sink.url)
    channel = f"{BASE}{stored().pk}/"
    owner.post(f"{channel}test/")
    with tenant_context(alpha):
        tell()
    assert owner.post(f"{channel}remove/").status_code == 302
    assert stored().sealed is None
    assert owner.get(channel).status_code == 404
    assert owner.post(f"{channel}test/").status_code == 404
    assert "our hook <span" in owner.get(f"{BASE}log/").content.decode()
    actions = set(AuditEntry.objects.filter(org_slug="alpha").values_list("action", flat=True))
    assert {"alert_channel.created", "alert_channel.tested", "alert_channel.removed"} <= actions


def test_hostile_names_stay_inert_on_pages_and_in_the_csv(
    owner: Any, alpha: Any, http_sink: HttpSink, break_gpu: Make, tell: Make
) -> None:
    make_webhook(owner, http_sink.url, name="=cmd()|<script>alert(1)</script>", hold_seconds="0")
    with tenant_context(alpha):
        break_gpu(node="<img src=x onerror=alert(1)>")
        tell()
    for path in (BASE, f"{BASE}log/"):
        page = owner.get(path).content.decode()
        assert "<script>alert" not in page
        assert "<img src=x" not in page
    assert "'=cmd()" in owner.get(f"{BASE}log.csv").content.decode()


def test_a_viewer_reads_and_changes_nothing(owner: Any, alpha: Any, stored: Make, client_of: Make) -> None:
    make_webhook(owner, "http://127.0.0.1:1/")
    viewer = create_user("vera@alpha.example", actor="test")
    set_role(viewer, alpha, "viewer", actor="test")
    client = client_of(viewer)
    channel = f"{BASE}{stored().pk}/"
    for path in (BASE, channel, f"{BASE}log/", f"{BASE}log.csv"):
        assert client.get(path).status_code == 200
    assert "Send a test" not in client.get(channel).content.decode()
    assert client.get(f"{BASE}new/webhook/").status_code == 403
    for path in (channel, f"{channel}test/", f"{channel}roll/", f"{channel}remove/", f"{BASE}deliveries/1/again/"):
        assert client.post(path).status_code == 403
    set_role(viewer, alpha, "viewer", clusters=["main"], actor="test")
    assert client.get(BASE).status_code == 403  # it shows what goes on in every cluster


def test_another_org_sees_none_of_it(owner: Any, stored: Make, bo: Any, client_of: Make) -> None:
    make_webhook(owner, "http://127.0.0.1:1/")
    assert client_of(bo).get(f"{BASE}{stored().pk}/").status_code == 404
    assert client_of(bo).get(f"/o/beta/settings/alerts/{stored().pk}/").status_code == 404
