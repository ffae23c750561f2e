"""`manage.py report --org SLUG --contract NAME --month 2026-10 [--issue] [--json]`: a month under a contract."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from claims.management.in_org import in_org
from claims.services import get_contract
from claims.services_reports import draft_report, issue_report
from claims.words import summary_lines


class Command(BaseCommand):
    """Draft or issue a report."""

    help = "Draft a month's report; --issue freezes it. What can't be issued is said in one sentence."

    def add_arguments(self, parser: CommandParser) -> None:
        """--org, --contract, --month, --issue, --reason, --json."""
        parser.add_argument("--org", required=True, help="slug of the org")
        parser.add_argument("--contract", required=True, help="its name or number")
        parser.add_argument("--month", required=True, help="such as 2026-10")
        parser.add_argument("--issue", action="store_true", help="freeze it; a draft claim follows where money is owed")
        parser.add_argument("--reason", default="", help="why an issued month is restated")
        parser.add_argument("--json", action="store_true", help="print result.json")

    def handle(self, *args: Any, **options: Any) -> None:
        """Compute, store, print."""
        with in_org(options["org"]) as actor:
            contract = get_contract(options["contract"])
            if options["issue"]:
                report = issue_report(contract, options["month"], actor, reason=options["reason"])
            else:
                report = draft_report(contract, options["month"])
            if options["json"]:
                self.stdout.write(json.dumps(report.result, indent=2, sort_keys=True, ensure_ascii=False))
                return
            for line in (f"{report}, {report.status}", *summary_lines(report.result)):
                self.stdout.write(line)
