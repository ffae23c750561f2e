"""The summary app: tables of the public schema only."""

from django.apps import AppConfig


class SummaryConfig(AppConfig):
    """Per-org summary rows, exports, job health."""

    name = "fleet.summary"
    label = "fleet_summary"
    verbose_name = "Fleet summaries"

    def ready(self) -> None:
        """Listen to what Celery says of its tasks."""
        from fleet.summary import jobs  # noqa: F401
