"""The agents app: tables of an org's schema."""

from django.apps import AppConfig


class AgentsConfig(AppConfig):
    """Installations of the agent: their enrolled keys, where they were seen, batches whose signature is wrong."""

    name = "fleet.agents"
    label = "agents"
    verbose_name = "Agents"
