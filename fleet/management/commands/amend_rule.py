"""`manage.py amend_rule --org SLUG --set CODE:KEY=VALUE --reason TEXT`: the org's own rule for one reason, by date."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.api_params import Unprocessable, instant
from fleet.models import Amendment
from fleet.services_dated import DatedInvalid
from fleet.services_incidents import Actor
from fleet.services_rules import amend_rule, end_amendment
from orgs.models import Org
from orgs.services import SYSTEM


def org_of(slug: str) -> Org:
    """The org with this slug. Raises CommandError."""
    org: Org | None = Org.objects.filter(slug=slug).first()
    if org is None:
        raise CommandError(f"There is no org {slug}.")
    return org


def at_of(text: str | None, flag: str) -> datetime:
    """An option's instant, now without one. Raises CommandError."""
    if not text:
        return timezone.now()
    try:
        ms = instant({"at": text}, "at")
    except Unprocessable as error:
        raise CommandError(f"{flag}: an instant in RFC 3339, such as 2026-11-30T12:00:00Z.") from error
    return datetime.fromtimestamp((ms or 0) / 1000, UTC)


class Command(BaseCommand):
    """Amend a rule, or end an amendment."""

    help = "Amend one reason's rule for an org from a full hour on, or end an amendment (--end ID)."

    def add_arguments(self, parser: CommandParser) -> None:
        """--org, --set, --reason, --from, --until, --end, --by."""
        parser.add_argument("--org", required=True, help="slug of the org")
        parser.add_argument(
            "--set", action="append", default=[], metavar="CODE:KEY=VALUE", help="VALUE is JSON or a word"
        )
        parser.add_argument("--reason", default="", help="why, for the audit trail and every verdict that it gives")
        parser.add_argument("--from", dest="since", help="an instant in RFC 3339; else now")
        parser.add_argument("--until", help="an instant in RFC 3339; else it stays in force")
        parser.add_argument("--end", type=int, metavar="ID", help="end this amendment at --until, or now")
        parser.add_argument("--by", default=SYSTEM, help="who decided it")

    def handle(self, *args: Any, **options: Any) -> None:
        """Write it."""
        org = org_of(options["org"])
        actor = Actor(options["by"], org)
        with tenant_context(org):
            try:
                self.stdout.write(_end(options, actor) if options["end"] else _amend(options, actor))
            except DatedInvalid as error:
                raise CommandError(f"{error.field}: {error.detail}") from error


def _end(options: dict[str, Any], actor: Actor) -> str:
    row = Amendment.objects.filter(pk=options["end"]).first()
    if row is None:
        raise CommandError(f"There is no amendment {options['end']}.")
    if not end_amendment(row, at_of(options["until"], "--until"), actor):
        raise CommandError(f"Amendment {row.pk} has ended or was withdrawn.")
    row.refresh_from_db()
    return f"amendment {row.pk} of {row.code} ends at {row.until_at:%Y-%m-%dT%H:%MZ}"


def _amend(options: dict[str, Any], actor: Actor) -> str:
    code, changes = "", {}
    for text in options["set"]:
        named, _, rest = text.partition(":")
        key, _, value = rest.partition("=")
        if not named or not key or not value or (code and named != code):
            raise CommandError(f"--set {text}: CODE:KEY=VALUE of one CODE, such as XID_74:weight=60.")
        code, changes[key] = named, _value(value)
    if not code:
        raise CommandError("--set CODE:KEY=VALUE says what to change.")
    until = at_of(options["until"], "--until") if options["until"] else None
    row = amend_rule(
        actor,
        code=code,
        changes=changes,
        reason=options["reason"],
        from_at=at_of(options["since"], "--from"),
        until_at=until,
    )
    return f"amendment {row.pk} of {row.code} is in force from {row.from_at:%Y-%m-%dT%H:%MZ} on"


def _value(text: str) -> Any:
    """JSON where it is some, else the word itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text
