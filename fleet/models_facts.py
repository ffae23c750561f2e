"""The facts of an org and what is said of them: the inbox, what waits, what is out of the ordinary, packs, sealed days.

A batch never changes after its receipt. Which node and hours it belongs to follows from its bytes (`node_key`,
`first_hour`, `last_hour`); only what differs from that gets a mark.
"""

from __future__ import annotations

from django.db import models
from django.utils import timezone


class Inbox(models.Model):
    """One row per uploaded batch: the exact bytes and when they came. Partitioned by week of `sample_day`, immutable.

    The table is made by SQL in the migration; the same bytes meet the same row for ever by (sample_day, sha256).
    """

    pk = models.CompositePrimaryKey("sample_day", "sha256")
    sample_day = models.DateField(help_text="UTC day of the first ts: a function of the bytes alone.")
    sha256 = models.BinaryField(max_length=32, help_text="SHA-256 of the MessagePack bytes.")
    body = models.BinaryField(help_text="The gzip member as received.")
    cluster = models.TextField()
    node = models.TextField()
    hw_id = models.TextField(null=True)
    agent_id = models.TextField(null=True)
    seq = models.BigIntegerField(null=True)
    boot_id = models.TextField(null=True)
    received_at = models.DateTimeField()
    key_id = models.BigIntegerField(null=True)
    signature = models.BinaryField(null=True)
    dropped_total = models.BigIntegerField(null=True)
    has_suspect_clock = models.BooleanField(default=False)
    is_seq_conflict = models.BooleanField(default=False)
    node_key = models.BigIntegerField(help_text="Of cluster and identity: the node's `key`.")
    first_hour = models.IntegerField(help_text="The hours (since 1970 UTC) of its first and last `ts`.")
    last_hour = models.IntegerField()

    class Meta:
        managed = False
        db_table = "fleet_inbox"

    def __str__(self) -> str:
        return f"batch {bytes(self.sha256).hex()[:12]} of {self.node}"


class Waiting(models.Model):
    """A batch that no worker has folded. Unlogged and narrow: after a crash it is made again from the inbox."""

    id = models.BigAutoField(primary_key=True)
    sample_day = models.DateField()
    sha256 = models.BinaryField(max_length=32)
    received_at = models.DateTimeField()
    node_key = models.BigIntegerField()
    cluster = models.TextField()
    node = models.TextField()
    hw_id = models.TextField(null=True)
    first_hour = models.IntegerField()
    last_hour = models.IntegerField()
    is_seq_conflict = models.BooleanField(default=False)
    attempts = models.SmallIntegerField(default=0)

    class Meta:
        managed = False
        db_table = "fleet_waiting"

    def __str__(self) -> str:
        return f"batch {bytes(self.sha256).hex()[:12]} waits"


class BatchMark(models.Model):
    """What is out of the ordinary about a batch; most have none.

    Only `moved` ones are evidence: they were placed in the hours said here instead of those of their `ts`.
    """

    class Reason(models.TextChoices):
        MOVED = "moved", "placed in other hours than it says"
        SUSPECT_CLOCK = "suspect_clock", "could not be placed in time"
        SEQ_CONFLICT = "seq_conflict", "other bytes came under the same number before"
        CLUSTER_REMOVED = "cluster_removed", "of a demo that was removed"
        FAILED = "failed", "could not be folded, set aside"
        SEALED = "sealed", "came after its hours were sealed"

    pk = models.CompositePrimaryKey("sample_day", "sha256")
    sample_day = models.DateField()
    sha256 = models.BinaryField(max_length=32)
    reason = models.CharField(max_length=16, choices=Reason)
    node = models.ForeignKey("fleet.Node", on_delete=models.CASCADE, null=True, related_name="+")
    first_hour = models.IntegerField(null=True)
    last_hour = models.IntegerField(null=True)
    error = models.TextField(blank=True)
    marked_at = models.DateTimeField(default=timezone.now)

    class Meta:
        indexes = [
            models.Index(fields=["node", "last_hour"], name="fleet_batchmark_node_hours"),
            models.Index(fields=["reason", "marked_at"], name="fleet_batchmark_reason"),
        ]

    def __str__(self) -> str:
        return f"batch {bytes(self.sha256).hex()[:12]}: {self.reason}"


class DirtySpan(models.Model):
    """The dirty hours of a node as they survive a crash; NodeLive has them for the fold."""

    node = models.OneToOneField("fleet.Node", on_delete=models.CASCADE, primary_key=True, related_name="+")
    first_hour = models.IntegerField()
    last_hour = models.IntegerField()

    def __str__(self) -> str:
        return f"hours {self.first_hour} to {self.last_hour} of node {self.node_id}"


class Pack(models.Model):
    """Batches of one node whose first `ts` lies in one hour, once that hour is closed.

    `skeleton` says of each what the inbox row said (zstd of a MessagePack map, see `fleet.packs`) and stays for ever;
    `body` is one zstd frame over their MessagePack bytes, NULL once retention dropped it. The column `prefixes` (SQL
    only) has the first four bytes of each SHA-256, so that a batch is found by its hash.
    """

    id = models.BigAutoField(primary_key=True)
    node_key = models.BigIntegerField()
    sample_day = models.DateField()
    first_hour = models.IntegerField(help_text="Of every batch in it.")
    last_hour = models.IntegerField(help_text="The newest of any batch in it.")
    count = models.IntegerField()
    skeleton = models.BinaryField()
    body = models.BinaryField(null=True)
    member_bytes = models.IntegerField(help_text="Size of the gzip members as they came.")
    kept_for = models.CharField(max_length=200, blank=True, help_text="Why its body outlives the raw horizon.")
    packed_at = models.DateTimeField(default=timezone.now)
    dropped_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(fields=["node_key", "first_hour"], name="fleet_pack_node_hour"),
            models.Index(fields=["sample_day"], name="fleet_pack_day"),
        ]

    def __str__(self) -> str:
        return f"{self.count} batches of hour {self.first_hour}"


class ReceiptSpan(models.Model):
    """A node's batches that lie in a pack were received throughout `[from_at, until_at]`, at most 150 s apart.

    What `fleet.peers` asks the inbox for as long as a week is not packed.
    """

    id = models.BigAutoField(primary_key=True)
    cluster = models.TextField()
    node_key = models.BigIntegerField()
    sample_day = models.DateField()
    from_at = models.DateTimeField()
    until_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["cluster", "from_at"], name="fleet_receiptspan_from")]

    def __str__(self) -> str:
        return f"{self.from_at} to {self.until_at}"


class SealedDay(models.Model):
    """A UTC day past the raw horizon: its hours are never folded again. `day` counts from 1970."""

    day = models.IntegerField(primary_key=True)
    sealed_at = models.DateTimeField(default=timezone.now)
    batches = models.BigIntegerField(default=0)
    kept = models.BigIntegerField(default=0, help_text="Of them with their bytes.")

    def __str__(self) -> str:
        return f"day {self.day}"
