"""The site itself, an app only for its management commands."""

from django.apps import AppConfig


class SiteConfig(AppConfig):
    """Settings, health, launcher."""

    name = "goodput_site"
