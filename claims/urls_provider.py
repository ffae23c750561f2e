"""Routes of claims and of the SLA catalogue in the provider's console."""

from __future__ import annotations

from django.urls import path

from claims import views_provider as views
from claims import views_provider_claims

urlpatterns = [
    path("claims/", views_provider_claims.claims, name="provider_claims"),
    path("claims/<int:org_id>/<int:claim_id>/", views_provider_claims.claim, name="provider_claim"),
    path("claims/<int:org_id>/<int:claim_id>/pack.zip", views_provider_claims.pack, name="provider_claim_pack"),
    path("catalog/", views.catalog, name="provider_catalog"),
    path("catalog.csv", views.catalog_csv, name="provider_catalog_csv"),
    path("catalog.json", views.catalog_json, name="provider_catalog_json"),
]
