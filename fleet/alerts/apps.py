"""The alerts app: tables of an org's schema."""

from django.apps import AppConfig


class AlertsConfig(AppConfig):
    """Channels, threads, alerts and their deliveries."""

    name = "fleet.alerts"
    label = "alerts"
    verbose_name = "Alerts"
