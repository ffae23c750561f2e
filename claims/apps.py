"""The app of contracts, reports and claims."""

from __future__ import annotations

from django.apps import AppConfig


class ClaimsConfig(AppConfig):
    """Lives in each org's schema."""

    name = "claims"

    def ready(self) -> None:
        """Tell the fleet what claims need of its evidence."""
        from claims.holds import connect

        connect()
