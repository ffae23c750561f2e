"""The site itself, an app only for its management commands."""

from django.apps import AppConfig


class SiteConfig(AppConfig):
    """Settings, health, launcher."""

    name = "goodput_site"

    def ready(self) -> None:
        """Tell drf-spectacular of our keys, and tasks that a page sends of our broker."""
        from goodput_site import celery, openapi  # noqa: F401
