"""Routes of Settings, Agents."""

from __future__ import annotations

from django.urls import path

from fleet.agents import views

urlpatterns = [
    path("", views.agents, name="agents"),
    path("<int:key_id>/revoke/", views.revoke, name="agent_revoke"),
    path("<int:key_id>/accept/", views.accept, name="agent_accept"),
]
