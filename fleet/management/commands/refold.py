"""`manage.py refold --org SLUG`: throw away every derived row of an org and make it again from the inbox."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.refolding import refold_everything
from orgs.models import Org


class Command(BaseCommand):
    """Fold an org's inbox again."""

    help = "Fold an org's inbox again from the first batch on. The rows that come out are the same."

    def add_arguments(self, parser: CommandParser) -> None:
        """--org."""
        parser.add_argument("--org", required=True, help="slug of the org")

    def handle(self, *args: Any, **options: Any) -> None:
        """Refold, telling how far it is."""
        org = Org.objects.filter(slug=options["org"]).first()
        if org is None:
            raise CommandError(f"There is no org {options['org']}.")
        with tenant_context(org):
            total = refold_everything(timezone.now(), lambda done: self.stdout.write(f"{done} batches"))
        self.stdout.write(f"refolded {total} batches")
