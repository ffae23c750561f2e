"""Tables of the alerts. An `Alert` row is the outbox: it is written in the transaction of what it tells of.

Alert → (routing) → one Delivery per channel that wants it → (sending) → what the other side answered. A `Thread` is one
trouble from its beginning to its end; everything about it is told under one key.
"""

from __future__ import annotations

import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone

from fleet.domain.alerting.words import KINDS, SEVERITIES, WHATS

MAX_RECIPIENTS = 20
MOST_HOLD_S = 3600
MOST_DIGEST_MINUTES = 1440


class Channel(models.Model):
    """Where alerts go, and which. `sealed` holds what is secret of it, encrypted; it is never shown again."""

    class Kind(models.TextChoices):
        EMAIL = "email", "E-mail"
        WEBHOOK = "webhook", "Webhook"
        SLACK = "slack", "Slack"
        PAGERDUTY = "pagerduty", "PagerDuty"
        ALERTMANAGER = "alertmanager", "Alertmanager"

    name = models.CharField(max_length=120)
    kind = models.CharField(max_length=16, choices=Kind)
    is_enabled = models.BooleanField(default=True)
    recipients = ArrayField(models.EmailField(max_length=254), default=list, blank=True)
    sealed = models.BinaryField(null=True, help_text="URL, keys and headers, encrypted (sealing.py).")
    target = models.CharField(max_length=300, help_text="Where it goes, as far as that may be shown.")
    template = models.JSONField(null=True, help_text="Of a webhook: the JSON to send, with names in braces.")
    kinds = ArrayField(models.CharField(max_length=16), default=list, blank=True, help_text="Empty: all.")
    clusters = ArrayField(models.CharField(max_length=256), default=list, blank=True, help_text="Empty: all.")
    parties = ArrayField(models.CharField(max_length=16), default=list, blank=True, help_text="Empty: all.")
    least_severity = models.CharField(max_length=8, choices=[(one, one) for one in SEVERITIES], default="warning")
    hold_seconds = models.PositiveIntegerField(default=60, help_text="What is over within this time is not told.")
    digest_minutes = models.PositiveIntegerField(default=0, help_text="0: at once; else one message for all of it.")
    created_at = models.DateTimeField(default=timezone.now)
    created_by = models.CharField(max_length=254)
    removed_at = models.DateTimeField(null=True, help_text="A removed channel stays for the log of what it was sent.")
    last_sent_at = models.DateTimeField(null=True)
    last_failed_at = models.DateTimeField(null=True)
    last_error = models.CharField(max_length=300, blank=True)
    repeated_at = models.DateTimeField(null=True, help_text="Alertmanager: when what is active was last sent again.")

    class Meta:
        ordering = ["name", "id"]

    def __str__(self) -> str:
        return f"{self.name} ({self.kind})"


class Recipient(models.Model):
    """An address of an e-mail channel. Until its owner confirms, nothing but the question goes there."""

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="addresses")
    address = models.EmailField(max_length=254)
    asked_at = models.DateTimeField(default=timezone.now)
    confirmed_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["address"]
        constraints = [models.UniqueConstraint(fields=["channel", "address"], name="alerts_recipient_once")]

    def __str__(self) -> str:
        return self.address


class Thread(models.Model):
    """One trouble, told under one key: an incident, the silence of a cluster, its nodes with two agents, a contract's
    budget, a deadline.

    The columns repeat what its newest alert said. `key` is unique in the org and names it to the other side.
    """

    key = models.CharField(max_length=120, unique=True)
    kind = models.CharField(max_length=16, choices=[(one, one) for one in KINDS])
    is_open = models.BooleanField(default=True)
    severity = models.CharField(max_length=8, choices=[(one, one) for one in SEVERITIES])
    party = models.CharField(max_length=16, blank=True)
    cluster = models.CharField(max_length=256, blank=True)
    title = models.CharField(max_length=300)
    subject = models.CharField(max_length=300, blank=True, default="", help_text="The title with which it began.")
    text = models.TextField(blank=True)
    path = models.CharField(max_length=300, blank=True, help_text="Of its page within the org, such as incidents/7/.")
    facts = models.JSONField(default=dict)
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    changed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        indexes = [models.Index(fields=["changed_at"], name="alerts_open_thread", condition=Q(is_open=True))]

    def __str__(self) -> str:
        return self.key


class Alert(models.Model):
    """Something happened to a thread. Rows without `routed_at` wait for the router; (key, dedup) is told once."""

    key = models.CharField(max_length=120)
    kind = models.CharField(max_length=16, choices=[(one, one) for one in KINDS])
    what = models.CharField(max_length=16, choices=[(one, one) for one in WHATS])
    at = models.DateTimeField(help_text="When it happened.")
    severity = models.CharField(max_length=8, choices=[(one, one) for one in SEVERITIES])
    party = models.CharField(max_length=16, blank=True)
    cluster = models.CharField(max_length=256, blank=True)
    title = models.CharField(max_length=300, blank=True, help_text="Of an incident it is written by the router.")
    text = models.TextField(blank=True)
    path = models.CharField(max_length=300, blank=True)
    facts = models.JSONField(default=dict)
    dedup = models.CharField(max_length=120, null=True)
    created_at = models.DateTimeField(default=timezone.now)
    routed_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["id"], name="alerts_unrouted", condition=Q(routed_at=None))]
        constraints = [models.UniqueConstraint(fields=["key", "dedup"], name="alerts_told_once")]

    def __str__(self) -> str:
        return f"{self.key} {self.what}"


class Delivery(models.Model):
    """One message to one channel. At least once: a worker that dies while sending leaves it to the next.

    `uid` stays the same over all attempts, so that the other side can tell a repetition. `message` is what is told,
    without any secret.
    """

    class Status(models.TextChoices):
        WAITING = "waiting"  # until due_at
        SENT = "sent"
        FAILED = "failed"  # given up; may be sent again by hand
        DAMPED = "damped"  # over before it was told, or taken back

    uid = models.UUIDField(default=uuid.uuid4, unique=True)
    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="deliveries")
    thread = models.ForeignKey(Thread, on_delete=models.CASCADE, null=True, related_name="deliveries")
    what = models.CharField(max_length=16)
    status = models.CharField(max_length=8, choices=Status, default=Status.WAITING)
    message = models.JSONField()
    changes = models.PositiveIntegerField(default=1, help_text="How many alerts are told by it.")
    sent_to = models.CharField(max_length=1000, blank=True)
    due_at = models.DateTimeField()
    claimed_until = models.DateTimeField(null=True, help_text="A worker is sending it; past this, it died.")
    attempts = models.PositiveSmallIntegerField(default=0)
    answer = models.PositiveSmallIntegerField(null=True, help_text="HTTP status or SMTP reply code.")
    error = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    sent_at = models.DateTimeField(null=True)
    asked_by = models.CharField(max_length=254, blank=True, help_text="Who asked for a test or to send it again.")
    again = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, help_text="Which one it repeats.")

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["due_at"], name="alerts_waiting", condition=Q(status="waiting")),
            models.Index(fields=["thread", "channel"], name="alerts_by_thread"),
            models.Index(fields=["-created_at", "-id"], name="alerts_newest"),
        ]

    def __str__(self) -> str:
        return f"{self.what} to {self.channel_id}: {self.status}"
