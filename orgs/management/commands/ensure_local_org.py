"""`manage.py ensure_local_org`: the org that a fresh install opens on."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from orgs.models import Org
from orgs.services import create_org


class Command(BaseCommand):
    """Make the default org if it is missing."""

    help = "Make the default org (GOODPUT_DEFAULT_ORG) if it is missing. Safe to repeat."

    def handle(self, *args: Any, **options: Any) -> None:
        """Create the org unless it exists."""
        slug = settings.GOODPUT_DEFAULT_ORG
        if not Org.objects.filter(slug=slug).exists():
            create_org(slug, name=slug)
            self.stdout.write(f"org {slug} made")
