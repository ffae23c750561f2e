"""Routes of people under /v1/."""

from __future__ import annotations

from django.urls import path

from orgs import api

urlpatterns = [
    path("members", api.Members.as_view(), name="api-members"),
    path("keys", api.Keys.as_view(), name="api-keys"),
    path("audit", api.Audit.as_view(), name="api-audit"),
]
