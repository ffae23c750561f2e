"""The site itself, an app only for its management commands."""

from django.apps import AppConfig


class SiteConfig(AppConfig):
    """Settings, health, launcher."""

    name = "goodput_site"

    def ready(self) -> None:
        """Tell drf-spectacular of our keys."""
        from goodput_site import openapi  # noqa: F401
