"""`manage.py simulate --org SLUG --nodes N --days D --seed S`: a believable fleet's history, labelled simulated."""

from __future__ import annotations

import json
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.folding import fold_waiting
from fleet.ingest import receive
from fleet.refolding import refold_dirty
from fleet.simulation import Plan, truth, uploads
from orgs.keys import KeyInfo
from orgs.models import Org

MINUTE_MS = 60_000
CHUNK = 600


class Command(BaseCommand):
    """Make history."""

    help = "Make the past of a simulated cluster, up to now. What was injected is written beside it as JSON."

    def add_arguments(self, parser: CommandParser) -> None:
        """--org, --nodes, --days, --seed, --cluster, --truth."""
        parser.add_argument("--org", required=True, help="slug of the org")
        parser.add_argument("--nodes", type=int, default=4, help="nodes of 8 GPUs (default 4)")
        parser.add_argument("--days", type=float, default=7, help="how far back (default 7)")
        parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same faults")
        parser.add_argument("--cluster", default="simulated", help="name of the cluster (default simulated)")
        parser.add_argument("--truth", type=Path, help="where to write what was injected")

    def handle(self, *args: Any, **options: Any) -> None:
        """Store and fold the batches, telling how far it is."""
        org = Org.objects.filter(slug=options["org"]).first()
        if org is None:
            raise CommandError(f"There is no org {options['org']}.")
        if options["nodes"] < 1 or options["days"] <= 0:
            raise CommandError("--nodes and --days must be positive.")
        end_ms = int(time.time() * 1000) // MINUTE_MS * MINUTE_MS
        first_ms = end_ms - int(options["days"] * 24 * 60) * MINUTE_MS
        plan = Plan(options["cluster"], options["nodes"], first_ms, end_ms, options["seed"])
        path = options["truth"] or settings.GOODPUT_VAR / "simulations" / f"{org.slug}-{plan.cluster}-{plan.seed}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"plan": vars(plan), "faults": truth(plan)}, indent=1) + "\n")
        key = KeyInfo(0, "simulate", frozenset({"ingest"}), "", None, org.pk, org.slug, org.schema_name)
        stream, done = uploads(plan), 0
        while chunk := list(islice(stream, CHUNK)):
            for body, _ in chunk:
                receive(body, key, {})
            with tenant_context(org):
                fold_waiting(timezone.now())
            done += len(chunk)
            self.show(done, plan.batches)
        with tenant_context(org):
            while refold_dirty(timezone.now()):
                pass
        self.stdout.write(f"\n{done} batches of {plan.nodes} nodes; what was injected: {path}")

    def show(self, done: int, total: int) -> None:
        """A line that moves on a terminal, nothing elsewhere."""
        if sys.stdout.isatty():
            self.stdout.write(f"\r{100 * done // total:3d} %  {done} of {total} batches", ending="")
            self.stdout.flush()
