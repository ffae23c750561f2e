"""`manage.py create_org SLUG [--name NAME]`: a new customer."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from orgs.errors import OrgInvalid
from orgs.services import create_org


class Command(BaseCommand):
    """Make an org and its schema."""

    help = "Make an org with a schema of its own."

    def add_arguments(self, parser: CommandParser) -> None:
        """SLUG and --name."""
        parser.add_argument("slug", help="as in the URL: lower-case letters, digits, hyphens")
        parser.add_argument("--name", default="", help="the name that people see")

    def handle(self, *args: Any, **options: Any) -> None:
        """Create the org, print its slug."""
        try:
            org = create_org(options["slug"], options["name"])
        except OrgInvalid as error:
            raise CommandError(error.detail) from error
        self.stdout.write(f"org: {org.slug}\nschema: {org.schema_name}")
