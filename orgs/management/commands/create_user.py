"""`manage.py create_user --email … [--owner-of SLUG] [--provider]`: a person and the one-time link to enter by."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from orgs.errors import OrgInvalid
from orgs.models import Org
from orgs.services import SYSTEM, create_user, issue_link


class Command(BaseCommand):
    """Make or find a person, print a link."""

    help = "Make a person (or find them by their address) and print a link that lets them in once."

    def add_arguments(self, parser: CommandParser) -> None:
        """--email, --owner-of, --provider, --base-url."""
        parser.add_argument("--email", required=True)
        parser.add_argument("--owner-of", metavar="SLUG", help="make them an owner of this org")
        parser.add_argument("--provider", action="store_true", help="make them provider staff")
        parser.add_argument("--base-url", default="", help="where this server is reached (default: GOODPUT_PUBLIC_URL)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Create the person and print `link: URL`."""
        org = None
        if options["owner_of"]:
            org = Org.objects.filter(slug=options["owner_of"]).first()
            if org is None:
                raise CommandError(f"There is no org {options['owner_of']}. Make it with create_org.")
        try:
            user = create_user(options["email"], actor=SYSTEM, owner_of=org, is_provider=options["provider"])
        except OrgInvalid as error:
            raise CommandError(error.detail) from error
        base = options["base_url"] or settings.GOODPUT_PUBLIC_URL or f"http://localhost:{settings.GOODPUT_PORT}"
        self.stdout.write(f"link: {issue_link(user, base, actor=SYSTEM)}")
