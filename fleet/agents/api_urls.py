"""Routes of agents under /v1/."""

from __future__ import annotations

from django.urls import path

from fleet.agents import api
from fleet.api_urls import listed

urlpatterns = [
    path("enrol", api.Enrol.as_view(), name="api-enrol"),
    *listed("agents", api.Agents, "api-agents"),
    path("agents/<int:key_id>/revoke", api.Revoke.as_view(), name="api-agent-revoke"),
    path("agents/<int:key_id>/accept", api.Accept.as_view(), name="api-agent-accept"),
]
