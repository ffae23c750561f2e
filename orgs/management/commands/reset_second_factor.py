"""`manage.py reset_second_factor --email ADDRESS`: for somebody who lost phone, keys and recovery codes."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from orgs import second_factor
from orgs.models import User
from orgs.services import SYSTEM


class Command(BaseCommand):
    """Take the second factors from a person."""

    help = "Take all second factors from a person who lost them. Be sure who asks."

    def add_arguments(self, parser: CommandParser) -> None:
        """--email."""
        parser.add_argument("--email", required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        """Remove them and say how many."""
        user = User.objects.filter(email__iexact=options["email"].strip()).first()
        if user is None:
            raise CommandError("There is nobody with this address.")
        count = second_factor.reset(user, actor=SYSTEM)
        self.stdout.write(f"{count} second factors of {user.email} are removed")
