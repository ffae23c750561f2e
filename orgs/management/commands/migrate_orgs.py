"""`manage.py migrate_orgs [--jobs N] [--list]`: the schemas of all orgs to the version of this code."""

from __future__ import annotations

import os
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from orgs.migrating import behind, migrate
from orgs.models import Org
from orgs.schemas import code_version, versions_of

MOST_JOBS = 8  # the database is the bottleneck from there on


class Command(BaseCommand):
    """Migrate the schemas that are behind."""

    help = "Bring the schemas of all orgs to the version of this code. Goes on where an earlier run stopped."

    def add_arguments(self, parser: CommandParser) -> None:
        """--jobs, --list."""
        parser.add_argument("--jobs", type=int, help="processes at once (default: one per core, at most 8)")
        parser.add_argument("--list", action="store_true", help="only say which version each org has")

    def handle(self, *args: Any, **options: Any) -> None:
        """A line per org; an error at the end when a schema could not be brought up to date."""
        if options["list"]:
            self.stdout.write("code: " + ", ".join(f"{app} {name[:4]}" for app, name in sorted(code_version().items())))
            for version in versions_of(Org.objects.all()):
                mark = "behind" if version.is_behind else "ahead" if version.is_ahead else "up to date"
                self.stdout.write(f"{version.org.slug}: {version} ({mark})")
            return
        waiting, began = behind(), time.monotonic()
        jobs = options["jobs"] or min(MOST_JOBS, os.cpu_count() or 1)
        failed = []
        for done, outcome in enumerate(migrate(waiting, jobs), 1):
            state = f"FAILED {outcome.error}" if outcome.error else "up to date"
            if options["verbosity"] > 0:
                self.stdout.write(f"{done}/{len(waiting)} {outcome.slug}: {state}")
                self.stdout.flush()
            if outcome.error:
                failed.append(f"{outcome.slug}: {outcome.error}")
        if failed:
            detail = "\n".join(failed)
            raise CommandError(f"{len(failed)} of {len(waiting)} orgs are not up to date. Run it again.\n{detail}")
        if options["verbosity"] > 0:
            self.stdout.write(f"{len(waiting)} orgs migrated in {time.monotonic() - began:.1f} s")
