"""Pages of an org's fleet."""

from __future__ import annotations

from django.urls import path

from fleet import (
    views,
    views_domains,
    views_incidents,
    views_node,
    views_rules,
    views_settings,
    views_statistics,
)

urlpatterns = [
    path("", views.fleet, name="fleet"),
    path("fleet.csv", views.fleet_csv, name="fleet_csv"),
    path("fleet.json", views.fleet_json, name="fleet_json"),
    path("nodes/<int:node_id>/", views_node.node, name="node"),
    path("nodes/<int:node_id>/node.csv", views_node.node_csv, name="node_csv"),
    path("nodes/<int:node_id>/node.json", views_node.node_json, name="node_json"),
    path("nodes/<int:node_id>/gpus/<int:index>/", views_node.timeline, name="timeline"),
    path("domains/", views_domains.domains, name="domains"),
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
    path("settings/clusters/", views_settings.clusters, name="clusters"),
    path("settings/clusters/<int:cluster_id>/label/", views_settings.label_cluster, name="cluster_label"),
    path("settings/clusters/<int:cluster_id>/retire/", views_settings.retire_cluster, name="cluster_retire"),
    path("settings/nodes/<int:node_id>/label/", views_settings.label_node, name="node_label"),
    path("settings/nodes/<int:node_id>/retire/", views_settings.retire_node, name="node_retire"),
    path("settings/nodes/<int:node_id>/merge/", views_settings.merge_node, name="node_merge"),
    path("settings/hardware/", views_settings.hardware, name="hardware"),
    path("settings/hardware/<int:node_id>/", views_settings.node_hardware, name="node_hardware"),
    path("settings/hardware/<int:node_id>/expect/", views_settings.expect, name="node_expect"),
    path("settings/hardware/<int:node_id>/assign/", views_settings.assign, name="node_assign"),
    path("settings/hardware/<int:node_id>/probe/", views_settings.add_node_probe, name="node_probe"),
    path("settings/hardware/<int:node_id>/<slug:kind>/<int:row_id>/end/", views_settings.end_row, name="node_row_end"),
    path("settings/maintenance/", views_settings.maintenance, name="maintenance"),
    path(
        "settings/maintenance/<int:window_id>/withdraw/",
        views_settings.withdraw_maintenance,
        name="maintenance_withdraw",
    ),
    path("settings/rules/", views_rules.org_rules, name="org_rules"),
    path("settings/rules/adopt/", views_rules.adopt, name="rules_adopt"),
    path("settings/rules/<slug:kind>/<int:row_id>/end/", views_rules.end_rule_row, name="rules_row_end"),
    path("manifest.webmanifest", views.manifest, name="manifest"),
    path("clusters/<int:cluster_id>/remove-demo/", views.remove_demo, name="remove_demo"),
]
