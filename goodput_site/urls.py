"""Every route. A test walks them and asks for an outsider's answer to each."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

from fleet.api_metrics import Metrics
from goodput_site import health, operations

urlpatterns = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("", include("goodput_site.guide.urls")),
    path("", include("orgs.urls")),
    path("v1/", include("fleet.api_urls")),
    path("v1/", include("fleet.alerts.api_urls")),
    path("v1/", include("fleet.agents.api_urls")),
    path("v1/", include("claims.api_urls")),
    path("v1/", include("orgs.api_urls")),
    path("metrics", Metrics.as_view(), name="metrics"),
    path("o/<slug:org_slug>/settings/alerts/", include("fleet.alerts.urls")),
    path("o/<slug:org_slug>/settings/", include("orgs.urls_settings")),
    path("o/<slug:org_slug>/", include("fleet.urls")),
    path("o/<slug:org_slug>/settings/agents/", include("fleet.agents.urls")),
    path("o/<slug:org_slug>/", include("claims.urls")),
    path("", include("fleet.urls_public")),
    path("", include("claims.urls_public")),
    path("", include("fleet.alerts.urls_public")),
    path("provider/metrics", operations.metrics, name="provider_metrics"),
    path("provider/", include("fleet.summary.urls")),
    path("provider/", include("claims.urls_provider")),
    path("admin/", admin.site.urls),
]

handler404 = "goodput_site.problems.not_found"
handler500 = "goodput_site.problems.server_error"
