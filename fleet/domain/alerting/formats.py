"""A message in the form of each kind of channel. What somebody typed or an agent sent stays inert in each of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from fleet.domain.alerting.message import Message, lasted, rfc3339

COLOURS = {"critical": "#b3261e", "warning": "#b26a00", "info": "#5b6470"}
RESOLVED_COLOUR = "#2e7d4f"
PAGERDUTY_ACTIONS = {"resolved": "resolve", "acknowledged": "acknowledge"}
MAX_DEDUP_KEY_CHARS = 255  # PagerDuty, Events v2
MAX_SUMMARY_CHARS = 1024
STAYS_ACTIVE = timedelta(minutes=5)  # Alertmanager forgets an alert that is not sent again within this time
ANYBODY = "@\u200b"  # a mention of everybody that mentions nobody


def subject(message: Message) -> str:
    """Of an e-mail: the same for all messages of a thread, as some mail programs group by it; the first line of the
    text says what became of it."""
    begun = str(message.facts.get("subject") or message.title)
    answer = (
        "Re: " if begun and message.what in ("worsened", "acknowledged", "resolved") and not message.is_over else ""
    )
    return " ".join(f"{answer}[Goodput {message.org}] {begun}".split())[:250]


def details(message: Message) -> list[tuple[str, str]]:
    """What stands in every message, as (name, value)."""
    rows = [("Since", message.began_at)]
    if message.ended_at:
        rows.append(("Until", f"{message.ended_at} ({lasted(message.began_at, message.ended_at)})"))
    if message.cluster:
        rows.append(("Cluster", message.cluster))
    if message.party:
        rows.append(("Whose fault", message.party))
    rows += [(str(name), str(value)) for name, value in message.facts.get("shown", ())]
    if message.changes > 1:
        rows.append(("Changes in this message", str(message.changes)))
    return rows


def plain_text(message: Message) -> str:
    """A message as the text of an e-mail."""
    lines = [message.line, ""]
    if message.is_over:
        lines += ["It was over before it was told.", ""]
    if message.text:
        lines += [message.text, ""]
    lines += [f"{name}: {' '.join(value.split())}" for name, value in details(message)]
    return "\n".join([*lines, "", message.url, ""])


def digest_text(messages: Sequence[Message]) -> str:
    """Several messages as one text, in order of time."""
    parts = [plain_text(one) for one in sorted(messages, key=lambda one: one.at)]
    return f"{len(parts)} messages.\n\n" + "\n----\n\n".join(parts)


def webhook_payload(message: Message, uid: str) -> dict[str, Any]:
    """What a webhook gets where it has no template of its own."""
    plain = message.plain()
    plain["facts"] = {name: value for name, value in plain["facts"].items() if name not in ("shown", "subject")}
    return {"id": uid, **plain, "line": message.line}


def digest_payload(messages: Sequence[tuple[Message, str]]) -> dict[str, Any]:
    """Several messages for a webhook."""
    return {"digest": [webhook_payload(message, uid) for message, uid in messages]}


def slack_payload(messages: Iterable[Message]) -> dict[str, Any]:
    """For an incoming webhook of Slack, or of what speaks its language (Mattermost, Rocket.Chat, Zulip)."""
    listed = list(messages)
    head = _quiet(listed[0].line) if len(listed) == 1 else f"{len(listed)} messages"
    return {"text": head, "attachments": [_attachment(one) for one in listed]}


def _attachment(message: Message) -> dict[str, Any]:
    text = _quiet(message.text)
    if message.is_over:
        text = f"It was over before it was told. {text}"
    return {
        "fallback": _quiet(message.line),
        "color": RESOLVED_COLOUR if message.what == "resolved" else COLOURS[message.severity],
        "title": _quiet(f"{message.title} ({message.key})"),
        "title_link": message.url,
        "text": text,
        "mrkdwn_in": [],
        "fields": [{"title": name, "value": _quiet(value), "short": True} for name, value in details(message)],
    }


def _quiet(text: str) -> str:
    """Text in which no name becomes a link, a mention or markup (Slack: escape &, < and >)."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("@", ANYBODY)


def dedup_key(message: Message) -> str:
    """What names the thread to another program; the org in front, so that two orgs may share a receiver."""
    return f"goodput/{message.org}/{message.key}"[:MAX_DEDUP_KEY_CHARS]


def pagerduty_event(message: Message, routing_key: str) -> dict[str, Any]:
    """An event of PagerDuty's Events API v2."""
    event: dict[str, Any] = {
        "routing_key": routing_key,
        "event_action": PAGERDUTY_ACTIONS.get(message.what, "trigger"),
        "dedup_key": dedup_key(message),
    }
    if event["event_action"] == "trigger":
        event |= {
            "client": "Goodput",
            "client_url": message.url,
            "links": [{"href": message.url, "text": "Open it in Goodput"}],
            "payload": {
                "summary": message.line[:MAX_SUMMARY_CHARS],
                "source": message.cluster or message.org,
                "severity": message.severity,
                "timestamp": message.began_at,
                "component": str(message.facts.get("where", "")) or message.key,
                "group": message.cluster,
                "class": str(message.facts.get("code", message.kind)),
                "custom_details": {"text": message.text, **dict(details(message))},
            },
        }
    return event


def alertmanager_alert(message: Message, now: datetime) -> dict[str, Any]:
    """An alert for Alertmanager's `POST /api/v2/alerts`. While it goes on it ends in a while, and is sent again before.

    Its labels identify it and never change within a thread; what changes stands in the annotations.
    """
    labels = {
        "alertname": f"Goodput{message.kind.capitalize()}",
        "thread": dedup_key(message),
        "org": message.org,
        "cluster": message.cluster,
    }
    annotations = {
        "summary": message.title,
        "description": message.text,
        "severity": message.severity,
        "party": message.party,
    }
    is_over = message.what == "resolved"
    return {
        "labels": {name: value for name, value in labels.items() if value},
        "annotations": {name: value for name, value in annotations.items() if value},
        "startsAt": message.began_at,
        "endsAt": rfc3339(now if is_over else now + STAYS_ACTIVE),
        "generatorURL": message.url,
    }
