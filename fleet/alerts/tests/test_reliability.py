"""Nothing is lost and nothing floods: retries, dead workers, flaps, digests, slow and hostile receivers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.alerts.delivery import claim
from fleet.alerts.housekeeping import alone, forget_old
from fleet.alerts.models import Alert, Channel, Delivery, Thread
from fleet.alerts.outbox import notify, tell_of_incident
from fleet.alerts.selectors_waiting import orgs_with_alerts
from fleet.alerts.services import create_channel, send_again
from fleet.alerts.tasks import prepare
from fleet.alerts.tests.conftest import HttpSink, MailSink
from fleet.services_incidents import Actor
from orgs.models import Org

Make = Callable[..., Any]
ROOT = Path(__file__).resolve().parents[3]


def make_due() -> None:
    """Let the time pass for which deliveries wait."""
    Delivery.objects.filter(status="waiting").update(due_at=timezone.now(), claimed_until=None)


@pytest.mark.django_db
def test_what_fails_is_tried_again_under_the_same_id(
    http_sink: HttpSink, channel_of: Make, break_gpu: Make, tell: Make
) -> None:
    http_sink.answers = [(500, {}), (503, {"Retry-After": "120"})]
    channel_of("webhook", url=http_sink.url)
    break_gpu()
    assert tell() == 0
    waiting = Delivery.objects.get()
    assert (waiting.status, waiting.attempts, waiting.answer, waiting.error) == ("waiting", 1, 500, "It answered 500.")
    assert timezone.now() < waiting.due_at < timezone.now() + timedelta(seconds=11)
    make_due()
    assert tell() == 0
    assert Delivery.objects.get().due_at > timezone.now() + timedelta(seconds=100)  # as the other side asks
    make_due()
    assert tell() == 1
    assert len({one.headers["webhook-id"] for one in http_sink.received}) == 1
    assert Delivery.objects.get().attempts == 3


@pytest.mark.django_db
def test_after_a_day_it_is_given_up_shown_and_can_be_sent_by_hand(
    http_sink: HttpSink, channel_of: Make, break_gpu: Make, tell: Make, actor: Actor
) -> None:
    channel_of("webhook", url=http_sink.url)
    break_gpu()
    http_sink.answers = [(500, {})]
    prepare(actor.org)
    Delivery.objects.update(attempts=28)
    tell()
    failed = Delivery.objects.get()
    assert (failed.status, failed.error) == ("failed", "It answered 500.")
    assert Channel.objects.get().last_error == "It answered 500."
    assert tell() == 0
    send_again(failed.pk, actor)
    assert tell() == 1


@pytest.mark.django_db
def test_an_end_waits_for_its_beginning_and_takes_its_place_if_that_never_went(
    http_sink: HttpSink, channel_of: Make, break_gpu: Make, mend: Make, tell: Make
) -> None:
    channel_of("webhook", url=http_sink.url)
    http_sink.answers = [(500, {})]
    incident = break_gpu()
    tell()
    mend(incident)
    assert tell() == 1
    told = http_sink.received[-1].json
    assert (told["what"], told["is_over"], told["changes"]) == ("resolved", True, 2)
    assert Delivery.objects.count() == 1


@pytest.mark.django_db
def test_a_redirect_is_not_followed(http_sink: HttpSink, channel_of: Make, break_gpu: Make, tell: Make) -> None:
    http_sink.answers = [(302, {"Location": f"{http_sink.url}/elsewhere"})]
    channel_of("webhook", url=f"{http_sink.url}/here")
    break_gpu()
    assert tell() == 0
    assert [one.path for one in http_sink.received] == ["/here"]
    assert Delivery.objects.get().error == "It answered 302. A redirect is not followed."


@pytest.mark.django_db
def test_what_is_over_at_once_is_told_to_nobody(
    http_sink: HttpSink, channel_of: Make, break_gpu: Make, mend: Make, tell: Make
) -> None:
    channel_of("webhook", url=http_sink.url, hold_seconds=300)
    incident = break_gpu(slots_ago=8)
    assert tell() == 0
    mend(incident)
    assert tell() == 0
    make_due()
    assert tell() == 0
    assert Delivery.objects.get().status == "damped"


@pytest.mark.django_db
def test_a_flapping_fault_is_told_a_few_times_and_then_in_one_message(
    http_sink: HttpSink, channel_of: Make, break_gpu: Make, mend: Make, tell: Make
) -> None:
    channel_of("webhook", url=http_sink.url)
    incident = break_gpu()
    sent = 0
    for _ in range(10):
        sent += tell()
        mend(incident)
        sent += tell()
        incident.is_open = True
        incident.save()
        tell_of_incident(incident, "opened")
    sent += tell()
    assert sent == 4
    (waiting,) = Delivery.objects.filter(status="waiting")
    assert waiting.changes > 10
    assert waiting.due_at > timezone.now() + timedelta(minutes=10)
    make_due()
    assert tell() == 1
    assert http_sink.received[-1].json["changes"] == waiting.changes


@pytest.mark.django_db
def test_a_digest_is_one_message_for_all(mail_sink: MailSink, channel_of: Make, break_gpu: Make, tell: Make) -> None:
    channel_of("email", recipients=["ops@alpha.example"], digest_minutes=60)
    for node in ("n1", "n2"):
        break_gpu(node=node, code="XID_79" if node == "n1" else "GPU_MISSING")
    assert tell() == 0
    due = set(Delivery.objects.values_list("due_at", flat=True))
    assert len(due) == 1
    assert due.pop().minute == 0
    make_due()
    assert tell() == 2
    (mail,) = mail_sink.mails
    assert mail["Subject"] == "[Goodput alpha] 2 messages"
    text = mail.get_payload(decode=True).decode()
    assert "of n1" in text
    assert "of n2" in text


@pytest.mark.django_db
def test_a_slow_receiver_delays_no_other_and_waits_with_all_it_has(
    http_sink: HttpSink, channel_of: Make, break_gpu: Make, tell: Make
) -> None:
    channel_of("webhook", url="http://127.0.0.1:1/", name="dead")
    channel_of("webhook", url=http_sink.url, name="alive")
    for number in range(5):
        break_gpu(node=f"n{number}", code=f"XID_{number + 100}")
    assert tell() == 5
    dead = Delivery.objects.filter(channel__name="dead")
    assert sorted(dead.values_list("attempts", flat=True)) == [0, 0, 0, 0, 1]  # one try tells that it is dead
    assert not dead.filter(due_at__lte=timezone.now()).exists()
    assert set(dead.exclude(error="").values_list("error", flat=True)) == {"The connection was refused."}


@pytest.mark.django_db
def test_three_nodes_with_one_cause_are_one_thread(
    http_sink: HttpSink, channel_of: Make, break_gpu: Make, mend: Make, tell: Make
) -> None:
    channel_of("webhook", url=http_sink.url)
    first, second = break_gpu(node="n1"), break_gpu(node="n2", slots_ago=39)
    assert tell() == 2
    third = break_gpu(node="n3", slots_ago=36)
    tell()
    told = [(one.json["key"], one.json["what"]) for one in http_sink.received[2:]]
    head = f"incident-{first.pk}"
    assert (head, "worsened") in told
    assert (f"incident-{second.pk}", "resolved") in told  # it goes on under the head's key
    assert f"incident-{third.pk}" not in dict(told)
    assert Thread.objects.get(key=head).title == "3 nodes of main: GPU missing"
    for one in (first, second):
        mend(one)
    tell()
    assert Thread.objects.get(key=head).is_open
    mend(third)
    tell()
    last = http_sink.received[-1].json
    assert (last["key"], last["what"], last["facts"]["nodes"]) == (head, "resolved", 3)


@pytest.mark.django_db
def test_an_incident_of_long_ago_wakes_nobody(
    http_sink: HttpSink, channel_of: Make, break_gpu: Make, tell: Make
) -> None:
    channel_of("webhook", url=http_sink.url)
    slot = int(timezone.now().timestamp()) // 15
    break_gpu(is_open=False, end_slot=slot - 300, first_slot=slot - 340)
    assert tell() == 0
    assert not Delivery.objects.exists()


@pytest.mark.django_db
def test_a_deadline_is_told_once_and_ends_by_resolved(
    http_sink: HttpSink, channel_of: Make, tell: Make, inside: Any
) -> None:
    channel_of("pagerduty", url=http_sink.url, routing_key="R" * 32)
    for _ in range(3):
        more = {"at": timezone.now(), "severity": "warning", "title": "3 days left to file C-2026-10-0007"}
        notify("deadline", "deadline-claim-7", "reminder", dedup="3-days", path="claims/7/", **more)
        tell()
    notify("deadline", "deadline-claim-7", "opened", at=timezone.now(), severity="critical", title="Today")
    tell()
    notify("deadline", "deadline-claim-7", "resolved", at=timezone.now(), severity="info", title="Filed")
    tell()
    assert [one.json["event_action"] for one in http_sink.received] == ["trigger", "trigger", "resolve"]
    assert {one.json["dedup_key"] for one in http_sink.received} == {"goodput/alpha/deadline-claim-7"}


@pytest.mark.django_db
def test_the_sweep_finds_orgs_with_work_and_no_others(
    alpha: Any, beta: Any, channel_of: Make, break_gpu: Make, http_sink: HttpSink, tell: Make
) -> None:
    both = Org.objects.filter(slug__in=["alpha", "beta"])
    assert orgs_with_alerts(both, timezone.now()) == []
    channel_of("webhook", url=http_sink.url, hold_seconds=60)
    incident = break_gpu()
    assert orgs_with_alerts(both, timezone.now()) == [alpha.pk]
    tell()
    assert incident.pk
    assert orgs_with_alerts(both, timezone.now()) == []  # held
    assert orgs_with_alerts(both, timezone.now() + timedelta(seconds=61)) == [alpha.pk]


@pytest.mark.django_db
def test_old_rows_go_and_what_waits_stays(channel_of: Make, break_gpu: Make, tell: Make, http_sink: HttpSink) -> None:
    channel_of("webhook", url=http_sink.url)
    channel_of("webhook", url="http://127.0.0.1:1/", name="dead")
    break_gpu()
    tell()
    later = timezone.now() + timedelta(days=91)
    assert forget_old(later) == 2  # the alert, and the delivery that went
    assert list(Delivery.objects.values_list("channel__name", flat=True)) == ["dead"]
    assert Alert.objects.count() == 0


SENDER = """
import django, sys
django.setup()
from django_tenants.utils import tenant_context
from orgs.models import Org
from fleet.alerts.delivery import deliver_to
org = Org.objects.get(slug="alpha")
with tenant_context(org):
    print(deliver_to(org, int(sys.argv[1])), flush=True)
"""


@pytest.mark.django_db(transaction=True)
def test_a_worker_killed_while_sending_leaves_it_to_the_next(
    alpha: Any, http_sink: HttpSink, database_url: str, actor: Actor, break_gpu: Make
) -> None:
    with tenant_context(alpha):
        more = {"name": "hook", "least_severity": "info", "hold_seconds": 0, "url": http_sink.url}
        channel, _ = create_channel({"kind": "webhook", **more}, actor)
        break_gpu()
        assert prepare(alpha) == [channel.pk]
        http_sink.hold = threading.Event()
        environ = {**os.environ, "DATABASE_URL": database_url, "DJANGO_SETTINGS_MODULE": "goodput_site.settings"}
        command = [sys.executable, "-c", SENDER, str(channel.pk)]
        worker = subprocess.Popen(command, cwd=ROOT, env=environ)
        http_sink.wait(1)
        worker.send_signal(signal.SIGKILL)
        worker.wait(10)
        http_sink.hold.set()
        http_sink.hold = None
        left = Delivery.objects.get()
        assert (left.status, left.attempts) == ("waiting", 1)
        assert claim(channel.pk, timezone.now()) == []  # its claim has not run out
        Delivery.objects.update(claimed_until=timezone.now())
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60)
        assert done.stdout.strip() == "1", done.stderr
        assert Delivery.objects.get().status == "sent"
        assert len({one.headers["webhook-id"] for one in http_sink.received}) == 1
        assert len(http_sink.received) == 2


@pytest.mark.django_db(transaction=True)
def test_two_workers_never_send_to_one_channel_at_once(inside: Any) -> None:
    from django.db import connection

    got: list[bool] = []

    def other() -> None:
        with tenant_context(inside), alone("alerts.channel.1") as is_alone:
            got.append(is_alone)
        connection.close()

    with alone("alerts.channel.1") as is_alone:
        assert is_alone
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert got == [False]
    with alone("alerts.channel.1") as is_alone:
        assert is_alone


@pytest.mark.django_db
def test_an_alert_that_can_not_be_routed_holds_up_no_other(
    http_sink: HttpSink, channel_of: Make, break_gpu: Make, tell: Make, caplog: pytest.LogCaptureFixture
) -> None:
    channel_of("webhook", url=http_sink.url)
    broken = break_gpu(node="n1")
    break_gpu(node="n2", code="XID_79")
    Alert.objects.filter(key=f"incident-{broken.pk}").update(facts={})  # it names no incident
    assert tell() == 1
    assert http_sink.received[0].json["facts"]["node"] == "n2"
    assert "can't be routed" in caplog.text
    assert not Alert.objects.filter(routed_at=None).exists()
