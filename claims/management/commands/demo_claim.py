"""`manage.py demo_claim --out FILE`: a simulated, labelled claim and its pack, in one go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from claims.demo import HOURS, make_demo_pack
from claims.errors import ClaimsError


class Command(BaseCommand):
    """Make the sample."""

    help = "Make a simulated, labelled claim and its pack. Nothing of it stays in the database."

    def add_arguments(self, parser: CommandParser) -> None:
        """--out, --hours."""
        parser.add_argument("--out", required=True, type=Path, help="where the ZIP goes")
        parser.add_argument("--hours", type=int, default=HOURS, help=f"of simulated uploads, {HOURS} if not said")

    def handle(self, *args: Any, **options: Any) -> None:
        """Simulate, fold, issue, pack."""
        try:
            body = make_demo_pack(timezone.now(), self.show, with_pdf=True, hours=options["hours"])
        except ClaimsError as error:
            raise CommandError(str(error)) from error
        options["out"].write_bytes(body)
        self.stdout.write(f"{options['out']}: a simulated claim, {len(body):,} bytes")

    def show(self, done: int, total: int) -> None:
        """A line that moves on a terminal."""
        if self.stdout.isatty():
            self.stdout.write(f"\r{100 * done // total:3d} %  {done} of {total} batches", ending="")
            self.stdout.flush()
