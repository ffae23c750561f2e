"""`manage.py backup --out FILE`: the whole database in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from goodput_site.backups import BackupError, back_up
from goodput_site.guide import content


class Command(BaseCommand):
    """Write a backup; may run while everything else does."""

    help = "Write the whole database to one file."

    def add_arguments(self, parser: CommandParser) -> None:
        """--out."""
        parser.add_argument("--out", type=Path, required=True, help="the file to write, readable by its owner only")

    def handle(self, *args: Any, **options: Any) -> None:
        """Back up the database of DATABASE_URL."""
        out = options["out"].absolute()
        try:
            back_up(settings.DATABASE_URL, out, content.version())
        except (BackupError, OSError, psycopg.Error) as error:
            raise CommandError(f"There is no backup: {error}") from error
        self.stdout.write(f"{out}: {out.stat().st_size} bytes")
