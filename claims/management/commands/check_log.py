"""`manage.py check_log --org SLUG`: the org's Merkle log against its inbox and its own signed checkpoints."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection
from django.utils import timezone

from claims.domain.merkle import Checkpoint, Log
from claims.ledger import all_hashes, append_new, load_key, make_checkpoint, origin_of, revocations
from claims.management.in_org import in_org
from claims.models import Leaf, SignedCheckpoint
from claims.verify.notes import open_note, revocations_line
from orgs.models import Org

_WITHOUT_LEAF = """
select count(*) from fleet_inbox i
 where not exists (select 1 from claims_leaf l where l.batch_sha256 = i.sha256 and l.what = 'batch')
"""
_TWICE = """
select count(*) from (
    select batch_sha256 from claims_leaf where what = 'batch' group by 1 having count(*) > 1) as twice
"""


class Command(BaseCommand):
    """Say whether every received batch has exactly one leaf and every checkpoint is the log's own word."""

    help = "Check an org's log: one leaf for every batch, and checkpoints that agree with the leaves."

    def add_arguments(self, parser: CommandParser) -> None:
        """--org, --sign, --json."""
        parser.add_argument("--org", required=True, help="slug of the org")
        parser.add_argument("--sign", action="store_true", help="first sign the log as it stands, as is done hourly")
        parser.add_argument("--json", action="store_true", help="print the answer as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        """Append what was received so far, then check. Exits with 1 when something is wrong."""
        with in_org(options["org"]) as actor:
            append_new(actor.org, timezone.now())
            if options["sign"]:
                make_checkpoint(actor.org, timezone.now())
            answer = {"org": actor.org.slug, "leaves": Leaf.objects.count(), **_checked(actor.org)}
        if options["json"]:
            self.stdout.write(json.dumps(answer))
            return
        for problem in answer["problems"]:
            self.stdout.write(problem)
        if answer["problems"]:
            raise CommandError("The log is not whole.")
        self.stdout.write(f"{answer['leaves']} leaves and {answer['checkpoints']} checkpoints: whole")


def _checked(org: Org) -> dict[str, Any]:
    problems = []
    for sql, words in ((_WITHOUT_LEAF, "batches without a leaf"), (_TWICE, "batches with several leaves")):
        with connection.cursor() as cursor:
            cursor.execute(sql)
            (count,) = cursor.fetchone()
        if count:
            problems.append(f"{count} {words}")
    positions = list(Leaf.objects.order_by("position").values_list("position", flat=True))
    if positions != list(range(len(positions))):
        problems.append("the leaves' positions have a gap")
    ends = revocations()
    checkpoints = list(SignedCheckpoint.objects.order_by("size"))
    key = load_key()
    hashes = iter(all_hashes(len(positions)))
    log, size = Log(0, ()), 0
    for checkpoint in checkpoints:
        while size < checkpoint.size:
            log.append(next(hashes))
            size += 1
        try:
            text, _ = open_note(checkpoint.note, key.name, key.public)
        except ValueError as error:
            problems.append(f"the checkpoint of {checkpoint.size}: {error}")
            continue
        own = (revocations_line([end for leaf, end in ends if leaf.position < checkpoint.size]),)
        told = Checkpoint(origin_of(org), checkpoint.size, log.root())
        if text not in (told.text(), replace(told, extensions=own).text()):  # older ones commit to no revocations
            problems.append(f"the checkpoint of {checkpoint.size} is not the log's")
    return {"checkpoints": len(checkpoints), "problems": problems}
