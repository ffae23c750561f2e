"""Tables of an org's schema: contracts and their dated rows, reports, claims, and the evidence log.

Contract versions, issued reports, history and leaves are append-only (a trigger refuses any change). Node months are
derived from the node hours: deleting them loses nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import models
from django.utils import timezone

from claims.domain.contract import Contract as Terms
from claims.domain.contract_load import contract_from_json
from claims.domain.rows import ENTITLEMENT, KINDS, RECORD, TICKET, Row, slots_inside, slots_touched
from fleet.models import Node

MONTH_CHARS = 7  # 2026-10


class Contract(models.Model):
    """An agreement of the org with a provider. Its terms lie in its versions."""

    name = models.CharField(max_length=200, unique=True)
    cluster = models.CharField(max_length=256, blank=True, help_text="Only this cluster's nodes; empty: all.")
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class ContractVersion(models.Model):
    """Terms as canonical JSON, in force on `[valid_from, valid_until)`; never changed after it is written."""

    contract = models.ForeignKey(Contract, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    terms = models.TextField()
    digest = models.CharField(max_length=64)
    valid_from = models.DateField(null=True)
    valid_until = models.DateField(null=True)
    source = models.CharField(max_length=500, blank=True)
    author = models.CharField(max_length=254)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["contract_id", "number"]
        constraints = [models.UniqueConstraint(fields=["contract", "number"], name="claims_version_number")]

    def __str__(self) -> str:
        return f"{self.contract} version {self.number}"

    def load(self) -> Terms:
        """The terms as the arithmetic takes them."""
        return contract_from_json(self.terms)


class Overlay(models.Model):
    """A dated row with an author (claims.domain.rows), for one contract or for all. Withdrawn, never deleted."""

    contract = models.ForeignKey(Contract, on_delete=models.CASCADE, related_name="overlays", null=True, blank=True)
    kind = models.CharField(max_length=24, choices=[(kind, kind) for kind in KINDS])
    resource = models.CharField(max_length=300)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(null=True, blank=True)
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    pauses = models.JSONField(default=list, help_text="Stop-clock spans: pairs of milliseconds since 1970 UTC.")
    notice_s = models.IntegerField(null=True, blank=True)
    reference = models.CharField(max_length=200, blank=True)
    provider_word = models.BooleanField(default=False, help_text="A record is the provider's own statement.")
    author = models.CharField(max_length=254)
    entered_at = models.DateTimeField(default=timezone.now)
    withdrawn_at = models.DateTimeField(null=True, blank=True)
    withdrawn_by = models.CharField(max_length=254, blank=True)

    class Meta:
        ordering = ["starts_at", "id"]

    def __str__(self) -> str:
        return f"{self.kind} of {self.resource}"

    def row(self) -> Row:
        """The row in slots: inside for what counts for us, touched for what counts against us."""
        start, end = ms_at(self.starts_at) or 0, ms_at(self.ends_at)
        inside = self.kind in (ENTITLEMENT, TICKET, RECORD)
        cut = slots_inside if inside else slots_touched
        first, last = cut(start, start if end is None else end)
        return Row(
            self.kind,
            self.resource,
            first,
            None if end is None else last,
            self.author,
            ms_at(self.entered_at),
            None if self.acknowledged_at is None else slots_inside(a := ms_at(self.acknowledged_at) or 0, a)[0],
            tuple(slots_touched(int(a), int(b)) for a, b in self.pauses),
            self.notice_s,
            self.reference,
            self.provider_word,
        )


class Invoice(models.Model):
    """What the provider charged and credited by itself for a month: fees per unit, automatic credits."""

    contract = models.ForeignKey(Contract, on_delete=models.CASCADE, related_name="invoices")
    month = models.CharField(max_length=MONTH_CHARS)
    fees = models.JSONField(default=dict, help_text="Unit → amount as text; empty: as the contract says.")
    automatic = models.JSONField(default=list, help_text="[{unit, amount, reference}].")
    is_complete = models.BooleanField(default=False)
    previous_month_spend = models.DecimalField(max_digits=18, decimal_places=4, null=True)
    author = models.CharField(max_length=254)
    entered_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["contract", "month"], name="claims_invoice_month")]

    def __str__(self) -> str:
        return f"invoice {self.month} of {self.contract}"


class NodeMonth(models.Model):
    """A node's verdicts of a UTC month by run length (claims.domain.month_runs, zstd); derived from its hours."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="+")
    month = models.CharField(max_length=MONTH_CHARS)
    source = models.CharField(max_length=32, help_text="MD5 over the hour rows that it was made from.")
    final_until = models.IntegerField(default=0, help_text="The hours before this one were final then.")
    final_source = models.CharField(max_length=32, blank=True, help_text="MD5 over those.")
    body = models.BinaryField()
    digest = models.CharField(max_length=64, help_text="SHA-256 of the encoded runs.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["node", "month"], name="claims_nodemonth_month")]

    def __str__(self) -> str:
        return f"{self.month} of node {self.node_id}"


class PeerDay(models.Model):
    """When the server took batches of a node's peers on a past UTC day, joined where they vouch for what lies between;
    derived from the inbox and the packs. `keys`: the node's own identities, whose batches count for nothing.
    """

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="+")
    day = models.IntegerField(help_text="Days since 1970 UTC.")
    keys = models.TextField()
    spans = models.JSONField(help_text="[first, last] in ms since 1970 UTC.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["node", "day"], name="claims_peerday_day")]

    def __str__(self) -> str:
        return f"peers of node {self.node_id} on day {self.day}"


class Report(models.Model):
    """A month under a contract. A draft changes until it is issued; what is issued stays as it is.

    `inputs`: what it rests on (watermark, rule set, contract, overlays, invoice, digest of each node's runs).
    `result`: result.json; every number that a page, PDF or API shows comes from it.
    """

    class Status(models.TextChoices):
        DRAFT = "draft"
        ISSUED = "issued"
        RESTATED = "restated"

    contract = models.ForeignKey(Contract, on_delete=models.CASCADE, related_name="reports")
    version = models.ForeignKey(ContractVersion, on_delete=models.CASCADE, related_name="+")
    month = models.CharField(max_length=MONTH_CHARS)
    number = models.PositiveIntegerField(help_text="1 for the first issue, 2 for its restatement, …")
    status = models.CharField(max_length=10, choices=Status, default=Status.DRAFT)
    inputs = models.JSONField()
    result = models.JSONField()
    digest = models.CharField(max_length=64, help_text="SHA-256 of the canonical JSON of inputs and result.")
    reason = models.CharField(max_length=500, blank=True)
    difference = models.JSONField(default=dict)
    computed_at = models.DateTimeField()
    issued_at = models.DateTimeField(null=True)
    issued_by = models.CharField(max_length=254, blank=True)

    class Meta:
        ordering = ["-month", "contract__name", "-number"]
        constraints = [models.UniqueConstraint(fields=["contract", "month", "number"], name="claims_report_number")]

    def __str__(self) -> str:
        return f"{self.contract} {self.month} version {self.number}"

    @property
    def is_frozen(self) -> bool:
        """Whether it is issued."""
        return self.status != self.Status.DRAFT


class Claim(models.Model):
    """Money asked for on the strength of an issued report."""

    class Status(models.TextChoices):
        DRAFT = "draft"
        FILED = "filed"
        ACKNOWLEDGED = "acknowledged"
        PAID = "paid"
        REFUSED = "refused"
        WRITTEN_OFF = "written_off", "written off"

    report = models.ForeignKey(Report, on_delete=models.PROTECT, related_name="claims")
    amount = models.DecimalField(max_digits=18, decimal_places=4)
    currency = models.CharField(max_length=8, blank=True)
    status = models.CharField(max_length=12, choices=Status, default=Status.DRAFT)
    created_at = models.DateTimeField(default=timezone.now)
    closes_at = models.DateTimeField(null=True, help_text="The last instant at which it can be filed.")
    filed_at = models.DateTimeField(null=True)
    filed_where = models.CharField(max_length=300, blank=True)
    filed_reference = models.CharField(max_length=200, blank=True)
    closed_at = models.DateTimeField(null=True)
    refusal = models.CharField(max_length=1000, blank=True)
    disputed_at = models.DateTimeField(null=True, help_text="The provider disputes it; its words are in the history.")
    received = models.DecimalField(max_digits=18, decimal_places=4, default=0)
    last_received_on = models.DateField(null=True)

    class Meta:
        ordering = ["-created_at"]
        constraints = [models.UniqueConstraint(fields=["report"], name="claims_claim_per_report")]

    def __str__(self) -> str:
        return self.label

    @property
    def label(self) -> str:
        """What people call it: `C-2026-10-0007`."""
        return f"C-{self.report.month}-{self.pk:04d}"

    @property
    def difference(self) -> Any:
        """Received minus asked for."""
        return self.received - self.amount


class ClaimEvent(models.Model):
    """What became of a claim, step by step; append-only. Both sides write into it: `side` says which."""

    class Side(models.TextChoices):
        CUSTOMER = "customer"
        PROVIDER = "provider"

    claim = models.ForeignKey(Claim, on_delete=models.PROTECT, related_name="events")
    at = models.DateTimeField(default=timezone.now)
    actor = models.CharField(max_length=254)
    before = models.CharField(max_length=12, blank=True)
    after = models.CharField(max_length=12)
    amount = models.DecimalField(max_digits=18, decimal_places=4, null=True)
    note = models.CharField(max_length=1000, blank=True)
    side = models.CharField(max_length=8, choices=Side, default=Side.CUSTOMER)

    class Meta:
        ordering = ["at", "id"]

    def __str__(self) -> str:
        return f"{self.claim_id}: {self.before} → {self.after}"


class CalendarFeed(models.Model):
    """An address under which a calendar program reads the deadlines; only the token's hash is kept."""

    token_hash = models.CharField(max_length=64, unique=True)
    made_by = models.CharField(max_length=254)
    made_at = models.DateTimeField(default=timezone.now)
    revoked_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"calendar of {self.made_by}"


class Leaf(models.Model):
    """A leaf of the org's Merkle log, in the log's order: a received batch, a refused one, or an adopted document.

    `batch_sha256`: what it is about: the batch's or the document's digest. `detail`: why it was refused, or the
    document's name.
    """

    class What(models.TextChoices):
        BATCH = "batch"
        REFUSED = "refused"
        DOCUMENT = "document"

    position = models.BigIntegerField(primary_key=True)
    what = models.CharField(max_length=10, choices=What, default=What.BATCH)
    detail = models.CharField(max_length=400, blank=True)
    batch_sha256 = models.BinaryField(max_length=32)
    received_at = models.DateTimeField()
    node = models.CharField(max_length=300)
    seq = models.BigIntegerField(null=True)
    hash = models.BinaryField(max_length=32)

    class Meta:
        indexes = [
            models.Index(fields=["batch_sha256"], name="claims_leaf_batch"),
            models.Index(fields=["received_at", "batch_sha256"], name="claims_leaf_order"),
        ]

    def __str__(self) -> str:
        return f"leaf {self.position}"


class SignedCheckpoint(models.Model):
    """The log's signed word about its first `size` leaves; `proof`: it begins with the one before (hex hashes)."""

    size = models.BigIntegerField(unique=True)
    root = models.BinaryField(max_length=32)
    note = models.TextField()
    proof = models.JSONField(default=list)
    edge = models.JSONField(default=list, help_text="Roots of the complete subtrees, hex, the largest first.")
    watermark = models.DateTimeField()
    is_audited = models.BooleanField(default=False, help_text="The whole log was hashed again from its leaves.")
    made_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["size"]

    def __str__(self) -> str:
        return f"checkpoint of {self.size}"


class AnchorPlan(models.Model):
    """Where the org's checkpoints go so that others can say when they were there: one row an org."""

    notice_address = models.EmailField(blank=True, help_text="The provider's address for notices.")
    finance_address = models.EmailField(blank=True)
    tsa_url = models.CharField(max_length=1000, blank=True)
    tsa_certificate = models.TextField(blank=True, help_text="PEM: the pinned signing certificate, then its issuers.")
    token_adapter = models.CharField(max_length=20, blank=True)
    token_keys = models.TextField(blank=True, help_text="The provider's public keys, a JWKS.")
    changed_by = models.CharField(max_length=254)
    changed_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return "anchor plan"


class Anchor(models.Model):
    """Somebody else's word that a checkpoint was there at an instant; never changed once it is made.

    `who`: the certificate's name, the address, the provider, the instance. `evidence`: the stamp, the mail as it was
    handed over, the ticket's text, the token. `key`: what it is checked with (PEM or JWKS), as it was pinned then.
    """

    class Kind(models.TextChoices):
        STAMP = "rfc3161", "time stamp"
        MAIL = "mail", "mail to the provider"
        TICKET = "ticket", "text of a ticket"
        TOKEN = "token", "signed instance token"

    class State(models.TextChoices):
        WAITING = "waiting"
        MADE = "made"
        FAILED = "failed"

    checkpoint = models.ForeignKey(SignedCheckpoint, on_delete=models.PROTECT, related_name="anchors")
    kind = models.CharField(max_length=10, choices=Kind)
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    asked_at = models.DateTimeField(default=timezone.now)
    next_try_at = models.DateTimeField(default=timezone.now)
    attempts = models.PositiveIntegerField(default=0)
    error = models.CharField(max_length=300, blank=True)
    at = models.DateTimeField(null=True)
    who = models.CharField(max_length=300, blank=True)
    reference = models.CharField(max_length=200, blank=True)
    evidence = models.BinaryField(null=True)
    key = models.TextField(blank=True)

    class Meta:
        ordering = ["-asked_at", "-id"]
        constraints = [
            models.UniqueConstraint(fields=["checkpoint", "kind", "reference"], name="claims_anchor_once"),
            models.CheckConstraint(
                condition=~models.Q(state="made") | models.Q(at__isnull=False, evidence__isnull=False),
                name="claims_anchor_made",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} of {self.checkpoint}"


def ms_at(moment: datetime | None) -> int | None:
    """Milliseconds since 1970 UTC."""
    return None if moment is None else round(moment.timestamp() * 1000)
