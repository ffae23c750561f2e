"""`manage.py refold --org SLUG`: make every derived row of an org again from the inbox, or say what other rules would.

With `--rules VERSION` or `--amend CODE:KEY=VALUE` and `--compare` nothing is written: history is folded beside what is
stored, and what comes out otherwise is told: hours, GPUs, incidents, and the rule behind each.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.api_params import Unprocessable, instant
from fleet.comparing import Comparison, Proposal, as_json, compare
from fleet.dated import hour_at
from fleet.domain.rules import Amendment, RulesError, amendment
from fleet.domain.slots import HOUR_MS, SLOT_S
from fleet.models import Node, NodeHour
from fleet.refolding import refold_dirty, refold_everything
from orgs.models import Org

BAR = 40
LINES = 200  # of hours in the text form; --json has them all


def _join() -> None:
    """Help a refold that another process began, until nothing is left that nobody holds."""
    while refold_dirty(timezone.now(), limit=1):
        pass


class Command(BaseCommand):
    """Fold an org's inbox again, or compare."""

    help = "Fold an org's inbox again from the first batch on, or (--compare) say what other rules would change."

    def add_arguments(self, parser: CommandParser) -> None:
        """--org; for a comparison --rules, --amend, --compare, --from, --until, --node, --json."""
        parser.add_argument("--org", required=True, help="slug of the org")
        parser.add_argument("--rules", help="the rule set to compare with, such as 2026-11-30")
        parser.add_argument(
            "--amend",
            action="append",
            default=[],
            metavar="CODE:KEY=VALUE",
            help="an amendment to compare with; VALUE is JSON",
        )
        parser.add_argument("--compare", action="store_true", help="write nothing, say what would change")
        parser.add_argument("--from", dest="since", help="from this instant on (RFC 3339); else from the first hour")
        parser.add_argument("--until", help="up to this instant; else now")
        parser.add_argument("--node", help="only the node with this name")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
        parser.add_argument("--workers", type=int, default=1, help="processes that fold, one a core is best")
        parser.add_argument("--join", action="store_true", help="help a refold that runs, until nothing is left")

    def handle(self, *args: Any, **options: Any) -> None:
        """Refold or compare, telling how far it is."""
        org = Org.objects.filter(slug=options["org"]).first()
        if org is None:
            raise CommandError(f"There is no org {options['org']}.")
        asks = bool(options["rules"] or options["amend"])
        if options["compare"] != asks:
            raise CommandError(
                "--rules or --amend go with --compare: adopt a rule set with adopt_rules, by the page or API."
            )
        with tenant_context(org):
            if asks:
                self._compare(options)
                return
            if options["join"]:
                _join()
                return
            helpers: list[subprocess.Popen[bytes]] = []
            command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "refold", "--org", org.slug, "--join"]

            def begun() -> None:
                helpers.extend(subprocess.Popen(command) for _ in range(options["workers"] - 1))

            try:
                total = refold_everything(timezone.now(), self._progress, begun)
            finally:
                for helper in helpers:
                    helper.terminate() if sys.exc_info()[0] else helper.wait()
        self.stdout.write(f"\nrefolded {total} batches")

    def _compare(self, options: dict[str, Any]) -> None:
        first = NodeHour.objects.order_by("hour").values_list("hour", flat=True).first()
        if first is None:
            raise CommandError("Nothing is folded yet: there is nothing to compare.")
        since, until = _hour(options, "since", "--from"), _hour(options, "until", "--until")
        from_hour = max(first, since) if since is not None else first
        until_hour = until if until is not None else hour_at(timezone.now()) + 1
        if until_hour <= from_hour:
            raise CommandError("--until lies after --from.")
        nodes = None
        if options["node"]:
            nodes = list(Node.objects.filter(name=options["node"]).select_related("cluster"))
            if not nodes:
                raise CommandError(f"There is no node {options['node']}.")
        try:
            proposal = Proposal(from_hour, options["rules"], _amendments(options["amend"], from_hour))
            found = compare(proposal, until_hour, nodes, self._progress)
        except RulesError as error:
            raise CommandError(str(error)) from error
        if options["as_json"]:
            self.stdout.write(json.dumps(as_json(found), indent=1, ensure_ascii=False))
            return
        for line in lines(found):
            self.stdout.write(line)

    def _progress(self, done: int, total: int) -> None:
        """A bar on a terminal, a line every ten seconds elsewhere."""
        full = done * BAR // max(1, total)
        if sys.stderr.isatty():
            self.stderr.write(
                f"\r{'█' * full}{'░' * (BAR - full)} {done} of {total} nodes", ending="\n" if done == total else ""
            )
        elif done == total or time.monotonic() - self._told > 10:
            self._told = time.monotonic()
            self.stderr.write(f"{done} of {total} nodes")

    _told = 0.0


def _hour(options: dict[str, Any], name: str, flag: str) -> int | None:
    """The full hour at or after an option's instant."""
    if not options[name]:
        return None
    try:
        ms = instant({name: options[name]}, name)
    except Unprocessable as error:
        raise CommandError(f"{flag}: an instant in RFC 3339, such as 2026-11-30T12:00:00Z.") from error
    return -(-(ms or 0) // HOUR_MS)


def _amendments(texts: list[str], from_hour: int) -> tuple[Amendment, ...]:
    """Amendments out of `CODE:KEY=VALUE`; several of one code are one."""
    changes: dict[str, dict[str, Any]] = defaultdict(dict)
    for text in texts:
        code, _, rest = text.partition(":")
        key, _, value = rest.partition("=")
        if not code or not key or not value:
            raise CommandError(f"--amend {text}: CODE:KEY=VALUE, such as XID_74:weight=60.")
        try:
            changes[code][key] = json.loads(value)
        except ValueError:
            changes[code][key] = value
    return tuple(amendment(code, keys, "proposed", from_hour * HOUR_MS) for code, keys in sorted(changes.items()))


def lines(found: Comparison) -> list[str]:
    """The comparison as text."""
    out = [f"{found.old.version} -> {found.new.version}: {found.hours_folded} node hours folded"]
    weighty = [one for one in found.changes if one.is_weighty]
    for one in weighty:
        keys = "; ".join(f"{key} {_say(old)} -> {_say(new)}" for key, old, new in one.keys)
        out.append(f"  rule {one.code} {one.kind}{': ' + keys if keys else ''}")
    words = len(found.changes) - len(weighty)
    if words:
        out.append(f"  {words} more rules differ in their words only")
    told = 0
    for node in found.nodes:
        out.append(f"{node.node.cluster.name} / {node.node.name}")
        for incident in node.incidents:
            out.append(f"  incident {incident.kind}: {_incident(incident, found)}{_why(incident.codes, found)}")
        for hour in node.hours:
            told += 1
            if told > LINES:
                continue
            at = datetime.fromtimestamp(hour.hour * 3600, UTC)
            lost = (hour.nominal_before - hour.nominal_after) / 100 - (hour.known_before_s - hour.known_after_s)
            out.append(
                f"  {at:%Y-%m-%dT%H:%MZ} {hour.subject}: {hour.seconds} s come out otherwise,"
                f" {lost:+.0f} GPU-seconds lost{_why(hour.codes, found)}"
            )
    if told > LINES:
        out.append(f"  … and {told - LINES} more hours: --json has them all")
    if not found.nodes:
        out.append("Nothing comes out otherwise.")
    return out


def _say(value: Any) -> str:
    return ", ".join(value) or "none" if isinstance(value, tuple) else str(value)


def _why(codes: tuple[str, ...], found: Comparison) -> str:
    named = [one.code for one in found.why(codes)]
    return f" ({', '.join(named)})" if named else ""


def _incident(one: Any, found: Comparison) -> str:
    sides = [(one.before, found.old), (one.after, found.new)]
    told = []
    for facts, rules in sides:
        if facts is not None:
            begin = datetime.fromtimestamp(facts.first_slot * SLOT_S, UTC)
            lost = f"weight {facts.weight}, {facts.lost_gpu_seconds} GPU-seconds"
            told.append(f"{facts.leading_code(rules)} ({facts.party(rules)}) from {begin:%Y-%m-%dT%H:%M:%SZ}, {lost}")
    return " -> ".join(told)
