"""The one route of the upload's own handler: a batch is not matched against the routes of pages."""

from __future__ import annotations

from django.urls import path

from fleet.api_ingest import Batches

urlpatterns = [path("v1/batches", Batches.as_view(), name="batches")]

handler404 = "goodput_site.problems.not_found"
handler500 = "goodput_site.problems.server_error"
