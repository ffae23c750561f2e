"""The fleet app."""

from django.apps import AppConfig


class FleetConfig(AppConfig):
    """Clusters, nodes, facts and verdicts of one org."""

    name = "fleet"
    verbose_name = "Fleet"
