"""`manage.py offer_release`: what the launcher runs at each start, so that a fresh server has something to install."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from goodput_site.guide import publishing, releases


class Command(BaseCommand):
    """Make the release of this server unless it has a current one."""

    help = "Build the release that this server offers, if it has none or an outdated one."
    requires_system_checks: list[str] = []  # it needs no database

    def handle(self, *args: Any, **options: Any) -> None:
        """Say what was done in one sentence."""
        self.stdout.write(publishing.offer(releases.own(), Path(settings.GOODPUT_VAR) / "secrets/release.pem"))
