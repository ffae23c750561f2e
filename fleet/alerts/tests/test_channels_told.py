"""Each kind of channel gets real bytes: what broke, since when, whose fault, what to do; one thread per incident."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from fleet.alerts.models import Alert, Channel, Delivery
from fleet.alerts.outbox import tell_of_incident
from fleet.alerts.sealing import unseal
from fleet.alerts.services import send_again, send_test
from fleet.alerts.tests.conftest import HttpSink, MailSink
from fleet.services_incidents import Actor, acknowledge_incident

pytestmark = pytest.mark.django_db
Make = Callable[..., Any]


def test_a_mail_says_what_broke_and_its_thread_stays_one(
    mail_sink: MailSink, channel_of: Make, break_gpu: Make, mend: Make, tell: Make
) -> None:
    channel_of("email", recipients=["oncall@alpha.example", "ops@alpha.example"])
    incident = break_gpu()
    assert tell() == 1
    assert [to for _, to in mail_sink.envelopes] == [["oncall@alpha.example"], ["ops@alpha.example"]]
    first = mail_sink.mails[0]
    text = first.get_payload(decode=True).decode()
    assert first["Subject"] == "[Goodput alpha] GPU 3 of node-17: GPU missing"
    for words in ("Down: GPU 3 of node-17", "Next: ", "Whose fault: infrastructure", f"/incidents/{incident.pk}/"):
        assert words in text
    mend(incident)
    assert tell() == 1
    last = mail_sink.mails[-1]
    assert last["Subject"] == "Re: [Goodput alpha] GPU 3 of node-17: GPU missing"
    assert last.get_payload(decode=True).decode().startswith("Resolved: GPU 3 of node-17")
    assert last["References"] == first["References"]
    assert last["Message-ID"] != first["Message-ID"]
    assert tell() == 0


def test_one_bad_address_keeps_no_mail_from_the_others(
    mail_sink: MailSink, channel_of: Make, break_gpu: Make, tell: Make
) -> None:
    mail_sink.refused = {"gone@alpha.example"}
    channel_of("email", recipients=["gone@alpha.example", "ops@alpha.example"])
    break_gpu()
    assert tell() == 1
    assert Delivery.objects.get().sent_to == "ops@alpha.example; refused: gone@alpha.example (550)"


def test_a_webhook_is_signed_as_standard_webhooks_say(
    http_sink: HttpSink, channel_of: Make, break_gpu: Make, tell: Make
) -> None:
    channel = channel_of("webhook", url=f"{http_sink.url}/in?token=s3cret", authorization="Bearer t0ken")
    incident = break_gpu()
    assert tell() == 1
    (got,) = http_sink.received
    assert got.path == "/in?token=s3cret"
    assert got.headers["authorization"] == "Bearer t0ken"
    key = base64.b64decode(unseal(channel.sealed)["signing"].removeprefix("whsec_"))
    signed = f"{got.headers['webhook-id']}.{got.headers['webhook-timestamp']}.".encode() + got.body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert got.headers["webhook-signature"] == f"v1,{expected}"
    assert abs(int(got.headers["webhook-timestamp"]) - time.time()) < 60
    told = got.json
    assert (told["id"], told["key"], told["what"]) == (got.headers["webhook-id"], f"incident-{incident.pk}", "opened")
    assert (told["severity"], told["party"], told["cluster"]) == ("critical", "infrastructure", "main")
    assert told["facts"]["code"] == "GPU_MISSING"


def test_a_template_shapes_the_json_and_hostile_names_can_not(
    http_sink: HttpSink, channel_of: Make, break_gpu: Make, tell: Make
) -> None:
    template = '{"text": "{head_is_no_name_here}"}'
    with pytest.raises(Exception, match="Nothing is named"):
        channel_of("webhook", url=http_sink.url, template=template)
    template = '{"msg": "{severity}: {title} / {facts.node}", "raw": {"lost": "{facts.lost_gpu_seconds}", "n": 7}}'
    channel_of("webhook", url=http_sink.url, template=template)
    break_gpu(node='x", "admin": true, "{url}')
    tell()
    told = http_sink.received[0].json
    assert set(told) == {"msg", "raw"}
    assert told["raw"] == {"lost": 600, "n": 7}
    assert told["msg"].startswith('critical: GPU 3 of x", "admin": true, "{url}')


def test_slack_shows_no_link_and_no_mention_that_a_name_made_up(
    http_sink: HttpSink, channel_of: Make, break_gpu: Make, tell: Make
) -> None:
    channel_of("slack", url=f"{http_sink.url}/services/T0/B0/abc")
    break_gpu(node="<!channel> @here <http://evil|click>")
    tell()
    body = http_sink.received[0].body.decode()
    assert "<!channel>" not in body
    assert "@here" not in body
    assert "<http" not in body
    (attachment,) = http_sink.received[0].json["attachments"]
    assert attachment["color"] == "#b3261e"
    assert {one["title"] for one in attachment["fields"]} >= {"Since", "Whose fault", "Where", "Hardware"}


def test_pagerduty_gets_one_dedup_key_for_all_of_an_incident(
    http_sink: HttpSink, channel_of: Make, break_gpu: Make, mend: Make, tell: Make, actor: Actor
) -> None:
    channel_of("pagerduty", url=f"{http_sink.url}/v2/enqueue", routing_key="R" * 32)
    incident = break_gpu()
    tell()
    acknowledge_incident(incident.pk, actor)
    tell()
    mend(incident)
    tell()
    events = [one.json for one in http_sink.received]
    assert [one["event_action"] for one in events] == ["trigger", "acknowledge", "resolve"]
    assert {one["dedup_key"] for one in events} == {f"goodput/alpha/incident-{incident.pk}"}
    assert {one["routing_key"] for one in events} == {"R" * 32}
    payload = events[0]["payload"]
    assert payload["severity"] in ("critical", "error", "warning", "info")
    assert payload["summary"] == "Down: GPU 3 of node-17: GPU missing"
    assert datetime.fromisoformat(payload["timestamp"]).tzinfo is not None


def test_alertmanager_hears_it_again_while_it_goes_on(
    http_sink: HttpSink, channel_of: Make, break_gpu: Make, mend: Make, tell: Make, inside: Any
) -> None:
    channel = channel_of("alertmanager", url=http_sink.url)
    incident = break_gpu()
    tell()
    Channel.objects.update(repeated_at=timezone.now() - timedelta(seconds=61))
    tell()
    assert tell() == 0  # not due yet
    mend(incident)
    tell()
    Channel.objects.update(repeated_at=timezone.now() - timedelta(seconds=61))
    tell()
    assert {one.path for one in http_sink.received} == {"/api/v2/alerts"}
    alerts = [alert for one in http_sink.received for alert in one.json]
    assert len({json.dumps(one["labels"], sort_keys=True) for one in alerts}) == 1
    assert alerts[0]["labels"]["thread"] == f"goodput/alpha/incident-{incident.pk}"
    ends = [datetime.fromisoformat(one["endsAt"]) for one in alerts]
    assert all(end > timezone.now() for end in ends[:-1])
    assert ends[-1] <= timezone.now()
    assert Delivery.objects.filter(channel=channel).count() == 2  # repetitions fill no log


def test_the_button_sends_a_test_that_leaves_nothing_open(
    http_sink: HttpSink, mail_sink: MailSink, channel_of: Make, tell: Make, actor: Actor
) -> None:
    for kind, more in (
        ("email", {"recipients": ["ops@alpha.example"]}),
        ("webhook", {"url": http_sink.url}),
        ("slack", {"url": http_sink.url}),
        ("pagerduty", {"url": http_sink.url, "routing_key": "R" * 32}),
        ("alertmanager", {"url": http_sink.url}),
    ):
        send_test(channel_of(kind, **more).pk, actor)
    assert tell() == 5
    assert b"this is a test" in mail_sink.raw[0]
    assert [one.json["event_action"] for one in http_sink.received if b"event_action" in one.body] == [
        *("trigger", "resolve")
    ]
    assert set(Delivery.objects.values_list("status", flat=True)) == {"sent"}


def test_what_was_sent_can_be_sent_again_by_hand(
    http_sink: HttpSink, channel_of: Make, break_gpu: Make, tell: Make, actor: Actor
) -> None:
    channel_of("webhook", url=http_sink.url)
    break_gpu()
    tell()
    again = send_again(Delivery.objects.get().pk, actor)
    assert tell() == 1
    again.refresh_from_db()
    assert (again.status, again.asked_by) == ("sent", "ada@alpha.example")
    first, second = (one.json for one in http_sink.received)
    assert first["id"] != second["id"]
    assert first["key"] == second["key"]


def test_filters_by_cluster_party_severity_and_kind(
    http_sink: HttpSink, channel_of: Make, break_gpu: Make, tell: Make
) -> None:
    for number, more in enumerate(
        (
            {"clusters": ["other"]},
            {"parties": ["ambiguous"]},
            {"least_severity": "critical"},
            {"kinds": ["silence"]},
            {"clusters": ["main"], "parties": ["infrastructure"], "least_severity": "warning", "kinds": ["incident"]},
        )
    ):
        channel_of("webhook", url=f"{http_sink.url}/{number}", **more)
    break_gpu(weight=50)
    assert tell() == 1
    assert [one.path for one in http_sink.received] == ["/4"]


def test_an_incident_that_is_looked_at_twice_is_told_once(
    http_sink: HttpSink, channel_of: Make, break_gpu: Make, tell: Make
) -> None:
    channel_of("webhook", url=http_sink.url)
    incident = break_gpu()
    tell()
    for what in ("opened", "worsened", "opened"):
        tell_of_incident(incident, what)
    assert tell() == 0
    assert Alert.objects.filter(routed_at=None).count() == 0
    incident.parts = [*incident.parts, {**incident.parts[0], "subject": "g4"}]
    incident.save()
    tell_of_incident(incident, "worsened")
    assert tell() == 1
    assert http_sink.received[-1].json["what"] == "worsened"


def test_without_a_mail_server_nothing_counts_as_sent(
    settings: Any, channel_of: Make, break_gpu: Make, tell: Make
) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
    channel_of("email", recipients=["ops@alpha.example"])
    break_gpu()
    assert tell() == 0
    assert Delivery.objects.get().error == "No mail server is set up here (GOODPUT_EMAIL_URL)."
