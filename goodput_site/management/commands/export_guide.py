"""`manage.py export_guide --out DIR`: the guide as static files, for a web server without Goodput."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from goodput_site.guide.exporting import export


class Command(BaseCommand):
    """Read the guide from a running server and write it to a folder."""

    help = "Write the guide of a running server, its scripts and its release to a folder as static files."
    requires_system_checks: list[str] = []  # it asks the server, not the database

    def add_arguments(self, parser: CommandParser) -> None:
        """--out, --base-url, --public-url."""
        parser.add_argument("--out", type=Path, required=True, help="the folder to write to")
        parser.add_argument("--base-url", help="the server; http://localhost:GOODPUT_PORT without it")
        parser.add_argument("--public-url", help="the address that the files will be read from; --base-url without it")

    def handle(self, *args: Any, **options: Any) -> None:
        """Export."""
        origin = (options["base_url"] or f"http://localhost:{settings.GOODPUT_PORT}").rstrip("/")
        public = (options["public_url"] or origin).rstrip("/")
        try:
            written = export(origin, public, options["out"])
        except OSError as error:
            raise CommandError(f"The guide of {origin} can't be read: {error}") from error
        self.stdout.write(f"{len(written)} files in {options['out']}")
