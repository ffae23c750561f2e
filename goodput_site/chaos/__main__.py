"""`./goodput chaos`: breaks an installation of its own for some minutes and counts what is lost."""

from __future__ import annotations

import argparse
import dataclasses
import json
import secrets
import sys
import time
from collections.abc import Sequence
from typing import Any

from goodput_site.chaos import bugs
from goodput_site.chaos.faults import ALL
from goodput_site.chaos.run import ChaosError, Plan, run

QUICK_MINUTES = 1.5
WITH_A_BUG = (  # a short round is enough to see one
    "lost answers, duplicates, delays",
    "kill -9 of agents",
    "kill -9 of the web server",
    "the broker forgets everything",
)


def main(arguments: Sequence[str]) -> int:
    """0: nothing lost, doubled or untrue, and every fault really struck; 1: a finding; 2: the run went wrong."""
    options = _parser().parse_args(arguments)
    seed = options.seed if options.seed is not None else secrets.randbelow(10**6)
    minutes = options.minutes or (QUICK_MINUTES if options.quick else 10.0)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", file=sys.stderr, flush=True)

    say(f"seed {seed}")
    try:
        result = run(_plan(options, seed, minutes), say)
    except ChaosError as error:
        print(f"goodput: the run went wrong: {error}", file=sys.stderr)
        return 2
    print(json.dumps(result, indent=1) if options.json else table(result))
    return int(bool(result["findings"] or result["not_struck"]))


def _plan(options: argparse.Namespace, seed: int, minutes: float) -> Plan:
    plan = Plan(seed, minutes, options.quick, options.agents, options.tick, keep=options.keep)
    if options.bug:
        times = bugs.NEEDS.get(options.bug, {})
        some = tuple(
            dataclasses.replace(fault, times=times.get(fault.name, fault.times))
            for fault in ALL
            if fault.name in WITH_A_BUG or fault.name in times
        )
        plan = dataclasses.replace(plan, faults=some, env=bugs.environment(options.bug), quick=True)
    return plan


def _parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(prog="./goodput chaos", description=__doc__)
    flags.add_argument("--seed", type=int, help="repeats a run's order of faults (default: a random one, printed)")
    flags.add_argument("--minutes", type=float, help="how long faults strike (default: 10; with --quick one round)")
    flags.add_argument("--quick", action="store_true", help="each fault once or a few times, within four minutes")
    flags.add_argument("--agents", type=int, default=50, help="agents (default: 50)")
    flags.add_argument("--tick", type=float, default=0.5, help="seconds in which an agent lives 15 s (default: 0.5)")
    flags.add_argument("--json", action="store_true", help="print the result as JSON")
    flags.add_argument("--bug", choices=sorted(bugs.FINDS), help="lay a deliberate bug over the product: must be red")
    flags.add_argument("--keep", action="store_true", help="keep the installation's folder, logs and all")
    return flags


def table(result: dict[str, Any]) -> str:
    """The result for people."""
    lines = [
        f"seed {result['seed']}: {result['kills']} kills, {result['acked']} receipts, {result['lost']} lost, "
        f"{result['doubled']} doubled, {result['unexplained_gaps']} unexplained gaps",
        f"{result['samples']['kept']} samples kept by {result['agents']} agents in {result['agent_starts']} starts; "
        f"backlogs gone {result['drained_s']} s after the last fault",
        "",
        *(f"{f['id']}  {f['struck']:>2} of {f['tried']:<2}  {f['name']}: {f['how']}" for f in result["faults"]),
        "",
        *(f"{part}: back after {s['median']} s, at most {s['max']} s" for part, s in result["recovery_s"].items()),
    ]
    lines += [f"NOT STRUCK: {name}" for name in result["not_struck"]]
    lines += [f"BROKEN {f['invariant']}: {f['what']} ({f['count']})" for f in result["findings"]]
    return "\n".join([*lines, "", "good" if not (result["findings"] or result["not_struck"]) else "NOT GOOD"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
