"""Tables of whole comparisons of rules: what was asked, how far it is, what of each node comes out otherwise."""

from __future__ import annotations

from django.db import models
from django.utils import timezone


class RuleComparison(models.Model):
    """What an amendment (`code`, `changes`) or a rule set (`version`) would make of hours `[from_hour, until_hour)`.

    Nodes are compared one after the other in slices of a task; `last_node_id` is where it stands. One at a time:
    `is_active` is true while it waits or runs, else null, and unique.
    """

    class State(models.TextChoices):
        WAITING = "waiting"
        RUNNING = "running"
        DONE = "done"
        STOPPED = "stopped"
        FAILED = "failed"

    code = models.CharField(max_length=64, blank=True)
    changes = models.JSONField(default=dict)
    version = models.CharField(max_length=40, blank=True)
    from_hour = models.IntegerField()
    until_hour = models.IntegerField()
    requested_at = models.DateTimeField(default=timezone.now)
    requested_by = models.CharField(max_length=254)
    state = models.CharField(max_length=8, choices=State, default=State.WAITING)
    is_active = models.BooleanField(null=True, default=True, unique=True)
    beat_at = models.DateTimeField(null=True, help_text="When a worker last told of it; null between slices.")
    attempts = models.SmallIntegerField(default=0, help_text="Slices begun since the last node was done.")
    last_node_id = models.BigIntegerField(default=0)
    nodes_done = models.IntegerField(default=0)
    nodes_total = models.IntegerField(default=0)
    hours_folded = models.BigIntegerField(default=0)
    spent_s = models.FloatField(default=0)
    rules = models.JSONField(default=list, help_text="The rules that differ, as `comparing.rule_change` writes them.")
    finished_at = models.DateTimeField(null=True)
    why = models.CharField(max_length=500, blank=True, help_text="Why it ended before its end.")

    class Meta:
        ordering = ["-requested_at", "-id"]

    def __str__(self) -> str:
        return f"comparison {self.pk} of {self.version or self.code}"


class RuleComparisonNode(models.Model):
    """A node of which something comes out otherwise: sums of its GPUs and the whole of it, as `comparing` writes it."""

    comparison = models.ForeignKey(RuleComparison, on_delete=models.CASCADE, related_name="nodes")
    node = models.ForeignKey("fleet.Node", on_delete=models.CASCADE, related_name="comparisons")
    hours = models.IntegerField()
    seconds = models.BigIntegerField()
    lost_before_s = models.BigIntegerField(help_text="GPU-seconds, weighted, in known time.")
    lost_after_s = models.BigIntegerField()
    incidents = models.IntegerField()
    body = models.JSONField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["comparison", "node"], name="fleet_rulecomparison_node")]

    def __str__(self) -> str:
        return f"node {self.node_id} in comparison {self.comparison_id}"
