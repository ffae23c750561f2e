"""Routes of the API under /v1/."""

from __future__ import annotations

from django.urls import path

from fleet.api_ingest import Batches

urlpatterns = [path("batches", Batches.as_view(), name="batches")]
