"""`manage.py adopt_rules --org SLUG --rules VERSION --from INSTANT --reason TEXT`: fold by this rule set from then."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django_tenants.utils import tenant_context

from fleet.management.commands.amend_rule import at_of, org_of
from fleet.services_dated import DatedInvalid
from fleet.services_incidents import Actor
from fleet.services_rules import adopt_rules
from orgs.services import SYSTEM


class Command(BaseCommand):
    """Adopt a rule set."""

    help = "Adopt a rule set from a full hour on; what is folded already from then on is folded again."

    def add_arguments(self, parser: CommandParser) -> None:
        """--org, --rules, --from, --reason, --by."""
        parser.add_argument("--org", required=True, help="slug of the org")
        parser.add_argument("--rules", required=True, help="the version, such as 2026-11-30")
        parser.add_argument("--from", dest="since", help="an instant in RFC 3339; else now")
        parser.add_argument("--reason", required=True, help="why, for the audit trail")
        parser.add_argument("--by", default=SYSTEM, help="who decided it")

    def handle(self, *args: Any, **options: Any) -> None:
        """Adopt it."""
        org = org_of(options["org"])
        with tenant_context(org):
            try:
                row = adopt_rules(
                    Actor(options["by"], org),
                    version=options["rules"],
                    reason=options["reason"],
                    from_at=at_of(options["since"], "--from"),
                )
            except DatedInvalid as error:
                raise CommandError(error.detail) from error
        self.stdout.write(f"{row.version} is adopted from {row.from_at:%Y-%m-%dT%H:%MZ} on")
