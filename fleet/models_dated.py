"""Dated rows: what no batch says and the fold or a page must know, each with its author and its dates.

A row is never changed: it is withdrawn, or its end is set once, and a newer row takes its place. What the fold reads of
them is part of a node hour's input digest (fleet/dated.py).
"""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.utils import timezone


class DatedStamp(models.Model):
    """One row that every write of a dated row counts up: whoever keeps them in memory asks this number only."""

    value = models.BigIntegerField(default=0)

    def __str__(self) -> str:
        return f"stamp {self.value}"


class DatedRow(models.Model):
    """Who wrote it, when, and who withdrew it. A withdrawn row counts for nothing, as if it had never been."""

    author = models.CharField(max_length=254)
    entered_at = models.DateTimeField(default=timezone.now)
    reason = models.CharField(max_length=500, blank=True)
    withdrawn_at = models.DateTimeField(null=True, blank=True)
    withdrawn_by = models.CharField(max_length=254, blank=True)

    class Meta:
        abstract = True


class ExpectedHardware(DatedRow):
    """What a node should have on `[from_at, until_at)`; of several in force the newest row counts.

    `gpus`: how many, empty = as learned. `devices`: UUIDs or bus ids that should be there, for people to compare.
    `ports`: [{"key", "gpu": place or null, "rate_gbps": number or null}], empty = as learned.
    """

    node = models.ForeignKey("fleet.Node", on_delete=models.CASCADE, related_name="expected")
    gpus = models.SmallIntegerField(null=True, blank=True)
    devices = models.JSONField(default=list)
    ports = models.JSONField(null=True, blank=True)
    owns_driver = models.BooleanField(default=False, help_text="The provider runs the driver.")
    owns_fabric = models.BooleanField(default=False, help_text="The provider runs the fabric.")
    from_at = models.DateTimeField()
    until_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["from_at", "id"]

    def __str__(self) -> str:
        return f"expected hardware of node {self.node_id}"


class DeviceAssignment(DatedRow):
    """A healthy device was given to a place of a node at an instant, on whatever machine it stands."""

    node = models.ForeignKey("fleet.Node", on_delete=models.CASCADE, related_name="assignments")
    place = models.SmallIntegerField()
    device = models.CharField(max_length=256)
    at = models.DateTimeField()

    class Meta:
        ordering = ["at", "id"]

    def __str__(self) -> str:
        return f"{self.device} for GPU {self.place} of node {self.node_id}"


class ProbeTarget(DatedRow):
    """An address at which the server looks whether a node can be reached, from `from_at` on until `until_at`."""

    class Kind(models.TextChoices):
        TCP = "tcp", "TCP connect"
        ICMP = "icmp", "ICMP echo"

    node = models.ForeignKey("fleet.Node", on_delete=models.CASCADE, related_name="probes")
    kind = models.CharField(max_length=4, choices=Kind, default=Kind.TCP)
    address = models.CharField(max_length=255)
    port = models.IntegerField(null=True, blank=True)
    from_at = models.DateTimeField(default=timezone.now)
    until_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["node_id", "id"]

    def __str__(self) -> str:
        return f"{self.kind} {self.address}" + (f":{self.port}" if self.port else "")


class ProbeRun(models.Model):
    """Successive results of one probe that said the same, at most an hour; it only ever grows at its end.

    `blind`: the probe itself was not healthy in these rounds, so they say nothing of the node.
    """

    class Outcome(models.TextChoices):
        OK = "ok"
        FAILED = "failed"
        BLIND = "blind"

    target = models.ForeignKey(ProbeTarget, on_delete=models.CASCADE, related_name="runs")
    node = models.ForeignKey("fleet.Node", on_delete=models.CASCADE, related_name="probe_runs")
    outcome = models.CharField(max_length=6, choices=Outcome)
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    rounds = models.IntegerField(default=1)
    detail = models.CharField(max_length=200, blank=True)
    marked_at = models.DateTimeField(null=True, help_text="When its hours were last sent to be folded again.")

    class Meta:
        ordering = ["first_at", "id"]
        indexes = [models.Index(fields=["node", "last_at"], name="fleet_proberun_node_last")]

    def __str__(self) -> str:
        return f"{self.outcome} from {self.first_at:%Y-%m-%d %H:%M:%S}"


class RuleAdoption(DatedRow):
    """The org's rule set from `from_at` (a full hour) on: the newest row in force counts."""

    version = models.CharField(max_length=40)
    from_at = models.DateTimeField()

    class Meta:
        ordering = ["from_at", "id"]

    def __str__(self) -> str:
        return f"rule set {self.version} from {self.from_at:%Y-%m-%d %H:%M}"


class Amendment(DatedRow):
    """The org's own rule for one reason on `[from_at, until_at)`, full hours. Several add up in the order entered."""

    code = models.CharField(max_length=64)
    changes = models.JSONField(help_text="Field of the rule → its value.")
    from_at = models.DateTimeField()
    until_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"amendment {self.pk} of {self.code}"


class RuleVariant(models.Model):
    """A rule set with the amendments that were ever in force together: what a node hour's `rules` names."""

    version = models.CharField(max_length=40, primary_key=True)
    base = models.CharField(max_length=40)
    digest = models.CharField(max_length=64)
    amendments = models.JSONField(default=list, help_text="Ids of the amendments, in the order in which they add up.")

    def __str__(self) -> str:
        return self.version


class MaintenanceWindow(DatedRow):
    """An announced span on a cluster, a node or one GPU's place: an overlay, never part of a verdict.

    `source`: who announced it; `noticed_at`: when that reached the org.
    """

    class Source(models.TextChoices):
        PROVIDER = "provider", "Provider’s notice"
        CUSTOMER = "customer", "Our own work"
        VENDOR = "vendor", "Hardware vendor"

    cluster = models.ForeignKey("fleet.Cluster", on_delete=models.CASCADE, related_name="windows")
    node = models.ForeignKey("fleet.Node", on_delete=models.CASCADE, related_name="windows", null=True, blank=True)
    place = models.SmallIntegerField(null=True, blank=True)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    source = models.CharField(max_length=10, choices=Source, default=Source.PROVIDER)
    noticed_at = models.DateTimeField(null=True, blank=True)
    reference = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ["starts_at", "id"]
        indexes = [models.Index(fields=["cluster", "ends_at"], name="fleet_window_cluster_end")]

    def __str__(self) -> str:
        return f"maintenance from {self.starts_at:%Y-%m-%d %H:%M}"

    @property
    def is_late(self) -> bool:
        """Whether it was entered after it had begun: shown wherever it appears."""
        return self.entered_at > self.starts_at

    @property
    def notice_s(self) -> int | None:
        """Seconds between the notice and its start, None without a notice."""
        return None if self.noticed_at is None else max(0, round((self.starts_at - self.noticed_at).total_seconds()))

    def covers(self, at: datetime) -> bool:
        """Whether this instant lies in it."""
        return self.starts_at <= at < self.ends_at
