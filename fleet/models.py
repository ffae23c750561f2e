"""Tables of an org's schema: its clusters and nodes, and what the fold made of their facts.

Node hours and live state are derived: deleting them and running `manage.py refold` gives the same rows again. What is
still open (live states, hours that are not final) stands in unlogged tables: a crash of the database empties them, and
they are made again from the facts (docs/adr/0010). The facts themselves are in `models_facts`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.db import models
from django.utils import timezone

from fleet.domain.slots import SLOT_S
from fleet.models_comparisons import RuleComparison, RuleComparisonNode
from fleet.models_dated import (
    Amendment,
    DatedStamp,
    DeviceAssignment,
    ExpectedHardware,
    MaintenanceWindow,
    ProbeRun,
    ProbeTarget,
    RuleAdoption,
    RuleVariant,
)
from fleet.models_facts import BatchMark, DirtySpan, Inbox, Pack, ReceiptSpan, SealedDay, Waiting
from fleet.node_keys import key_number

__all__ = [
    "Amendment",
    "BatchMark",
    "Cluster",
    "DatedStamp",
    "DeviceAssignment",
    "DirtySpan",
    "ExpectedHardware",
    "Inbox",
    "Incident",
    "IncidentNote",
    "MaintenanceWindow",
    "Node",
    "NodeDay",
    "NodeHour",
    "NodeLive",
    "Pack",
    "ProbeRun",
    "ProbeTarget",
    "ReceiptSpan",
    "RuleAdoption",
    "RuleComparison",
    "RuleComparisonNode",
    "RuleVariant",
    "SealedDay",
    "SummedDay",
    "Waiting",
]


class Cluster(models.Model):
    """A named group of nodes, as the agents report it."""

    name = models.CharField(max_length=256, unique=True)
    is_simulated = models.BooleanField(default=False, help_text="Every agent of it said so; shown wherever it appears.")
    created_at = models.DateTimeField(default=timezone.now)
    removed_at = models.DateTimeField(null=True, blank=True)
    label = models.CharField(max_length=120, blank=True, help_text="What people call it; empty: its name.")
    retired_at = models.DateTimeField(null=True, blank=True, help_text="Hidden since then, until a node reports again.")

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Node(models.Model):
    """A machine with GPUs. Its identity is the hardware (`hw_id`), or its name where the agent can't tell."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="nodes")
    identity = models.CharField(
        max_length=300, help_text="`hw:` and the hardware's hash, or `name:` and the node's name."
    )
    name = models.CharField(max_length=256)
    first_seen_at = models.DateTimeField(default=timezone.now)
    label = models.CharField(max_length=120, blank=True, help_text="What people call it; empty: its name.")
    retired_at = models.DateTimeField(null=True, blank=True, help_text="Hidden since then, until it reports again.")
    merged_into = models.ForeignKey("self", on_delete=models.CASCADE, null=True, blank=True, related_name="merged")
    key = models.BigIntegerField(unique=True, help_text="Of cluster and identity, as its batches carry it.")
    dropped_total = models.BigIntegerField(default=0, help_text="Batches that the agent had to evict, as it counts.")

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["cluster", "identity"], name="fleet_node_identity")]

    def save(self, *args: Any, **more: Any) -> None:
        """Store it with the key that its cluster and identity give."""
        self.key = key_number(self.cluster.name, self.identity)
        super().save(*args, **more)

    def __str__(self) -> str:
        return self.name


class NodeLive(models.Model):
    """The fold's own place for a node: where it stands, and what must be folded again. Its row lock is the claim.

    `state` is the closing state after the newest item (zstd of the canonical bytes). `dirty_hour` and `dirty_through`
    are the earliest and the newest hour (hours since 1970 UTC) that late facts reached; empty when none waits. A node
    without a state and with a dirty hour is folded from there again before anything else. After `MAX_ATTEMPTS` failed
    tries its re-fold is set aside with the error, until somebody asks for another.
    """

    node = models.OneToOneField(Node, on_delete=models.CASCADE, primary_key=True, related_name="live")
    state = models.BinaryField(null=True)
    dirty_hour = models.IntegerField(null=True, blank=True)
    dirty_through = models.IntegerField(null=True, blank=True)
    attempts = models.SmallIntegerField(default=0, help_text="Of the re-fold, failed.")
    error = models.TextField(blank=True, help_text="Why the last re-fold failed.")
    last_sample_at = models.DateTimeField(null=True)
    last_received_at = models.DateTimeField(null=True)
    agent_version = models.CharField(max_length=256, blank=True)
    dropped_total = models.BigIntegerField(default=0, help_text="Batches that the agent had to evict, as it counts.")
    summary = models.JSONField(default=dict, help_text="What the page shows of the node now; a function of `state`.")

    def __str__(self) -> str:
        return f"live state of node {self.node_id}"


class NodeHour(models.Model):
    """One node, one hour: the verdict table, the strips of all its subjects and their rollup, compressed by us.

    `hour` counts hours since 1970 UTC. `body` is zstd of `HourRow.to_bytes()`, which carries the closing state and the
    digest of the hour's items. The other columns repeat what is in it, so that SQL can ask. A row is final when later
    evidence (in hour `closed_by`) has closed its last stretch.
    """

    pk = models.CompositePrimaryKey("node_id", "hour")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="hours")
    hour = models.IntegerField()
    body = models.BinaryField()
    # The rollup summed over the GPUs of the node: GPU-seconds, and weight (0..100) times seconds. The states add up to
    # gpus × 3600; slots of the hour that lie ahead or that nothing closed yet are unknown.
    gpus = models.SmallIntegerField(default=0)
    observed_s = models.IntegerField(default=0)
    edge_s = models.IntegerField(default=0)
    pending_s = models.IntegerField(default=0)
    contested_s = models.IntegerField(default=0)
    held_s = models.IntegerField(default=0)
    unknown_s = models.IntegerField(default=0)
    down_s = models.IntegerField(default=0)
    degraded_s = models.IntegerField(default=0)
    nominal_sum = models.IntegerField(default=0)
    lower_sum = models.IntegerField(default=0)
    upper_sum = models.IntegerField(default=0)
    rules = models.CharField(max_length=40)
    is_final = models.BooleanField(default=False)
    closed_by = models.IntegerField(null=True)

    class Meta:
        indexes = [models.Index(fields=["hour"], name="fleet_nodehour_hour")]

    def __str__(self) -> str:
        return f"node {self.node_id}, hour {self.hour}"


class NodeDay(models.Model):
    """A node's hours of a UTC day (`day` counts from 1970) added up (`fleet.day_sums`); `first_hour` is of its rows."""

    pk = models.CompositePrimaryKey("node_id", "day")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="days")
    day = models.IntegerField()
    first_hour = models.IntegerField()
    counted = models.BigIntegerField()
    known = models.BigIntegerField()
    nominal = models.BigIntegerField()
    lower = models.BigIntegerField()
    upper = models.BigIntegerField()
    down = models.BigIntegerField()
    degraded = models.BigIntegerField()
    held = models.BigIntegerField()

    class Meta:
        indexes = [models.Index(fields=["day"], name="fleet_nodeday_day")]

    def __str__(self) -> str:
        return f"node {self.node_id}, day {self.day}"


class SummedDay(models.Model):
    """A UTC day (counted from 1970) whose sums stand in `NodeDay` for every node."""

    day = models.IntegerField(primary_key=True)

    def __str__(self) -> str:
        return f"day {self.day}"


class Incident(models.Model):
    """One fault of a node: derived from its strips (fleet/domain/incidents.py), with a human layer that is not.

    `parts` holds each subject's share; of an open incident also what it was up to `settled_slot`, so that a fault of
    weeks is not read from its beginning every minute. The human layer never touches a verdict.
    """

    class Disposition(models.TextChoices):
        NONE = ""
        EXCLUDED = "excluded"
        DISPUTED = "disputed"

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="incidents")
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="incidents")
    scope = models.CharField(max_length=8)
    code = models.CharField(max_length=64, help_text="The reason that leads.")
    party = models.CharField(max_length=16)
    weight = models.SmallIntegerField(help_text="The least nominal weight, 0..100.")
    first_slot = models.IntegerField()
    end_slot = models.IntegerField()
    is_open = models.BooleanField()
    lost_gpu_seconds = models.BigIntegerField()
    parts = models.JSONField()
    settled_slot = models.IntegerField(null=True)
    withdrawn_at = models.DateTimeField(null=True, help_text="A re-fold found no such fault; kept for its human layer.")
    # the second pass over the cluster's incidents (fleet/cluster_incidents.py)
    part_of = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, related_name="members", help_text="Its cluster-wide incident."
    )
    nodes_together = models.PositiveIntegerField(default=1, help_text="Of a cluster-wide one: how many nodes it took.")
    waits_for_grouping = models.BooleanField(default=True)
    # the human layer
    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.CharField(max_length=254, blank=True)
    ticket_number = models.CharField(max_length=120, blank=True)
    reported_at = models.DateTimeField(null=True)
    provider_ack_at = models.DateTimeField(null=True)
    disposition = models.CharField(max_length=8, choices=Disposition, blank=True, default=Disposition.NONE)

    class Meta:
        ordering = ["-is_open", "-first_slot"]
        indexes = [
            models.Index(fields=["node", "end_slot"], name="fleet_incident_node_end"),
            models.Index(fields=["is_open", "first_slot"], name="fleet_incident_open"),
            models.Index(fields=["cluster", "code", "first_slot"], name="fleet_incident_cause"),
            models.Index(fields=["id"], name="fleet_incident_ungrouped", condition=models.Q(waits_for_grouping=True)),
        ]

    def __str__(self) -> str:
        return f"{self.code} on {self.node}"

    @property
    def opened_at(self) -> datetime:
        """Beginning of the first bad slot."""
        return datetime.fromtimestamp(self.first_slot * SLOT_S, UTC)

    @property
    def resolved_at(self) -> datetime | None:
        """End of the last bad slot; None while it is open."""
        return None if self.is_open else datetime.fromtimestamp(self.end_slot * SLOT_S, UTC)

    @property
    def has_human_layer(self) -> bool:
        """Whether somebody wrote something about it."""
        return bool(
            self.acknowledged_at or self.ticket_number or self.reported_at or self.provider_ack_at or self.disposition
        )


class IncidentNote(models.Model):
    """What somebody wrote about an incident; append-only."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="notes")
    at = models.DateTimeField(default=timezone.now)
    author = models.CharField(max_length=254)
    text = models.TextField(max_length=4000)

    class Meta:
        ordering = ["at", "id"]

    def __str__(self) -> str:
        return f"{self.author}: {self.text[:60]}"


class Review(models.Model):
    """Something of a node's hour that asks for a person's look (`fleet.reviews`): derived from the hour, as it says.

    Absolute slots, within the hour. `uuid`: of the GPU that sat there as the hour ended; empty where not known.
    """

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="reviews")
    hour = models.IntegerField()
    subject = models.CharField(max_length=300, help_text="g<place>, p:<port> or n.")
    code = models.CharField(max_length=64)
    first_slot = models.IntegerField()
    end_slot = models.IntegerField()
    uuid = models.CharField(max_length=300, blank=True)

    class Meta:
        ordering = ["-first_slot", "-id"]
        indexes = [
            models.Index(fields=["node", "hour"], name="fleet_review_node_hour"),
            models.Index(fields=["-first_slot", "-id"], name="fleet_review_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.code} of {self.subject}"


class ReviewLook(models.Model):
    """That somebody looked at a review: the human layer, kept by what the review is about and never by its row.

    Absolute slots. It stands for the reviews of this subject and code that overlap it, whatever a re-fold makes of
    their rows; while the stretch goes on without a gap, its end moves along (`fleet.reviews`).
    """

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="review_looks")
    subject = models.CharField(max_length=300)
    code = models.CharField(max_length=64)
    first_slot = models.IntegerField()
    end_slot = models.IntegerField()
    uuid = models.CharField(max_length=300, blank=True, help_text="Of the GPU, as the review named it then.")
    at = models.DateTimeField(default=timezone.now)
    by = models.CharField(max_length=254)
    note = models.CharField(max_length=1000, blank=True)
    taken_back_at = models.DateTimeField(null=True)
    taken_back_by = models.CharField(max_length=254, blank=True)

    class Meta:
        ordering = ["-at", "-id"]
        indexes = [models.Index(fields=["node", "subject", "code"], name="fleet_reviewlook_about")]

    def __str__(self) -> str:
        return f"{self.code} of {self.subject}, looked at by {self.by}"


class ReviewBackfill(models.Model):
    """Hours before this one may lack their reviews: written before these were kept. No row: none lacks any."""

    before_hour = models.IntegerField(primary_key=True)

    def __str__(self) -> str:
        return f"reviews before hour {self.before_hour}"


class Refusal(models.Model):
    """An upload that was refused after a valid key: its hash, why and when. The log gets a leaf for it."""

    sha256 = models.BinaryField(max_length=32, help_text="Of the MessagePack bytes; of the upload if it is no gzip.")
    code = models.CharField(max_length=40)
    refused_at = models.DateTimeField()
    key_id = models.BigIntegerField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["sha256", "code"], name="fleet_refusal_once")]

    def __str__(self) -> str:
        return f"refused as {self.code} at {self.refused_at}"
