"""`manage.py add_contract --org SLUG FILE`: a contract, or its next version, from TOML or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from claims.management.in_org import in_org
from claims.services import add_contract, read_terms


class Command(BaseCommand):
    """Add a contract."""

    help = "Add a contract, or its next version, from a TOML or JSON file."

    def add_arguments(self, parser: CommandParser) -> None:
        """--org, --cluster, --entitled-from, FILE."""
        parser.add_argument("file", type=Path, metavar="FILE")
        parser.add_argument("--org", required=True, help="slug of the org")
        parser.add_argument("--cluster", default="", help="only this cluster's nodes")
        parser.add_argument("--entitled-from", help="every unit is owed from this instant on (ISO 8601 with offset)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Read, check, store."""
        try:
            text = options["file"].read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{options['file']} can't be read: {error}") from error
        with in_org(options["org"]) as actor:
            terms = read_terms(text, options["file"].name)
            version = add_contract(terms, actor, cluster=options["cluster"], entitled_from=options["entitled_from"])
            self.stdout.write(f"{version}, {version.digest[:12]}")
