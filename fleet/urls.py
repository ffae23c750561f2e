"""Pages of an org's fleet."""

from __future__ import annotations

from django.urls import path

from fleet import views, views_incidents, views_node, views_statistics

urlpatterns = [
    path("", views.fleet, name="fleet"),
    path("fleet.csv", views.fleet_csv, name="fleet_csv"),
    path("fleet.json", views.fleet_json, name="fleet_json"),
    path("nodes/<int:node_id>/", views_node.node, name="node"),
    path("nodes/<int:node_id>/node.csv", views_node.node_csv, name="node_csv"),
    path("nodes/<int:node_id>/node.json", views_node.node_json, name="node_json"),
    path("nodes/<int:node_id>/gpus/<int:index>/", views_node.timeline, name="timeline"),
    path("incidents/", views_incidents.incidents, name="incidents"),
    path("incidents.csv", views_incidents.incidents_csv, name="incidents_csv"),
    path("incidents.json", views_incidents.incidents_json, name="incidents_json"),
    path("incidents/statistics/", views_statistics.statistics, name="statistics"),
    path("incidents/statistics.csv", views_statistics.statistics_csv, name="statistics_csv"),
    path("incidents/statistics.json", views_statistics.statistics_json, name="statistics_json"),
    path("incidents/<int:incident_id>/", views_incidents.incident, name="incident"),
    path("incidents/<int:incident_id>/slots.csv", views_incidents.incident_slots, name="incident_slots"),
    path("incidents/<int:incident_id>/acknowledge/", views_incidents.acknowledge, name="incident_acknowledge"),
    path("incidents/<int:incident_id>/notes/", views_incidents.note, name="incident_note"),
    path("incidents/<int:incident_id>/ticket/", views_incidents.ticket, name="incident_ticket"),
    path("settings/clusters/", views.clusters, name="clusters"),
    path("manifest.webmanifest", views.manifest, name="manifest"),
    path("clusters/<int:cluster_id>/remove-demo/", views.remove_demo, name="remove_demo"),
]
