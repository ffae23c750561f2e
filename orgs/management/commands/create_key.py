"""`manage.py create_key --org SLUG --name NAME --scope ingest …`: a key, its secret printed once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from orgs.errors import OrgInvalid
from orgs.models import Org
from orgs.services import SYSTEM, issue_key


class Command(BaseCommand):
    """Issue a key of an org."""

    help = "Issue a key. The secret is printed once and kept nowhere."

    def add_arguments(self, parser: CommandParser) -> None:
        """--org, --name, --scope, --cluster, --days."""
        parser.add_argument("--org", required=True, help="slug of the org")
        parser.add_argument("--name", required=True, help="what the key is for")
        parser.add_argument(
            "--scope", action="append", required=True, help="ingest, read, admin-read or enrol; may be given twice"
        )
        parser.add_argument("--cluster", default="", help="only for this cluster")
        parser.add_argument("--days", type=int, help="days until it expires (default: never)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Issue the key and print its token."""
        org = Org.objects.filter(slug=options["org"]).first()
        if org is None:
            raise CommandError(f"There is no org {options['org']}. Make it with create_org.")
        expires_at = timezone.now() + timedelta(days=options["days"]) if options["days"] else None
        try:
            _, token = issue_key(
                org, options["name"], options["scope"], actor=SYSTEM, cluster=options["cluster"], expires_at=expires_at
            )
        except OrgInvalid as error:
            raise CommandError(error.detail) from error
        self.stdout.write(f"key: {token}")
