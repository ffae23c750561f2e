"""The orgs app."""

from django.apps import AppConfig


class OrgsConfig(AppConfig):
    """People, organisations, keys, audit."""

    name = "orgs"
    verbose_name = "Organisations"

    def ready(self) -> None:
        """Register the start-up checks, and what writes the audit trail of the library's rows."""
        from orgs import checks, trail  # noqa: F401
