"""Months of node hours for tests, written as the fold writes them: healthy but for the given stretches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from claims.domain.periods import Period, calendar_month
from fleet.bodies import compress
from fleet.domain.rules import load_rules
from fleet.domain.slots import HOUR_MS, SLOT_MS
from fleet.domain.strips import HourRow
from fleet.domain.verdicts import HEALTHY, State, Verdict
from fleet.models import Cluster, Node, NodeHour

DOWN = Verdict(State.OBSERVED, 0, 0, 0, ("XID_79",))
EDGE = Verdict(State.EDGE, 0, 100, 0, (), ("XID_79",))
OCTOBER = calendar_month("2026-10", "Europe/Berlin")
GPUS = tuple(f"g{index}" for index in range(8))

TERMS = """
name = "Bare metal H100"
version = "NW-2231"
kind = "tiers"
counts = ["hardware_failure"]
scope = "node"
zone = "Europe/Berlin"
pooling = "each"
ambiguous_counts = false
min_duration_s = 0
bridging_s = 0
minute_rule = "slots"
denominator = "full_month"
exclusion_mode = "counted_as_up"
excludes = ["maintenance"]
clock_start = "measured"
tiers = [["99.5", "10"], ["99", "30"], ["95", "100"]]
fee_charged = "7196.00"
currency = "EUR"
cap = "none"
minimum = "none"
min_healthy = 7
effective_from = "2026-09-01"
provider = "Northwind Cloud"
customer = "Acme Research GmbH"
filing_channel = "support portal, category SLA"
deadline = { count = 30, unit = "days", after = "period_end" }

[[units]]
name = "gpu-017"
members = [MEMBERS]
"""


def terms(**changes: str) -> str:
    """The contract as TOML; a key with '' is left out."""
    members = ", ".join(f'"gpu-017/gpu{index}"' for index in range(8))
    lines = []
    for line in TERMS.replace("MEMBERS", members).splitlines():
        key = line.partition(" = ")[0]
        if key not in changes:
            lines.append(line)
        elif changes[key]:
            lines.append(f"{key} = {changes[key]}")
    return "\n".join(lines)


def fill(
    name: str = "gpu-017",
    faults: Mapping[str, Sequence[tuple[int, int, Verdict]]] | None = None,
    period: Period = OCTOBER,
    cluster: str = "train-a",
    gap: tuple[int, int] | None = None,
) -> Any:
    """A node with a month of hours. Slots of `faults` count from the period's first; `gap`: hours without a row."""
    node, _ = Node.objects.get_or_create(
        cluster=Cluster.objects.get_or_create(name=cluster)[0], identity=f"name:{name}", defaults={"name": name}
    )
    rows = []
    for hour in range(period.start_ms // HOUR_MS, period.end_ms // HOUR_MS):
        if gap and gap[0] <= hour - period.start_ms // HOUR_MS < gap[1]:
            continue
        first = hour * HOUR_MS // SLOT_MS
        row = HourRow(hour, load_rules().version)
        for subject in ("n", *GPUS):
            row.put(subject, first, first + 240, HEALTHY)
            for a, b, verdict in (faults or {}).get(subject, ()):
                row.put(subject, period.first_slot + a, period.first_slot + b, verdict)
        rows.append(NodeHour(node=node, hour=hour, body=compress(row.to_bytes()), rules=row.rules_version))
    NodeHour.objects.bulk_create(rows)
    return node
