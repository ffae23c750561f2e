"""The shapes of `api_shapes` for the OpenAPI document. Tests compare each answer with them, field by field."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework import serializers as s

from fleet.domain.rules.model import CATEGORIES, LASTS, PARTIES, SEVERITIES, SUBJECTS
from fleet.domain.verdicts import State
from fleet.models import Incident
from fleet.selectors_live import MARKS, WORDS

WEIGHT: dict[str, Any] = {"min_value": 0, "max_value": 100}


def text(**more: Any) -> Any:
    """A text that may be null."""
    return s.CharField(allow_null=True, **more)


def at(**more: Any) -> Any:
    """An instant that may be null."""
    return s.DateTimeField(allow_null=True, **more)


def texts() -> Any:
    """A list of texts."""
    return s.ListField(child=s.CharField())


def whole(**more: Any) -> Any:
    """A whole number of at least 0."""
    return s.IntegerField(min_value=0, **more)


def shape(name: str, /, **fields: Any) -> Any:
    """A serializer of this name with these fields."""
    return type(f"{name}Serializer", (s.Serializer,), {"__doc__": f"{name}.", **fields})


def with_from(name: str, /, **fields: Any) -> Any:
    """As `shape`, with the half-open range `from`, `to` in front."""
    ends: dict[str, Any] = {"from": s.DateTimeField(), "to": s.DateTimeField()}
    for place, field in enumerate(ends.values(), -2):
        field._creation_counter = place  # the order of fields is that of their making
    return shape(name, **ends, **fields)


def with_dates(name: str, /, **fields: Any) -> Any:
    """As `shape`, with `from` and an `until` that may be null behind."""
    return shape(name, **fields, **{"from": s.DateTimeField(), "until": at()})


Problem = shape(
    "Problem",
    type=s.CharField(),
    title=s.CharField(),
    status=s.IntegerField(),
    code=s.CharField(help_text="For programs."),
    detail=s.CharField(),
    errors=s.DictField(required=False, help_text="Parameter → what is wrong with it."),
)
Condition = shape(
    "Condition",
    code=s.CharField(),
    title=s.CharField(),
    party=s.ChoiceField(PARTIES),
    weight=s.IntegerField(**WEIGHT),
    certain=s.BooleanField(),
    since=at(),
    action=text(),
)
VERDICT_NOW: dict[str, Any] = {
    "state": s.ChoiceField(WORDS),
    "marks": s.ListField(child=s.ChoiceField(MARKS)),
    "weight": s.IntegerField(allow_null=True, help_text="0..100; null when unknown.", **WEIGHT),
    "lower_loss_weight": s.IntegerField(help_text="As claims read it.", **WEIGHT),
    "higher_loss_weight": s.IntegerField(**WEIGHT),
    "since": at(help_text="When the worst of what holds now began."),
    "causes": s.ListField(child=s.CharField(), help_text="Why it is unknown."),
    "reasons": Condition(many=True),
}
Gpu = shape(
    "Gpu",
    node_id=s.IntegerField(),
    node=s.CharField(),
    cluster=s.CharField(),
    simulated=s.BooleanField(),
    index=s.IntegerField(help_text="The place within the node."),
    uuid=text(help_text="The device that sits there now."),
    pci_bus_id=text(),
    model=text(),
    **VERDICT_NOW,
    last_sample=at(),
)
Port = shape("Port", id=text(), **VERDICT_NOW)
Counts = shape("GpuCounts", total=whole(), **{word: whole() for word in WORDS})
NODE: dict[str, Any] = {
    "id": s.IntegerField(),
    "name": s.CharField(),
    "cluster": s.CharField(),
    "simulated": s.BooleanField(),
    "state": s.ChoiceField(WORDS, help_text="The worst among its GPUs."),
    "silent": s.BooleanField(),
    "gpus": Counts(),
    "open_incidents": whole(),
    "first_seen": s.DateTimeField(),
    "last_sample": at(),
    "last_received": at(),
    "agent_version": text(),
    "driver_version": text(),
    "dropped_batches": whole(),
    "broken_sources": texts(),
    "causes": texts(),
    "reasons": Condition(many=True),
}
Node = shape("Node", **NODE)
NodeInFull = shape("NodeInFull", **NODE, gpu_list=Gpu(many=True), ports=Port(many=True))
GovernedNode = shape(
    "GovernedNode",
    node_id=s.CharField(help_text="The node's name."),
    health=s.ChoiceField(["healthy", "unhealthy"], allow_null=True, help_text="null while no GPU's state is known."),
    instance_id=text(),
    created_at=s.DateTimeField(help_text="When it was first heard."),
    hardware_type=text(),
    gpu_count=whole(help_text="Delivered."),
    healthy_gpu_count=whole(),
    account=s.CharField(help_text="The org."),
    project=s.CharField(help_text="The cluster."),
    in_use=s.BooleanField(allow_null=True),
    region=text(),
)
PERCENTS: dict[str, Any] = {
    "availability_percent": text(help_text="Over known time, floored."),
    "availability_lower_loss_percent": text(help_text="As claims read it: unknown time counts as up."),
    "availability_higher_loss_percent": text(help_text="Unknown time counts as lost."),
    "coverage_percent": text(),
}
SlotRun = with_from(
    "SlotRun",
    slots=s.IntegerField(min_value=1),
    state=s.ChoiceField([state.value for state in State]),
    word=s.ChoiceField(WORDS),
    weight=s.IntegerField(allow_null=True, **WEIGHT),
    lower_loss_weight=s.IntegerField(**WEIGHT),
    higher_loss_weight=s.IntegerField(**WEIGHT),
    certain=texts(),
    possible=texts(),
    rules=text(help_text="Version of the rule set that gave it."),
    row=s.ChoiceField(["final", "provisional", "none"]),
)
FIGURES: dict[str, Any] = {
    **PERCENTS,
    "counted_seconds": whole(help_text="GPU-seconds that count: known and unknown."),
    "known_seconds": whole(),
    "unknown_seconds": whole(),
    **{f"{state.value}_seconds": whole() for state in State if state is not State.UNKNOWN},
    "down_seconds": whole(help_text="Weight 0, without what is held."),
    "degraded_seconds": whole(help_text="Weight 1 to 99."),
    "nominal_weight_seconds": whole(help_text="Weight × GPU-seconds over known time."),
    "lower_loss_weight_seconds": whole(),
    "higher_loss_weight_seconds": whole(),
}
HourLine = with_from("HourLine", **FIGURES, rules=text(), row=s.ChoiceField(["final", "provisional", "none"]))
Figures = shape("Figures", **FIGURES)
AvailabilityGroup = with_from(
    "AvailabilityGroup",
    cluster=s.CharField(required=False),
    simulated=s.BooleanField(required=False),
    node_id=s.IntegerField(required=False),
    node=s.CharField(required=False),
    index=s.IntegerField(required=False),
    uuid=text(required=False),
    model=text(required=False),
    **FIGURES,
)
GROUP_COLUMNS = ("from", "to", "cluster", "simulated", "node_id", "node", "index", "uuid", "model", *FIGURES)
Event = shape(
    "Event",
    at=s.DateTimeField(help_text="Its own instant."),
    node_id=s.IntegerField(),
    node=s.CharField(),
    cluster=s.CharField(),
    kind=s.CharField(),
    code=whole(allow_null=True),
    reason=text(),
    title=text(),
    party=text(),
    pci_bus_id=text(),
    gpu_index=whole(allow_null=True),
    severity=text(),
    action=whole(allow_null=True),
    unit=text(),
    link=whole(allow_null=True),
    instance=text(),
    slices=whole(allow_null=True),
    count=whole(allow_null=True),
    backlog=s.BooleanField(allow_null=True),
    clock_good=s.BooleanField(),
    batch_sha256=s.CharField(),
    received_at=s.DateTimeField(),
)
Explained = shape(
    "Explained",
    code=s.CharField(),
    holds=s.ChoiceField(["certain", "possible"]),
    title=s.CharField(),
    explanation=s.CharField(),
    party=s.ChoiceField(PARTIES),
    category=s.ChoiceField(CATEGORIES),
    weight=s.IntegerField(**WEIGHT),
    share=s.IntegerField(
        allow_null=True,
        help_text="The slot's own weight where it was lowered for a part of its time or of the GPU only.",
    ),
    needs=text(),
    ends=text(),
    action=text(),
    sources=texts(),
)
INCIDENT: dict[str, Any] = {
    "id": s.IntegerField(),
    "node_id": s.IntegerField(),
    "node": s.CharField(),
    "cluster": s.CharField(),
    "simulated": s.BooleanField(),
    "scope": s.ChoiceField(["gpu", "port", "node", "cluster"]),
    "part_of": s.IntegerField(allow_null=True, help_text="The cluster-wide incident that it is a node's share of."),
    "nodes": s.IntegerField(min_value=1, help_text="How many nodes a cluster-wide one took; its sums are its own."),
    "code": s.CharField(help_text="The reason that leads."),
    "title": s.CharField(),
    "party": s.ChoiceField(PARTIES),
    "weight": s.IntegerField(help_text="The least nominal weight.", **WEIGHT),
    "open": s.BooleanField(),
    "opened": s.DateTimeField(),
    "resolved": at(),
    "last_evidence": s.DateTimeField(help_text="End of its last bad slot."),
    "lost_gpu_seconds": whole(),
    "subjects": texts(),
    "withdrawn": at(help_text="A re-fold found no such fault; kept for what people wrote."),
    "acknowledged": at(),
    "acknowledged_by": text(),
    "ticket_number": text(),
    "reported_at": at(),
    "provider_ack_at": at(),
    "disposition": s.ChoiceField([v for v in Incident.Disposition.values if v], allow_null=True),
}
IncidentLine = shape("Incident", **INCIDENT)
Note = shape("Note", id=s.IntegerField(), at=s.DateTimeField(), author=s.CharField(), text=s.CharField())
CodeSpan = with_from("CodeSpan", code=s.CharField(), weight=s.IntegerField(**WEIGHT))
BadSlots = with_from(
    "BadSlots",
    slots=s.IntegerField(min_value=1),
    state=s.ChoiceField([state.value for state in State]),
    weight=s.IntegerField(allow_null=True, **WEIGHT),
    certain=texts(),
    possible=texts(),
)
Part = with_from(
    "IncidentPart",
    subject=s.CharField(),
    index=whole(allow_null=True),
    uuid=text(),
    bad_slots=whole(),
    lost_gpu_seconds=whole(),
    weight=s.IntegerField(**WEIGHT),
    codes=CodeSpan(many=True),
    slots=BadSlots(many=True),
)
IncidentInFull = shape(
    "IncidentInFull",
    **INCIDENT,
    members=s.ListField(child=s.IntegerField(), help_text="The other nodes' shares of a cluster-wide one."),
    slots_from=s.DateTimeField(),
    parts=Part(many=True),
    reasons=Explained(many=True),
    notes=Note(many=True),
)
NewNote = shape("NewNote", text=s.CharField(max_length=4000))
Ticket = shape(
    "Ticket",
    ticket_number=s.CharField(required=False, max_length=120),
    reported_at=at(required=False),
    provider_ack_at=at(required=False),
    disposition=s.CharField(required=False, help_text="excluded, disputed, or empty"),
)
Hours = with_from("Hours")
BatchInFull = shape(
    "BatchInFull",
    sha256=s.CharField(),
    cluster=s.CharField(),
    node=s.CharField(),
    node_id=s.IntegerField(allow_null=True),
    agent_id=text(),
    seq=s.IntegerField(allow_null=True),
    boot_id=text(),
    sample_day=s.DateField(),
    received_at=s.DateTimeField(),
    signature=text(),
    has_suspect_clock=s.BooleanField(),
    is_seq_conflict=s.BooleanField(),
    is_folded=s.BooleanField(help_text="Whether it is in the strips."),
    is_packed=s.BooleanField(help_text="Whether it lies in a pack of its node and hour."),
    hours=Hours(allow_null=True, help_text="Those that its items belong to; null where they have no place in time."),
    dropped_batches=whole(allow_null=True),
    error=text(),
    body=s.CharField(help_text="Path of its exact bytes."),
)
Rule = shape(
    "Rule",
    code=s.CharField(),
    title=s.CharField(),
    explanation=s.CharField(),
    party=s.ChoiceField(PARTIES),
    severity=s.ChoiceField(SEVERITIES),
    weight=s.IntegerField(**WEIGHT),
    lowers=s.BooleanField(),
    subject=s.ChoiceField(SUBJECTS),
    lasts=s.ChoiceField(LASTS),
    category=s.ChoiceField(CATEGORIES),
    needs=texts(),
    ends=texts(),
    ends_without_action=texts(),
    ends_in_words=s.CharField(),
    persistence_samples=s.IntegerField(),
    symptom_of=texts(),
    supersedes=texts(),
    owner=text(),
    action=text(),
    review=s.BooleanField(),
    disagreement=text(),
    xid=whole(allow_null=True),
    sxids=s.ListField(child=s.IntegerField(), help_text="Codes of NVSwitch events that it covers."),
    sources=texts(),
)
DATED: dict[str, Any] = {
    "reason": s.CharField(allow_blank=True),
    "author": s.CharField(),
    "entered": s.DateTimeField(),
    "withdrawn": at(help_text="A withdrawn row counts for nothing."),
    "withdrawn_by": text(),
}
Amendment = with_dates(
    "Amendment",
    id=s.IntegerField(),
    code=s.CharField(help_text="Of the reason."),
    changes=s.DictField(help_text="Field of the rule → its value."),
    **DATED,
)
RuleSet = shape(
    "RuleSet",
    version=s.CharField(),
    digest=s.CharField(),
    found=s.BooleanField(),
    amendments=Amendment(many=True, help_text="The org's own rules for the reasons of this slot."),
)
OddPort = shape(
    "OddPort", name=s.CharField(), state=text(), phys_state=text(), link_downed=whole(help_text="Since the one before.")
)
Sample = shape(
    "Sample",
    at=s.DateTimeField(),
    ts=s.DateTimeField(),
    listed=s.BooleanField(help_text="Whether NVML listed the GPU."),
    gpu=s.DictField(help_text="The wire's keys as received."),
    sources=s.DictField(child=s.CharField()),
    pci=text(),
    ports=OddPort(many=True, help_text="Those of the node that were not plainly up."),
    clock_good=s.BooleanField(),
    agent_id=text(help_text="The installation that sent it."),
    boot_id=text(),
    boot_at=at(help_text="When its boot began, as its clock said."),
    last_shutdown=text(help_text="How the boot before ended: clean, unclean or unknown."),
    last_alive=at(help_text="The newest instant that the boot before left on disk."),
    batch_sha256=s.CharField(),
    received_at=s.DateTimeField(),
)
LoweredLimit = shape(
    "LoweredLimit",
    **dict(zip(("code", "title", "read", "party", "explanation"), (s.CharField() for _ in range(5)), strict=True)),
)
Explanation = with_from(
    "Explanation",
    node_id=s.IntegerField(),
    node=s.CharField(),
    cluster=s.CharField(),
    index=s.IntegerField(),
    uuid=text(),
    slot=s.IntegerField(),
    verdict=SlotRun(),
    meaning=s.CharField(),
    reasons=Explained(many=True),
    limits=LoweredLimit(many=True, help_text="What somebody set below its default; it lowers nothing."),
    rules=RuleSet(),
    incidents=IncidentLine(many=True),
    samples=Sample(many=True),
    events=Event(many=True),
)


def listing(one: Any, **more: Any) -> Any:
    """A page of these: `results`, and `next` for the following page."""
    name = type(one()).__name__.removesuffix("Serializer")
    return shape(f"{name}Page", **more, next=s.URLField(allow_null=True), results=one(many=True))


def ranged(one: Any, **more: Any) -> Any:
    """As `listing`, with the range that it was asked for, as it was understood."""
    name = type(one()).__name__.removesuffix("Serializer")
    return with_from(f"{name}Page", **more, next=s.URLField(allow_null=True), results=one(many=True))


def answers(ok: Any, *refusals: int, csv: bool = False, parquet: bool = False, status: int = 200) -> dict[Any, Any]:
    """The responses of an operation: `ok`, the same as CSV and Parquet, and problem documents."""
    found: dict[Any, Any] = {status: ok() if isinstance(ok, type) else ok}
    if csv:
        found[status, "text/csv"] = OpenApiTypes.STR
    if parquet:
        found[status, "application/vnd.apache.parquet"] = OpenApiTypes.BINARY
    for code in (401, 403, *refusals, 429):
        found[code, "application/problem+json"] = OpenApiResponse(Problem())
    return found


def param(name: str, about: str, kind: Any = str, **more: Any) -> OpenApiParameter:
    """A query parameter."""
    return OpenApiParameter(name, kind, description=about, **more)


PAGING = [
    param("cursor", "Where the page begins: out of `next`."),
    param("page_size", "1 to 1000 results; 100 unless said.", int),
]
RANGE = [
    param("from", "First instant of the half-open range, RFC 3339 with an offset.", OpenApiTypes.DATETIME),
    param("to", "Where the range ends; now unless said.", OpenApiTypes.DATETIME),
]
