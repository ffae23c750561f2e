"""`manage.py pack --org SLUG --claim C-2026-10-0007 --out FILE`: a claim's pack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from claims.management.in_org import in_org
from claims.pack import make_pack
from claims.services_claims import get_claim


class Command(BaseCommand):
    """Write a pack."""

    help = "Write a claim's pack: the computation, the exact batches, and how to check both offline."

    def add_arguments(self, parser: CommandParser) -> None:
        """--org, --claim, --out."""
        parser.add_argument("--org", required=True, help="slug of the org")
        parser.add_argument("--claim", required=True, help="its label or number")
        parser.add_argument("--out", required=True, type=Path, help="where the ZIP goes")

    def handle(self, *args: Any, **options: Any) -> None:
        """Make and write."""
        with in_org(options["org"]) as actor:
            claim = get_claim(options["claim"])
            body = make_pack(claim, actor.org, with_pdf=True)
            options["out"].write_bytes(body)
            actor.record("claim.packed", claim.label, after={"bytes": len(body)})
            self.stdout.write(f"{options['out']}: {claim.label}, {len(body):,} bytes")
