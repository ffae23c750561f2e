"""`manage.py restore FILE`: a backup into an empty database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from goodput_site.backups import BackupError, restore, restore_keys


class Command(BaseCommand):
    """Restore a backup, then bring its tables to this release."""

    help = "Put a backup into an empty database, or with --replace into one that is emptied before."
    requires_system_checks: list[str] = []  # the database may be empty

    def add_arguments(self, parser: CommandParser) -> None:
        """FILE, --replace, --no-prepare."""
        parser.add_argument("file", type=Path, help="a file that `backup` wrote")
        parser.add_argument("--replace", action="store_true", help="remove what the database holds")
        parser.add_argument("--no-prepare", action="store_true", help="leave migrations to a later `prepare`")

    def handle(self, *args: Any, **options: Any) -> None:
        """Restore into the database of DATABASE_URL."""
        try:
            info = restore(settings.DATABASE_URL, options["file"], options["replace"])
        except (BackupError, psycopg.Error) as error:
            raise CommandError(f"Nothing was restored: {error}") from error
        laid, kept = restore_keys(options["file"], Path(settings.GOODPUT_VAR) / "secrets")
        if laid:
            self.stdout.write(f"keys put back: {', '.join(laid)}")
        if kept:
            self.stdout.write(f"keys that differ from the backup's and stay: {', '.join(kept)}")
        if not options["no_prepare"]:
            call_command("prepare", no_static=True)
        self.stdout.write(f"restored what Goodput {info['goodput']} kept at {info['made_at']}")
