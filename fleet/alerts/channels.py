"""What a channel may be: checks what somebody typed, and takes apart what is secret of it and what may be shown."""

from __future__ import annotations

import base64
import re
import secrets as randomness
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from fleet.alerts.errors import ChannelInvalid
from fleet.alerts.models import MAX_RECIPIENTS, MOST_DIGEST_MINUTES, MOST_HOLD_S, Channel
from fleet.alerts.outward import CallFailed, TargetRefused, check_url, resolve
from fleet.alerts.senders import PAGERDUTY_URL, SIGNING_PREFIX
from fleet.domain.alerting.template import TemplateInvalid, parse_template
from fleet.domain.alerting.words import KINDS, SEVERITIES

PARTIES = ("infrastructure", "ambiguous")
MAX_NAME_CHARS = 120
MAX_CLUSTERS = 50
SECRETS = ("url", "routing_key", "authorization")  # what is typed and never shown again
FIELDS = (
    *("name", "kind", "recipients", *SECRETS, "template", "kinds", "clusters", "parties", "least_severity"),
    *("hold_seconds", "digest_minutes", "is_enabled"),
)
HAS = {  # which fields beside the filters a kind has
    Channel.Kind.EMAIL: ("recipients", "digest_minutes"),
    Channel.Kind.WEBHOOK: ("url", "authorization", "template", "digest_minutes"),
    Channel.Kind.SLACK: ("url", "digest_minutes"),
    Channel.Kind.PAGERDUTY: ("routing_key", "url"),
    Channel.Kind.ALERTMANAGER: ("url", "authorization"),
}
OWN = ("recipients", *SECRETS, "template", "digest_minutes")  # fields that not every kind has


def checked(kind: str, given: Mapping[str, Any], held: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """(columns, secrets) of a channel of this kind. `held`: secrets that it has; an empty field leaves them.

    Raises ChannelInvalid for a field that this kind has not or that can't be so.
    """
    if kind not in Channel.Kind.values:
        raise ChannelInvalid("kind", f"One of {', '.join(Channel.Kind.values)}.")
    for name, value in given.items():
        if name not in FIELDS:
            raise ChannelInvalid(str(name)[:64], f"There are: {', '.join(FIELDS)}.")
        if name in OWN and name not in HAS[Channel.Kind(kind)] and value not in (None, "", [], 0):
            raise ChannelInvalid(name, f"A channel of the kind {kind} has none.")
    columns: dict[str, Any] = {}
    for name, check in CHECKS.items():
        if name in given:
            columns[name] = check(name, given[name])
    secrets = dict(held)
    for name in SECRETS:
        value = given.get(name)
        if value not in (None, ""):
            secrets[name] = _secret(name, value)
    _check_whole(kind, columns, secrets, given)
    if "url" in secrets:
        columns["target"] = check_url(secrets["url"])
    elif kind == Channel.Kind.PAGERDUTY:
        columns["target"] = check_url(PAGERDUTY_URL)
    elif "recipients" in columns:
        columns["target"] = ", ".join(columns["recipients"])[:300]
    return columns, secrets


def _check_whole(kind: str, columns: Mapping[str, Any], secrets: dict[str, str], given: Mapping[str, Any]) -> None:
    """What a kind can't do without, and where its URL leads now."""
    if kind == Channel.Kind.EMAIL:
        if "recipients" in columns and not columns["recipients"]:
            raise ChannelInvalid("recipients", "One address at least.")
    elif kind == Channel.Kind.PAGERDUTY:
        if not secrets.get("routing_key"):
            raise ChannelInvalid("routing_key", "The integration key of a service's Events API v2.")
    elif not secrets.get("url"):
        raise ChannelInvalid("url", "Where to send to.")
    if given.get("url"):
        try:
            resolve(secrets["url"])
        except TargetRefused as error:
            raise ChannelInvalid("url", str(error)) from error
        except CallFailed:
            pass  # a name that can't be resolved just now is tried when something is sent
    if kind == Channel.Kind.WEBHOOK and "signing" not in secrets:
        secrets["signing"] = new_signing_secret()


def new_signing_secret() -> str:
    """A secret for Standard Webhooks: 32 random bytes."""
    return SIGNING_PREFIX + base64.b64encode(randomness.token_bytes(32)).decode()


def _text(name: str, value: Any) -> str:
    text = " ".join(str(value).split()) if isinstance(value, str) else ""
    if not 0 < len(text) <= MAX_NAME_CHARS or not text.isprintable():
        raise ChannelInvalid(name, f"1 to {MAX_NAME_CHARS} printable characters.")
    return text


def _secret(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ChannelInvalid(name, "A text.")
    text = value.strip()
    if name == "url":
        try:
            check_url(text)
        except TargetRefused as error:
            raise ChannelInvalid(name, str(error)) from error
    elif name == "routing_key":
        if not re.fullmatch(r"[A-Za-z0-9]{16,64}", text):
            raise ChannelInvalid(name, "32 letters and digits, as PagerDuty shows it.")
    elif not (text.isascii() and text.isprintable() and len(text) <= 1000):
        raise ChannelInvalid(name, "One line of ASCII, such as Bearer and a token.")
    return text


def _recipients(name: str, value: Any) -> list[str]:
    addresses = sorted({str(one).strip() for one in _list(name, value)} - {""}, key=str.lower)
    if len(addresses) > MAX_RECIPIENTS:
        raise ChannelInvalid(name, f"At most {MAX_RECIPIENTS} addresses.")
    for address in addresses:
        try:
            validate_email(address)
        except ValidationError as error:
            raise ChannelInvalid(name, f"{address[:80]!r} is not an e-mail address.") from error
    return addresses


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise ChannelInvalid(name, "A list.")
    return list(value)


def _some_of(known: Sequence[str]) -> Callable[[str, Any], list[str]]:
    def check(name: str, value: Any) -> list[str]:
        chosen = [one for one in _list(name, value) if one not in known]
        if chosen:
            raise ChannelInvalid(name, f"Some of {', '.join(known)}; none means all.")
        return [one for one in known if one in value]

    return check


def _clusters(name: str, value: Any) -> list[str]:
    names = sorted({str(one).strip() for one in _list(name, value)} - {""})
    if len(names) > MAX_CLUSTERS or any(len(one) > 256 or "\x00" in one for one in names):
        raise ChannelInvalid(name, f"At most {MAX_CLUSTERS} names of at most 256 characters.")
    return names


def _number(most: int) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise ChannelInvalid(name, f"A whole number from 0 to {most}.")
        return value

    return check


def _severity(name: str, value: Any) -> str:
    if value not in SEVERITIES:
        raise ChannelInvalid(name, f"One of {', '.join(SEVERITIES)}.")
    return str(value)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ChannelInvalid(name, "true or false.")
    return value


def _template(name: str, value: Any) -> Any:
    if value in (None, ""):
        return None
    if not isinstance(value, str):
        raise ChannelInvalid(name, "The template as a text.")
    try:
        return parse_template(value)
    except TemplateInvalid as error:
        raise ChannelInvalid(name, str(error)) from error


CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "name": _text,
    "recipients": _recipients,
    "template": _template,
    "kinds": _some_of(KINDS),
    "clusters": _clusters,
    "parties": _some_of(PARTIES),
    "least_severity": _severity,
    "hold_seconds": _number(MOST_HOLD_S),
    "digest_minutes": _number(MOST_DIGEST_MINUTES),
    "is_enabled": _flag,
}
