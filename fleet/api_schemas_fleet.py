"""The shapes of `fleet_json` for the OpenAPI document: the fleet over a period, its clusters and nodes."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers as s

from fleet.api_schemas import PERCENTS, VERDICT_NOW, Counts, at, shape, text, texts, whole, with_from
from fleet.selectors_live import WORDS

SUMS = (
    *("known_seconds", "unknown_seconds", "down_seconds", "degraded_seconds", "held_seconds"),
    *("nominal_weight_seconds", "lower_loss_weight_seconds", "higher_loss_weight_seconds"),
)
Sums = shape("Sums", **{name: whole() for name in SUMS})
FleetGpu = shape("FleetGpu", index=s.IntegerField(), uuid=text(), pci_bus_id=text(), model=text(), **VERDICT_NOW)
FLEET_NODE: dict[str, Any] = {
    "id": s.IntegerField(),
    "cluster": s.CharField(),
    "name": s.CharField(),
    "simulated": s.BooleanField(),
    "state": s.ChoiceField(WORDS, help_text="The worst among its GPUs now."),
    "silent": s.BooleanField(),
    "last_sample": at(),
    "agent_version": s.CharField(allow_blank=True),
    "driver_version": text(),
    "dropped_batches": whole(),
    **PERCENTS,
}
FleetNode = shape("FleetNode", **FLEET_NODE, sums=Sums(), gpus=FleetGpu(many=True))
FLEET_COLUMNS = (*FLEET_NODE, *(f"sums_{name}" for name in SUMS))
Shown = with_from("FleetPeriod", name=s.CharField())
FleetCluster = shape(
    "FleetCluster",
    name=s.CharField(),
    simulated=s.BooleanField(),
    node_count=whole(),
    gpu_count=whole(),
    **PERCENTS,
    sums=Sums(),
    nodes=FleetNode(many=True, help_text="Empty where `nodes_listed` is false: read /v1/fleet/nodes."),
)
Trouble = shape(
    "Trouble",
    cluster=s.CharField(),
    node=s.CharField(),
    gpus=shape("TroubledGpu", index=s.IntegerField(), uuid=text())(many=True),
    state=s.ChoiceField(WORDS),
    code=s.CharField(),
    title=s.CharField(),
    also=texts(),
    mark=text(),
    text=s.CharField(allow_blank=True),
    action=text(),
    party=s.CharField(),
    since=at(),
)
WholeFleet = shape(
    "Fleet",
    as_of=s.DateTimeField(),
    period=Shown(),
    simulated=s.BooleanField(help_text="Whether all of it is made up."),
    gpus=Counts(),
    nodes=shape("NodeCounts", total=whole(), silent=whole())(),
    **PERCENTS,
    sums=Sums(),
    dropped_batches=whole(),
    nodes_listed=s.BooleanField(help_text="False above 500 nodes: read /v1/fleet/nodes."),
    open_incidents=whole(help_text="A cluster-wide one counts once; silence is none."),
    trouble_count=whole(),
    troubles=Trouble(many=True, help_text="The worst 200 where the nodes are not listed, else all."),
    clusters=FleetCluster(many=True),
)
