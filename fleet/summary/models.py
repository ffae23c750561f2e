"""Tables of the public schema. No foreign key: a row is found by the org's id and outlives nothing."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import models
from django.utils import timezone


class OrgSummary(models.Model):
    """How an org's fleet is, as its own job said last. `as_of` says when."""

    STALE = timedelta(minutes=5)

    org_id = models.BigIntegerField(primary_key=True)
    as_of = models.DateTimeField()
    clusters = models.IntegerField(default=0)
    nodes = models.IntegerField(default=0)
    gpus = models.IntegerField(default=0)
    available = models.IntegerField(default=0)
    degraded = models.IntegerField(default=0)
    down = models.IntegerField(default=0)
    held = models.IntegerField(default=0)
    unknown = models.IntegerField(default=0)
    open_incidents = models.IntegerField(default=0)
    agents_silent = models.IntegerField(default=0)
    reviews = models.IntegerField(default=0, help_text="What asked for a look in the last 24 hours: subjects.")
    review_codes = models.JSONField(default=list, help_text="Of these, the most frequent codes; see ReviewCount.")
    last_received_at = models.DateTimeField(null=True)
    waiting_batches = models.BigIntegerField(default=0)
    oldest_unfolded_seconds = models.IntegerField(null=True)
    failed_batches = models.IntegerField(default=0)
    dropped_total = models.BigIntegerField(default=0)
    keys_expiring = models.IntegerField(default=0)
    exposure = models.JSONField(default=dict, help_text="Credits at stake this month: currency → amount as text.")

    def __str__(self) -> str:
        return f"summary of org {self.org_id}"

    def is_stale(self, now: datetime) -> bool:
        """Whether its job has not reported lately."""
        return now - self.as_of > self.STALE


class JobBeat(models.Model):
    """When a clocked job that runs for the whole server was done last."""

    name = models.CharField(max_length=64, primary_key=True)
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.name} at {self.at:%H:%M:%S}"


class FailedTask(models.Model):
    """A task of Celery that failed for good, and what it was called with. It is sent again at most once."""

    task = models.CharField(max_length=120)
    org_id = models.BigIntegerField(null=True, help_text="Of a task of one org.")
    given = models.JSONField(help_text='{"args": […], "kwargs": {…}}')
    error = models.CharField(max_length=1000)
    failed_at = models.DateTimeField(default=timezone.now, db_index=True)
    retried_at = models.DateTimeField(null=True)
    retried_by = models.CharField(max_length=254, blank=True)

    class Meta:
        ordering = ["-failed_at", "-id"]

    def __str__(self) -> str:
        return f"{self.task} at {self.failed_at:%Y-%m-%d %H:%M:%S}"


class Export(models.Model):
    """One archive of everything of an org. It outlives the org for a week, so that a deletion can be preceded by it."""

    LIVES = timedelta(days=7)
    PATIENCE = timedelta(hours=2)  # a running one is given up after

    class State(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        DONE = "done"
        FAILED = "failed"

    org_id = models.BigIntegerField(db_index=True)
    org_slug = models.CharField(max_length=40)
    state = models.CharField(max_length=8, choices=State, default=State.QUEUED)
    file_name = models.CharField(max_length=40, unique=True, help_text="128 random bits; the folder is not served.")
    requested_by = models.CharField(max_length=254)
    requested_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    size_bytes = models.BigIntegerField(null=True)
    sha256 = models.CharField(max_length=64, blank=True)
    facts = models.BigIntegerField(default=0)
    error = models.CharField(max_length=300, blank=True)

    class Meta:
        ordering = ["-requested_at"]

    def __str__(self) -> str:
        return f"export of {self.org_slug}"
