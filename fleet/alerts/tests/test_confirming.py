"""An address confirms before alerts are mailed to it; nobody is mailed, and nothing is learned, without its owner."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.core import signing
from django.db import connection
from django.test import Client
from django.utils import timezone

from fleet.alerts.confirming import ASK_AGAIN_AFTER, MOST_ASKED_A_DAY, SALT, path_for
from fleet.alerts.errors import ChannelInvalid
from fleet.alerts.models import Channel, Delivery, Recipient
from fleet.alerts.services import change_channel, send_again, send_test
from fleet.alerts.tests.conftest import MailSink
from fleet.services_incidents import Actor

pytestmark = pytest.mark.django_db
Make = Callable[..., Any]
BASE = "/o/alpha/settings/alerts/"
ASK = "/v1/alerts/channels/{}/ask"


def link_in(mail: Any) -> str:
    """The path of the link in a mail."""
    text = mail.get_payload(decode=True).decode()
    return re.search(r"https?://[^/\s]+(/alerts/confirm/\S+)", text)[1]  # type: ignore[index]


def visit(method: str, path: str) -> Any:
    """A stranger's browser opens or sends a public page; the org is open again afterwards."""
    tenant = connection.tenant  # type: ignore[attr-defined]
    connection.set_schema_to_public()  # type: ignore[attr-defined]
    answer = getattr(Client(HTTP_HOST="localhost"), method)(path)
    connection.set_tenant(tenant)  # type: ignore[attr-defined]
    return answer


def test_nothing_but_the_question_is_mailed_until_the_address_confirms(
    mail_sink: MailSink, channel_of: Make, break_gpu: Make, tell: Make, actor: Actor
) -> None:
    channel = channel_of("email", is_confirmed=False, recipients=["b@x.example", "a@x.example"], digest_minutes=60)
    assert set(Delivery.objects.values_list("sent_to", flat=True)) == {"a@x.example", "b@x.example"}
    break_gpu()
    assert tell() == 2
    assert [to for _, to in mail_sink.envelopes] == [["a@x.example"], ["b@x.example"]]
    assert "Please confirm: Alerts of alpha" in mail_sink.mails[0].get_payload(decode=True).decode()
    with pytest.raises(ChannelInvalid, match="has confirmed yet"):
        send_test(channel.pk, actor)
    path = link_in(mail_sink.mails[0])
    page = visit("get", path)  # as programs do that look into mails
    assert "Yes, mail them" in page.content.decode()
    assert not Recipient.objects.exclude(confirmed_at=None).exists()
    for _ in range(2):
        assert "Confirmed" in visit("post", path).content.decode()
    assert "Confirmed" in visit("get", path).content.decode()
    assert [one.address for one in Recipient.objects.exclude(confirmed_at=None)] == ["a@x.example"]
    change_channel(channel.pk, {"digest_minutes": 0}, actor)
    break_gpu(node="node-18")
    assert tell() == 1
    assert mail_sink.envelopes[2:] == [(mail_sink.envelopes[0][0], ["a@x.example"])]
    assert "node-18" in mail_sink.mails[-1]["Subject"]


def test_a_link_that_is_over_forged_or_of_another_gives_one_answer(inside: Any, channel_of: Make, actor: Actor) -> None:
    channel = channel_of("email", is_confirmed=False, recipients=["a@x.example"])
    good = path_for(inside.pk, channel.pk, "a@x.example")
    never = [
        "/alerts/confirm/x/",
        good.replace(good.split("/")[3][:4], "abcd"),
        path_for(inside.pk, channel.pk, "other@x.example"),
        path_for(inside.pk, channel.pk + 1, "a@x.example"),
        path_for(inside.pk + 999, channel.pk, "a@x.example"),
        f"/alerts/confirm/{signing.dumps([inside.pk, channel.pk, 'a@x.example'], salt='another')}/",
        f"/alerts/confirm/{signing.dumps('text', salt=SALT)}/",
    ]
    answers = {re.sub(r'name="csrf[^>]*', "", visit(how, path).content.decode()) for path in never for how in ("get",)}
    assert len(answers) == 1
    assert {visit("post", path).status_code for path in never} == {410}
    change_channel(channel.pk, {"recipients": ["new@x.example"]}, actor)
    assert visit("post", good).status_code == 410
    assert [one.address for one in Recipient.objects.all()] == ["new@x.example"]
    assert not Recipient.objects.exclude(confirmed_at=None).exists()


def test_the_page_says_who_has_not_answered_and_asks_again_but_not_too_often(
    inside: Any, channel_of: Make, ada: Any, client_of: Make, lan: Any
) -> None:
    channel = channel_of("email", is_confirmed=False, recipients=["a@x.example"])
    connection.set_schema_to_public()  # type: ignore[attr-defined]
    client = client_of(ada)
    page = client.get(f"{BASE}{channel.pk}/").content.decode()
    assert "not confirmed" in page
    assert "Ask a@x.example again" in page
    (listed,) = client.get("/v1/alerts/channels").json()["results"]
    assert listed["unconfirmed"] == ["a@x.example"]
    sent = []
    for _ in range(MOST_ASKED_A_DAY + 1):
        connection.set_tenant(inside)  # type: ignore[attr-defined]
        Recipient.objects.update(asked_at=timezone.now() - ASK_AGAIN_AFTER * 2)
        connection.set_schema_to_public()  # type: ignore[attr-defined]
        for _ in range(2):
            answer = client.post(f"{BASE}{channel.pk}/ask/", {"address": "a@x.example"}, follow=True)
            sent.append("goes out again" in answer.content.decode())
    assert sent == [True, False, True, False] + [False] * 4
    refused = client.post(ASK.format(channel.pk), {"address": "a@x.example"}, content_type="application/json")
    assert (refused.status_code, refused.json()["errors"]) == (
        422,
        {"recipients": ["It was asked just now: at most 3 times a day."]},
    )
    assert "nothing to confirm" in client.post(
        f"{BASE}{channel.pk}/ask/", {"address": "other@x.example"}, follow=True
    ).content.decode()  # fmt: skip
    connection.set_tenant(inside)  # type: ignore[attr-defined]
    assert Delivery.objects.filter(what="confirm").count() == MOST_ASKED_A_DAY
    Delivery.objects.update(status="sent")
    question = Delivery.objects.earliest("pk")
    with pytest.raises(ChannelInvalid, match="Ask again"):
        send_again(question.pk, Actor("ada", inside))
    assert Channel.objects.get().recipients == ["a@x.example"]


def test_the_api_asks_again_too_and_an_address_that_is_not_the_channels_is_refused(
    inside: Any, channel_of: Make, ada: Any, client_of: Make, lan: Any
) -> None:
    channel = channel_of("email", is_confirmed=False, recipients=["a@x.example"])
    Delivery.objects.all().delete()
    connection.set_schema_to_public()  # type: ignore[attr-defined]
    client = client_of(ada)
    for body, status in (({"address": "b@x.example"}, 422), ({}, 422), ([], 422), ({"address": 7}, 422)):
        assert client.post(ASK.format(channel.pk), body, content_type="application/json").status_code == status
    assert (
        client.post(ASK.format(channel.pk + 1), {"address": "a@x.example"}, content_type="application/json").status_code
        == 404
    )
    answer = client.post(ASK.format(channel.pk), {"address": "a@x.example"}, content_type="application/json")
    assert (answer.status_code, answer.json()["unconfirmed"]) == (202, ["a@x.example"])
    connection.set_tenant(inside)  # type: ignore[attr-defined]
    (sent,) = Delivery.objects.all()
    assert (sent.what, sent.sent_to) == ("confirm", "a@x.example")
