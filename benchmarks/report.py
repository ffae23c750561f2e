"""The contract result of a month of 1,000 GPUs from stored runs: reading them and the arithmetic, on one core.

R9 = CPU of `assess` / CPU of sorting one million integers (the calibrator). Goal: at most 1 s.
"""

from __future__ import annotations

import random
import time
from typing import Any

from benchmarks.common import repeat, show
from claims.domain.completeness import assess
from claims.domain.contract import Contract
from claims.domain.contract_load import contract_from
from claims.domain.facts import FactRun
from claims.domain.month_runs import decode, encode, facts_of_node
from claims.domain.periods import calendar_month
from claims.domain.result import Inputs
from claims.domain.rows import Row
from claims.domain.rule_spans import always
from fleet.domain.rules import load_rules
from fleet.domain.verdicts import HEALTHY, State, Verdict, unknown

NODES, GPUS, FAULTS = 125, 8, 20
VERDICTS = (
    Verdict(State.OBSERVED, 0, 0, 0, ("XID_79",)),
    Verdict(State.EDGE, 0, 100, 0, (), ("XID_79",)),
    Verdict(State.HELD, 0, 100, 0, (), ("XID_79",)),
    Verdict(State.OBSERVED, 75, 75, 75, ("SW_THERMAL",)),
    unknown("NO_DATA"),
)


def run(rounds: int) -> dict[str, Any]:
    """Measure and print; the figures."""
    figures = repeat(rounds, _round, "sort_ms")
    show(
        f"contract result of one month, {NODES * GPUS} GPUs, {FAULTS} stretches each",
        figures,
        [
            ("gpu_ms", "each GPU by itself, ms"),
            ("node_ms", "each node with a minimum of healthy GPUs, ms (goal ≤ 1000)"),
            ("weighted_ms", "weighted, pooled, ms"),
            ("read_ms", "stored runs to facts, ms"),
            ("bytes_per_node", "stored runs of a node's month, bytes"),
            ("sort_ms", "calibrator: sort of a million integers, ms"),
            ("R9", "R9: node result / calibrator"),
        ],
    )
    return figures


def _round(number: int) -> dict[str, float]:
    rng = random.Random(number)
    numbers = [rng.random() for _ in range(1_000_000)]
    sort_ms = _timed(lambda: numbers.sort())
    period = calendar_month("2026-10", "Europe/Berlin")
    stored = [encode({f"g{gpu}": _runs(rng, period) for gpu in range(GPUS)}) for _ in range(NODES)]
    facts: dict[str, list[FactRun]] = {}

    def read() -> None:
        translate = always(load_rules()).over
        for node, raw in enumerate(stored):
            facts.update(facts_of_node(f"n{node}", decode(raw), translate))

    read_ms = _timed(read)
    rows = [Row("entitlement", f"n{node}", period.first_slot - 10**6, None) for node in range(NODES)]
    inputs = Inputs(period, facts, rows, None, period.first_slot - 240, period.end_slot + 240)
    gpu = _timed(lambda: assess(_contract("gpu"), inputs))
    node = _timed(lambda: assess(_contract("node"), inputs))
    weighted = _timed(lambda: assess(_contract("weighted"), inputs))
    return {
        "gpu_ms": gpu,
        "node_ms": node,
        "weighted_ms": weighted,
        "read_ms": read_ms,
        "bytes_per_node": sum(map(len, stored)) / NODES,
        "sort_ms": sort_ms,
        "R9": node / sort_ms,
    }


def _runs(rng: random.Random, period: Any) -> list[tuple[int, int, Verdict]]:
    """A GPU's month: healthy, with `FAULTS` stretches of something else."""
    first, end = period.first_slot - 240, period.end_slot + 240
    cuts = sorted(rng.sample(range(first + 1, end - 1), 2 * FAULTS))
    out, at = [], first
    for a, b in zip(cuts[::2], cuts[1::2], strict=True):
        b = min(b, a + 400)
        out += [(at, a, HEALTHY), (a, b, rng.choice(VERDICTS))]
        at = b
    return [*out, (at, end, HEALTHY)]


def _timed(work: Any) -> float:
    """CPU ms of a call."""
    begin = time.process_time()
    work()
    return (time.process_time() - begin) * 1000


def _contract(shape: str) -> Contract:
    nodes = [f"n{node}" for node in range(NODES)]
    gpus = {node: [f"{node}/gpu{gpu}" for gpu in range(GPUS)] for node in nodes}
    units = [{"name": node, "members": gpus[node], "min_healthy": 8} for node in nodes]
    if shape != "node":
        units = [{"name": gpu} for node in nodes for gpu in gpus[node]]
    return contract_from(
        {
            "name": shape, "version": "1", "kind": "weighted" if shape == "weighted" else "tiers", "units": units,
            "counts": ["hardware_failure", "degraded"], "scope": "node" if shape == "node" else "gpu",
            "zone": "Europe/Berlin", "pooling": "slots" if shape == "weighted" else "each", "clock_start": "measured",
            "ambiguous_counts": False, "exclusion_mode": "counted_as_up", "cap": "none", "minimum": "none",
            "denominator": "existence", "min_duration_s": 120, "min_duration_compare": ">=", "bridging_s": 60,
            "min_duration_test": "whole", "minute_rule": "clock_minute", "fee_charged": "20000.00",
            "tiers": [["99.9", "10"], ["99", "25"], ["95", "100"]],
        }
    )  # fmt: skip
