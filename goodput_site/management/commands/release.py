"""`manage.py release --out DIR`: builds what the guide offers for download, the same bytes each time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from goodput_site.guide import building, content, publishing, releases
from orgs.migration_rules import not_written_down

VERSION = re.compile(r"\d+\.\d+\.\d+[0-9A-Za-z.+-]*")


class Command(BaseCommand):
    """Build the archives, the Compose files, the chart's package, the SBOM, checksums and manifest."""

    help = "Build a release into a folder; a server offers GOODPUT_VAR/releases."
    requires_system_checks: list[str] = []  # it needs no database

    def add_arguments(self, parser: CommandParser) -> None:
        """--out, --sign-key, --date, --binary."""
        parser.add_argument("--out", type=Path, help="folder, GOODPUT_VAR/releases without it; older ones stay")
        parser.add_argument("--sign-key", type=Path, help="PEM file with an Ed25519 private key")
        parser.add_argument("--date", help="date of the release; that of the last commit without it")
        parser.add_argument("--binary", action="store_true", help="also the agent as an executable (PyInstaller)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Write every file, the manifest last: whoever reads it finds all that it names."""
        version, date = content.version(), options["date"] or publishing.date_of_sources()
        out = options["out"] or releases.own()
        if not VERSION.fullmatch(version) or not re.fullmatch(r"\d{4}-\d{2}-\d{2}", date):
            raise CommandError(f"This is no version and date: {version}, {date}")
        key = None
        if options["sign_key"]:
            if missing := not_written_down((settings.BASE_DIR / "CHANGELOG.md").read_text(), version):
                self.stderr.write(f"Before others get it: {missing}")
            try:
                key = building.read_key(options["sign_key"])
            except (OSError, ValueError, TypeError) as error:
                raise CommandError(f"{options['sign_key']} holds no usable Ed25519 key: {error}") from error
        elif out.absolute() == releases.own().absolute():  # as at each start: who installed from here knows that key
            key = publishing.own_key(Path(settings.GOODPUT_VAR) / "secrets/release.pem")
        for file in publishing.publish(out, version, date, key, options["binary"])["files"]:
            self.stdout.write(f"{file['sha256']}  {file['size']:>9}  {file['name']}")
        by = f"signed by {building.public_key(key)}" if key else "not signed"
        self.stdout.write(f"release {version} of {date} in {out}, {by}")
