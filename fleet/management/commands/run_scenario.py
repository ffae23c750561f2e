"""`manage.py run_scenario FILE`: what a scenario of a node comes to, by the fold alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from fleet.domain.rules import RulesError, load_rules
from fleet.domain.scenario import Outcome, ScenarioError, read, run

MOST_BYTES = 64 * 2**20
LINES = 40  # differences that are shown


class Command(BaseCommand):
    """Run scenarios."""

    help = "Fold a scenario (docs/scenarios.md) and print verdicts, incidents and availability. Needs no database."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """FILE, --json, --only, --rules."""
        parser.add_argument("file", type=Path, help="JSON: one scenario or an array of them")
        parser.add_argument("--json", action="store_true", help="print JSON: an array for an array, else one object")
        parser.add_argument("--only", action="append", metavar="ID", help="only the scenario with this id; repeatable")
        parser.add_argument("--rules", metavar="VERSION", help="the rule set (default: the newest)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print what came out; exit status 1 where an expectation is not met."""
        try:
            if options["file"].stat().st_size > MOST_BYTES:
                raise CommandError(f"{options['file']} is larger than 64 MiB.")
            text = options["file"].read_text()
            rules = load_rules(options["rules"]) if options["rules"] else load_rules()
            scenarios = read(text)
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{options['file']} cannot be read: {error}") from error
        except RulesError as error:
            raise CommandError(f"{error}.") from error
        except ScenarioError as error:
            raise CommandError(f"{options['file']}: {error}.") from error
        if options["only"]:
            scenarios = [one for one in scenarios if str(one.get("id")) in options["only"]]
            if not scenarios:
                raise CommandError("The file holds no scenario with that id.")
        outcomes = [run(one, rules) for one in scenarios]
        if options["json"]:
            found: Any = [one.as_json() for one in outcomes]
            is_array = text.lstrip().startswith("[")
            self.stdout.write(json.dumps(found if is_array else found[0]))
        else:
            for one in outcomes:
                for line in lines(one):
                    self.stdout.write(line)
        wrong = [one for one in outcomes if one.differences()]
        if wrong:
            names = ", ".join(str(one.told.scenario.get("id", "?")) for one in wrong)
            raise CommandError(f"{len(wrong)} of {len(outcomes)} not as expected: {names}", returncode=1)


def lines(one: Outcome) -> Iterator[str]:
    """The screen of a scenario, line by line."""
    plain = one.as_json()
    yield f"{plain['id'] or '-'}  {plain['title'] or ''}".rstrip()
    for subject, rows in plain["verdicts"].items():
        for first, last, state, nominal, lower, upper, certain, possible in rows:
            weight = "unknown" if nominal is None else f"{nominal:>3}"
            reasons = " ".join([*certain, *(f"({code})" for code in possible)])
            slots, bounds = f"{first:>6}..{last:<6}", f"[{lower:>3} {upper:>3}]"
            yield f"  {subject:<5} {slots} {state:<9} {weight:<7} {bounds}  {reasons}".rstrip()
    for fault in plain["faults"]:
        yield (
            f"  incident {fault['code']} of {', '.join(fault['subjects'])} ({fault['party']}),"
            f" slots {fault['first_slot']}..{fault['last_slot']}, {fault['lost_gpu_seconds']} GPU-seconds lost"
        )
    for subject, code in plain["reviews"]:
        yield f"  review   {code} of {subject}"
    for name, shares in plain["availability"].items():
        numbers = ", ".join(f"{key.replace('_', ' ')} {_percent(value)}" for key, value in shares.items())
        yield f"  available {name}: {numbers}"
    if plain["as_expected"] is not None:
        yield "  as expected" if plain["as_expected"] else "  NOT AS EXPECTED"
        yield from (f"    {line}" for line in plain["differences"][:LINES])
    yield ""


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value * 100:.4f} %"
