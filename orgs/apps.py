"""The orgs app."""

from django.apps import AppConfig


class OrgsConfig(AppConfig):
    """People, organisations, keys, audit."""

    name = "orgs"
    verbose_name = "Organisations"
