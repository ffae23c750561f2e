"""`manage.py backup --out FILE`: the whole database in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from goodput_site.backups import BackupError, back_up, keys_in
from goodput_site.guide import content


class Command(BaseCommand):
    """Write a backup; may run while everything else does."""

    help = "Write the whole database to one file."

    def add_arguments(self, parser: CommandParser) -> None:
        """--out, --with-keys."""
        parser.add_argument("--out", type=Path, required=True, help="the file to write, readable by its owner only")
        parser.add_argument("--with-keys", action="store_true", help="also the signing keys of GOODPUT_VAR/secrets")

    def handle(self, *args: Any, **options: Any) -> None:
        """Back up the database of DATABASE_URL."""
        out = options["out"].absolute()
        secrets = Path(settings.GOODPUT_VAR) / "secrets"
        try:
            back_up(settings.DATABASE_URL, out, content.version(), secrets if options["with_keys"] else None)
        except (BackupError, OSError, psycopg.Error) as error:
            raise CommandError(f"There is no backup: {error}") from error
        self.stdout.write(f"{out}: {out.stat().st_size} bytes")
        if names := [file.name for file in keys_in(secrets)]:
            where = "They are in it" if options["with_keys"] else "They are not in it (--with-keys)"
            self.stdout.write(f"This server's keys: {', '.join(names)}. {where}.")
