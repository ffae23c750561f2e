"""Routes of the API under /v1/."""

from __future__ import annotations

from django.urls import path
from drf_spectacular.views import SpectacularJSONAPIView

from fleet import api

urlpatterns = [
    path("fleet", api.Fleet.as_view(), name="api-fleet"),
    path("clusters", api.Clusters.as_view(), name="api-clusters"),
    path("batches", api.BatchesOrEvidence.as_view(), name="batches"),
    path(
        "openapi.json",
        SpectacularJSONAPIView.as_view(permission_classes=[], authentication_classes=[]),
        name="api-schema",
    ),
]
