"""`manage.py seal --org SLUG`: pack the org's weeks that are over and seal its days past the raw horizon."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.packing import pack_due
from fleet.sealing import Sealing, seal_due
from orgs.models import Org

TELL_EVERY = 5000  # batches


class Command(BaseCommand):
    """Pack and seal an org."""

    help = "Pack the org's weeks that are over, seal its days past the raw horizon and drop the bytes nobody needs."

    def add_arguments(self, parser: CommandParser) -> None:
        """--org, --pack-only, --json."""
        parser.add_argument("--org", required=True, help="slug of the org")
        parser.add_argument("--pack-only", action="store_true", help="pack, and seal nothing")
        parser.add_argument("--json", action="store_true", help="print what was done as JSON only")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do it, telling how far it is."""
        org = Org.objects.filter(slug=options["org"]).first()
        if org is None:
            raise CommandError(f"There is no org {options['org']}.")
        told = 0

        def progress(done: int) -> None:
            nonlocal told
            if done - told >= TELL_EVERY and not options["json"]:
                told = done
                self.stdout.write(f"{done} batches packed")

        with tenant_context(org):
            packed = pack_due(timezone.now(), settings.GOODPUT_REPACK_DAYS, float("inf"), progress)
            sealed = Sealing()
            if not options["pack_only"]:
                sealed = seal_due(timezone.now(), settings.GOODPUT_RAW_HORIZON_DAYS)
        if options["json"]:
            self.stdout.write(json.dumps({"packing": asdict(packed), "sealing": asdict(sealed)}))
            return
        self.stdout.write(
            f"packed {packed.batches} batches, {packed.weeks} weeks left the inbox:"
            f" {packed.member_bytes} bytes became {packed.packed_bytes}"
        )
        if not options["pack_only"]:
            self.stdout.write(
                f"sealed {sealed.days} days; bytes of {sealed.dropped} node hours dropped, of {sealed.kept} kept"
            )
        for why in filter(None, (packed.stopped, sealed.stopped)):
            self.stdout.write(f"stopped at {why}")
