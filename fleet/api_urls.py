"""Routes of the API under /v1/. Each list also answers under `.csv` and `.json`."""

from __future__ import annotations

from typing import Any

from django.urls import URLPattern, path

from fleet import (
    api,
    api_dated,
    api_docs,
    api_domains,
    api_evidence,
    api_fleet,
    api_incidents,
    api_nodes,
    api_reviews,
    api_statistics,
)


def listed(route: str, view: Any, name: str) -> list[URLPattern]:
    """A list in each of its forms; the document names the first, the others are the same."""
    suffixes = sorted(one.format for one in view.renderer_classes)
    forms = [path(f"{route}.{form}", view.as_view(schema=None), {"format": form}) for form in suffixes]
    return [path(route, view.as_view(), name=name), *forms]


def dated(kind: api_dated.Kind) -> list[URLPattern]:
    """A kind of dated rows: its list, and how one is ended and withdrawn."""
    route = f"settings/{kind.path}"
    acts = [("end", kind.end), ("withdraw", kind.withdraw)]
    return [
        *listed(route, api_dated.list_view(kind), f"api-{kind.path}"),
        *(
            path(
                f"{route}/<int:row_id>/{verb}",
                api_dated.act_view(kind, verb, act).as_view(),
                name=f"api-{kind.path}-{verb}",
            )
            for verb, act in acts
            if act is not None
        ),
    ]


GPU = "gpus/<int:node_id>/<int:index>"
INCIDENT = "incidents/<int:incident_id>"

urlpatterns = [
    path("fleet", api_fleet.Fleet.as_view(), name="api-fleet"),
    *listed("fleet/nodes", api_fleet.FleetNodes, "api-fleet-nodes"),
    *listed("clusters", api.Clusters, "api-clusters"),
    *listed("nodes", api_nodes.Nodes, "api-nodes"),
    path("nodes/<int:node_id>", api_nodes.Node.as_view(), name="api-node"),
    *listed("governance/nodes", api_nodes.GovernedNodes, "api-governance"),
    *listed("gpus", api_nodes.Gpus, "api-gpus"),
    path(GPU, api_nodes.Gpu.as_view(), name="api-gpu"),
    *listed(f"{GPU}/slots", api_nodes.Slots, "api-slots"),
    *listed(f"{GPU}/hours", api_nodes.Hours, "api-hours"),
    path(f"{GPU}/explain", api_nodes.Explain.as_view(), name="api-explain"),
    *listed("events", api_nodes.Events, "api-events"),
    *listed("incidents", api_incidents.Incidents, "api-incidents"),
    path(INCIDENT, api_incidents.OneIncident.as_view(), name="api-incident"),
    path(f"{INCIDENT}/acknowledge", api_incidents.Acknowledge.as_view(), name="api-acknowledge"),
    path(f"{INCIDENT}/notes", api_incidents.Notes.as_view(), name="api-notes"),
    *listed("domains", api_domains.Domains, "api-domains"),
    *listed("reviews", api_reviews.Reviews, "api-reviews"),
    path("reviews/looks", api_reviews.Looks.as_view(), name="api-review-looks"),
    path("reviews/looks/<int:look_id>/take-back", api_reviews.TakeBack.as_view(), name="api-review-take-back"),
    *listed("statistics", api_statistics.Statistics, "api-statistics"),
    *listed("availability", api_evidence.Availability, "api-availability"),
    path("batches", api.BatchesOrEvidence.as_view(), name="batches"),
    *listed("batches", api.Evidence, "api-batches")[1:],
    path("batches/<str:sha256>", api_evidence.Batch.as_view(), name="api-batch"),
    path("batches/<str:sha256>/body", api_evidence.BatchBody.as_view(), name="api-batch-body"),
    *listed("rules", api_evidence.RuleList, "api-rules"),
    path("rules/<str:code>", api_evidence.OneRule.as_view(), name="api-rule"),
    *(pattern for kind in api_dated.KINDS for pattern in dated(kind)),
    path("openapi.json", api_docs.Schema.as_view(), name="api-schema"),
    path("docs", api_docs.Docs.as_view(), name="api-docs"),
]
