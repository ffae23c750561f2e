"""The orgs app."""

from django.apps import AppConfig


class OrgsConfig(AppConfig):
    """People, organisations, keys, audit."""

    name = "orgs"
    verbose_name = "Organisations"

    def ready(self) -> None:
        """Register the start-up checks."""
        from orgs import checks  # noqa: F401
