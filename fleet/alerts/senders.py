"""Sends messages to a channel of each kind. One function per kind; all raise CallFailed or TargetRefused."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import smtplib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.mail import EmailMessage

from fleet.alerts.confirming import confirmed
from fleet.alerts.models import Channel
from fleet.alerts.outward import CallFailed, post
from fleet.alerts.sealing import unseal
from fleet.domain.alerting import formats
from fleet.domain.alerting.message import CONFIRM, Message
from fleet.domain.alerting.template import filled
from orgs.invitations import mail_is_configured

PAGERDUTY_URL = "https://events.pagerduty.com/v2/enqueue"
SIGNING_PREFIX = "whsec_"


@dataclass(frozen=True)
class Sent:
    """What a receiver said: its status or reply code, and who it was."""

    answer: int
    to: str


def send(channel: Channel, messages: Sequence[tuple[Message, str]], now: datetime) -> Sent:
    """Send one message, or several as a digest, each with the uid of its delivery."""
    return SENDERS[channel.kind](channel, messages, now)


def _email(channel: Channel, messages: Sequence[tuple[Message, str]], now: datetime) -> Sent:
    """A plain text mail; all mails of a thread refer to one id, so that mail programs show them as one conversation."""
    if not mail_is_configured():
        raise CallFailed("No mail server is set up here (GOODPUT_EMAIL_URL).")
    listed = [message for message, _ in messages]
    is_question = listed[0].what == CONFIRM
    recipients = [listed[0].facts["to"]] if is_question else confirmed(channel)
    if not recipients:
        raise CallFailed("No address of the channel has confirmed yet.")
    host = urlsplit(base_url()).hostname or "goodput"
    first, uid = messages[0]
    headers = {"Message-ID": f"<{uid}@{host}>", "Auto-Submitted": "auto-generated", "X-Goodput-Delivery": uid}
    if len(listed) == 1:
        subject, text = formats.subject(first), formats.plain_text(first)
        thread = f"<{hashlib.sha256(formats.dedup_key(first).encode()).hexdigest()[:32]}.thread@{host}>"
        headers |= {"References": thread, "In-Reply-To": thread, "X-Goodput-Thread": first.key}
    else:
        subject, text = f"[Goodput {first.org}] {len(listed)} messages", formats.digest_text(listed)
    try:
        # one mail to each, so that nobody learns who else is told and one bad address keeps none from the others
        failed: list[str] = []
        for address in recipients:
            mail = EmailMessage(subject, text, settings.DEFAULT_FROM_EMAIL, [address], headers=headers)
            try:
                mail.send()
            except smtplib.SMTPRecipientsRefused as error:
                code = next((reply[0] for reply in error.recipients.values()), 550)
                failed.append(f"{address} ({code})")
    except smtplib.SMTPResponseException as error:
        raise CallFailed(f"The mail server answered {error.smtp_code}.", error.smtp_code) from error
    except (smtplib.SMTPException, OSError) as error:
        raise CallFailed(f"The mail server can't be reached ({type(error).__name__}).") from error
    if failed and len(failed) == len(recipients):
        raise CallFailed(f"The mail server refused {', '.join(failed)}."[:300], 550)
    taken = [one for one in recipients if not any(text.startswith(f"{one} (") for text in failed)]
    return Sent(250, ", ".join(taken) + (f"; refused: {', '.join(failed)}" if failed else ""))


def _webhook(channel: Channel, messages: Sequence[tuple[Message, str]], now: datetime) -> Sent:
    """JSON, signed as Standard Webhooks say: `webhook-id`, `webhook-timestamp`, `webhook-signature`."""
    secrets = unseal(channel.sealed)
    first, uid = messages[0]
    if len(messages) > 1:
        payload: Any = formats.digest_payload(messages)
        if channel.template is not None:
            payload = {"digest": [filled(channel.template, message, one) for message, one in messages]}
    elif channel.template is not None:
        payload = filled(channel.template, first, uid)
    else:
        payload = formats.webhook_payload(first, uid)
    body = _json(payload)
    headers = {**_headers(secrets), **signature(secrets["signing"], uid, int(now.timestamp()), body)}
    return Sent(post(secrets["url"], body, headers), channel.target)


def _slack(channel: Channel, messages: Sequence[tuple[Message, str]], now: datetime) -> Sent:
    secrets = unseal(channel.sealed)
    body = _json(formats.slack_payload(message for message, _ in messages))
    return Sent(post(secrets["url"], body, _headers(secrets)), channel.target)


def _pagerduty(channel: Channel, messages: Sequence[tuple[Message, str]], now: datetime) -> Sent:
    secrets = unseal(channel.sealed)
    message, url = messages[0][0], secrets.get("url") or PAGERDUTY_URL
    answer = post(url, _json(formats.pagerduty_event(message, secrets["routing_key"])), _headers({}))
    if message.what == "test":  # it leaves nothing open behind
        end = formats.pagerduty_event(replace(message, what="resolved"), secrets["routing_key"])
        answer = post(url, _json(end), _headers({}))
    return Sent(answer, channel.target)


def _alertmanager(channel: Channel, messages: Sequence[tuple[Message, str]], now: datetime) -> Sent:
    secrets = unseal(channel.sealed)
    alerts = [formats.alertmanager_alert(message, now) for message, _ in messages]
    return Sent(post(alertmanager_url(secrets["url"]), _json(alerts), _headers(secrets)), channel.target)


SENDERS: dict[str, Callable[[Channel, Sequence[tuple[Message, str]], datetime], Sent]] = {
    Channel.Kind.EMAIL: _email,
    Channel.Kind.WEBHOOK: _webhook,
    Channel.Kind.SLACK: _slack,
    Channel.Kind.PAGERDUTY: _pagerduty,
    Channel.Kind.ALERTMANAGER: _alertmanager,
}


def alertmanager_url(base: str) -> str:
    """The address of the API below an Alertmanager's own."""
    return base if base.endswith("/api/v2/alerts") else f"{base.rstrip('/')}/api/v2/alerts"


def signature(signing: str, uid: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The three headers of Standard Webhooks: HMAC-SHA256 over `id.timestamp.body` with the decoded secret."""
    key = base64.b64decode(signing.removeprefix(SIGNING_PREFIX))
    signed = f"{uid}.{timestamp}.".encode() + body
    digest = base64.b64encode(hmac.digest(key, signed, "sha256")).decode()
    return {"webhook-id": uid, "webhook-timestamp": str(timestamp), "webhook-signature": f"v1,{digest}"}


def base_url() -> str:
    """The address of this server in links that leave it."""
    return settings.GOODPUT_PUBLIC_URL or f"http://localhost:{settings.GOODPUT_PORT}"


def _json(payload: Any) -> bytes:
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()


def _headers(secrets: dict[str, str]) -> dict[str, str]:
    authorization = secrets.get("authorization")
    return {"Content-Type": "application/json", **({"Authorization": authorization} if authorization else {})}
