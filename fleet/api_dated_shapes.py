"""The shapes of dated rows in the API: for the OpenAPI document, and as JSON-ready maps."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers as s

from fleet import api_schemas as schema
from fleet.api_dated_json import at_or_null, dated
from fleet.models import DeviceAssignment, ExpectedHardware, MaintenanceWindow, ProbeTarget, RuleAdoption

_DATES: dict[str, Any] = {"from": s.DateTimeField(), "until": s.DateTimeField(required=False, allow_null=True)}
_NODE: dict[str, Any] = {"node_id": s.IntegerField(), "node": s.CharField(), "cluster": s.CharField()}
_REASON = s.CharField(required=False, max_length=500)
_PORT = schema.shape(
    "ExpectedPort",
    key=s.CharField(help_text="The GUID's hash, or device/number."),
    gpu=s.IntegerField(allow_null=True, required=False, help_text="The place of the nearest GPU."),
    rate_gbps=s.FloatField(allow_null=True, required=False, help_text="Compared by people only."),
)

Hardware = schema.with_dates(
    "ExpectedHardware",
    id=s.IntegerField(),
    **_NODE,
    gpus=s.IntegerField(allow_null=True, help_text="null: as learned."),
    devices=schema.texts(),
    ports=_PORT(many=True, allow_null=True, help_text="null: as learned."),
    owns_driver=s.BooleanField(),
    owns_fabric=s.BooleanField(),
    **schema.DATED,
)
NewHardware = schema.shape(
    "NewExpectedHardware",
    node_id=s.IntegerField(),
    gpus=s.IntegerField(required=False, allow_null=True),
    devices=s.ListField(child=s.CharField(), required=False),
    ports=_PORT(many=True, required=False, allow_null=True),
    owns_driver=s.BooleanField(required=False),
    owns_fabric=s.BooleanField(required=False),
    reason=_REASON,
    **_DATES,
)
Assignment = schema.shape(
    "DeviceAssignment",
    id=s.IntegerField(),
    **_NODE,
    gpu=s.IntegerField(help_text="The place."),
    device=s.CharField(),
    at=s.DateTimeField(),
    **schema.DATED,
)
NewAssignment = schema.shape(
    "NewDeviceAssignment",
    node_id=s.IntegerField(),
    gpu=s.IntegerField(),
    device=s.CharField(),
    at=s.DateTimeField(),
    reason=s.CharField(max_length=500),
)
Probe = schema.with_dates(
    "Probe",
    id=s.IntegerField(),
    **_NODE,
    kind=s.ChoiceField(ProbeTarget.Kind.values),
    address=s.CharField(),
    port=s.IntegerField(allow_null=True),
    **schema.DATED,
)
NewProbe = schema.shape(
    "NewProbe",
    node_id=s.IntegerField(),
    kind=s.ChoiceField(ProbeTarget.Kind.values),
    address=s.CharField(),
    port=s.IntegerField(required=False, allow_null=True),
    reason=_REASON,
)
Window = schema.shape(
    "MaintenanceWindow",
    id=s.IntegerField(),
    cluster=s.CharField(),
    node_id=s.IntegerField(allow_null=True, help_text="null: the whole cluster."),
    node=schema.text(),
    gpu=s.IntegerField(allow_null=True, help_text="null: the whole node."),
    starts=s.DateTimeField(),
    ends=s.DateTimeField(),
    source=s.ChoiceField(MaintenanceWindow.Source.values),
    noticed=schema.at(),
    notice_s=s.IntegerField(allow_null=True, help_text="Seconds between the notice and the beginning."),
    entered_late=s.BooleanField(help_text="Entered after it had begun."),
    reference=s.CharField(allow_blank=True),
    **schema.DATED,
)
NewWindow = schema.shape(
    "NewMaintenanceWindow",
    cluster=s.CharField(),
    node_id=s.IntegerField(required=False, allow_null=True),
    gpu=s.IntegerField(required=False, allow_null=True),
    starts=s.DateTimeField(),
    ends=s.DateTimeField(),
    source=s.ChoiceField(MaintenanceWindow.Source.values, required=False),
    noticed=s.DateTimeField(required=False, allow_null=True),
    reference=s.CharField(required=False, max_length=200),
    reason=_REASON,
)
NewAmendment = schema.shape(
    "NewAmendment",
    code=s.CharField(),
    changes=s.DictField(),
    reason=s.CharField(max_length=500),
    **_DATES,
)
Adoption = schema.shape(
    "RuleAdoption", id=s.IntegerField(), version=s.CharField(), **{"from": s.DateTimeField()}, **schema.DATED
)
NewAdoption = schema.shape(
    "NewRuleAdoption", version=s.CharField(), reason=s.CharField(max_length=500), **{"from": s.DateTimeField()}
)


def _of_node(row: Any) -> dict[str, Any]:
    return {"id": row.pk, "node_id": row.node_id, "node": row.node.name, "cluster": row.node.cluster.name}


def _dates(row: Any) -> dict[str, Any]:
    return {"from": at_or_null(row.from_at), "until": at_or_null(row.until_at)}


def hardware(row: ExpectedHardware) -> dict[str, Any]:
    names = ("gpus", "devices", "ports", "owns_driver", "owns_fabric")
    return {**_of_node(row), **{name: getattr(row, name) for name in names}, **_dates(row), **dated(row)}


def assignment(row: DeviceAssignment) -> dict[str, Any]:
    return {**_of_node(row), "gpu": row.place, "device": row.device, "at": at_or_null(row.at), **dated(row)}


def probe(row: ProbeTarget) -> dict[str, Any]:
    names = {name: getattr(row, name) for name in ("kind", "address", "port")}
    return {**_of_node(row), **names, **_dates(row), **dated(row)}


def window(row: MaintenanceWindow) -> dict[str, Any]:
    return {
        "id": row.pk,
        "cluster": row.cluster.name,
        "node_id": row.node_id,
        "node": row.node.name if row.node else None,
        "gpu": row.place,
        "starts": at_or_null(row.starts_at),
        "ends": at_or_null(row.ends_at),
        "source": row.source,
        "noticed": at_or_null(row.noticed_at),
        "notice_s": row.notice_s,
        "entered_late": row.is_late,
        "reference": row.reference,
        **dated(row),
    }


def adoption(row: RuleAdoption) -> dict[str, Any]:
    return {"id": row.pk, "version": row.version, "from": at_or_null(row.from_at), **dated(row)}
