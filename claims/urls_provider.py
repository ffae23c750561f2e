"""Routes of the SLA catalogue in the provider's console."""

from __future__ import annotations

from django.urls import path

from claims import views_provider as views

urlpatterns = [
    path("catalog/", views.catalog, name="provider_catalog"),
    path("catalog.csv", views.catalog_csv, name="provider_catalog_csv"),
    path("catalog.json", views.catalog_json, name="provider_catalog_json"),
]
