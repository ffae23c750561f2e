"""Pages of an org's fleet."""

from __future__ import annotations

from django.urls import path

from fleet import views

urlpatterns = [
    path("", views.fleet, name="fleet"),
    path("fleet.csv", views.fleet_csv, name="fleet_csv"),
    path("fleet.json", views.fleet_json, name="fleet_json"),
    path("manifest.webmanifest", views.manifest, name="manifest"),
    path("clusters/<int:cluster_id>/remove-demo/", views.remove_demo, name="remove_demo"),
]
