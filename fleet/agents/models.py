"""Installations of the agent. A signature is evidence, never a condition: nothing here refuses a batch."""

from __future__ import annotations

from django.db import models
from django.utils import timezone


class AgentKey(models.Model):
    """One public key that an installation enrolled.

    The first key of an identity is active at once (trust on first use). A second one waits for a person: it is a lost
    state directory, or somebody who uses the identity of another.
    """

    class State(models.TextChoices):
        ACTIVE = "active"
        WAITING = "waiting"
        REVOKED = "revoked"

    agent_id = models.TextField()
    public_key = models.BinaryField(max_length=32)
    state = models.CharField(max_length=8, choices=State)
    cluster = models.TextField()
    node = models.TextField()
    hw_id = models.TextField(null=True)
    agent_version = models.TextField(blank=True)
    enrolled_at = models.DateTimeField(default=timezone.now)
    enrolled_with = models.CharField(max_length=16, help_text="Prefix of the key that it came with.")
    is_bootstrap = models.BooleanField(
        help_text="Whether it came with a token that may only enrol, and got its own key."
    )
    address = models.GenericIPAddressField(null=True)
    ingest_key_id = models.BigIntegerField(null=True, help_text="Its own ingest key (orgs.ApiKey).")
    changed_at = models.DateTimeField(null=True, help_text="When a person accepted or revoked it.")
    changed_by = models.CharField(max_length=254, blank=True)

    class Meta:
        ordering = ["-enrolled_at"]
        constraints = [models.UniqueConstraint(fields=["agent_id", "public_key"], name="agents_key_once")]
        indexes = [models.Index(fields=["public_key"], name="agents_key_public")]

    def __str__(self) -> str:
        return f"{self.agent_id} on {self.node}"


class AgentSeen(models.Model):
    """One installation on one node, as the fold saw its batches: how they were signed, from when to when they reach.

    Of hours of receipt that are over; `fleet.agents.counts.NOW` adds the last ones. `first_at` and `last_at` are
    instants of samples by the node's own clock: batches that come late say nothing new.
    """

    agent_id = models.TextField()
    node = models.ForeignKey("fleet.Node", on_delete=models.CASCADE, related_name="agents")
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    received_at = models.DateTimeField()
    agent_version = models.TextField(blank=True)
    valid = models.BigIntegerField(default=0)
    unsigned = models.BigIntegerField(default=0)
    unknown_key = models.BigIntegerField(default=0, help_text="Signed, by a key that was not enrolled.")
    bad = models.BigIntegerField(default=0, help_text="Signed, but not by the enrolled key, or not these bytes.")
    revoked = models.BigIntegerField(default=0, help_text="Signed by a key that was revoked before they came.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["agent_id", "node"], name="agents_seen_once")]

    def __str__(self) -> str:
        return f"{self.agent_id} on {self.node_id}"


class BatchFlaw(models.Model):
    """A batch whose signature speaks against it. It was folded like any other; who weighs evidence sees the mark."""

    class Why(models.TextChoices):
        BAD = "bad"
        REVOKED = "revoked"

    sample_day = models.DateField()
    sha256 = models.BinaryField(max_length=32)
    agent_id = models.TextField()
    node = models.ForeignKey("fleet.Node", on_delete=models.CASCADE, related_name="flaws")
    why = models.CharField(max_length=8, choices=Why)
    found_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["sample_day", "sha256"], name="agents_flaw_once")]

    def __str__(self) -> str:
        return f"{self.why}: {bytes(self.sha256).hex()[:12]}"
