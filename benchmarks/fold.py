"""`./goodput bench fold`: CPU of the pure fold and of the worker's chain, per batch of 8 GPUs, 8 ports and 4 samples.

Chunks of 300 batches (60 nodes, 5 minutes) as the worker takes them: gunzip, typed decode, placement and fold, rows,
rollups, zstd. `fold` alone is measured for a healthy node, with one GPU steadily missing and with one throttled GPU.
Ratios are to the typed decode of the same bytes in the same round.
"""

from __future__ import annotations

import random
import time
from typing import Any

import zstandard

from agent import wire
from benchmarks import common
from fleet import decode
from fleet.domain.clocks import NO_FIT
from fleet.domain.context import Context
from fleet.domain.node_hours import ReceivedBatch, advance, rows_needed
from fleet.domain.placement import place
from fleet.domain.rules import load_rules
from fleet.domain.state import NodeState
from fleet.domain.strips import HourRow
from fleet.domain.work import Work

NODES, MINUTES, CHUNKS = 60, 5, 4
FIRST_MS = 480_000 * 3_600_000
CONTEXT = Context(gpus=8, ports=tuple((f"guid-x-{i}", i) for i in range(8)))


def _history(fault: str, seed: int) -> list[tuple[bytes, str]]:
    """An hour's first 20 minutes of the nodes, node-major; `fault` is on one GPU of each node."""
    rng = random.Random(seed)
    bodies = []
    for node in range(NODES):
        for minute in range(MINUTES * CHUNKS):
            batch = common.batch(f"n{node}", minute, rng, FIRST_MS)
            for interval in batch["intervals"]:
                for port in interval["ib_ports"]:
                    port["guid_hash"] = f"guid-x-{port['device'][-1]}"
                if fault == "missing" and minute:
                    gone = interval["gpus"].pop(3)
                    interval["pci"] = {gone["pci_bus_id"]: "dead"}
                elif fault == "throttled":
                    interval["gpus"][3].update(throttle_time={"hw_thermal": 9000}, sm_clock=990)
            bodies.append(wire.pack(batch))
    return bodies


def _received(raw: bytes, sha: str) -> ReceivedBatch:
    batch = decode.decode_for_fold(raw)
    return ReceivedBatch(bytes.fromhex(sha), batch.intervals[-1].ts + 5000, batch)


def _fold_us(bodies: list[tuple[bytes, str]], context: Context) -> float:
    """CPU µs per batch of placement and fold alone, in chunks of five minutes, one node after the other."""
    rules = load_rules()
    batches = [_received(decode.gunzip(body), sha) for body, sha in bodies]
    per_node = MINUTES * CHUNKS
    spent, count = 0.0, 0
    for node in range(NODES):
        work = Work(None, rules, context)
        mine = batches[node * per_node : (node + 1) * per_node]
        for chunk in range(CHUNKS):
            part = mine[chunk * MINUTES : (chunk + 1) * MINUTES]
            begin = time.process_time()
            placed = place(part, work.state.fit if work.state else NO_FIT)
            for item in placed.items:
                work.take(item)
            if chunk:  # the first chunk meets the node for the first time
                spent += time.process_time() - begin
                count += len(part)
    return spent / count * 1e6


def _chain_us(bodies: list[tuple[bytes, str]], context: Context, figures: dict[str, float]) -> None:
    """CPU µs per batch of the worker's chain in chunks of 300, and the sizes of what it writes."""
    rules = load_rules()
    packer, unpacker = zstandard.ZstdCompressor(level=3), zstandard.ZstdDecompressor()
    per_node = MINUTES * CHUNKS
    stored: dict[int, dict[int, bytes]] = {node: {} for node in range(NODES)}
    states: dict[int, bytes | None] = dict.fromkeys(range(NODES))
    parts = dict.fromkeys(("gunzip_us", "decode_us", "advance_us", "rows_us"), 0.0)
    count = 0
    for chunk in range(CHUNKS):
        for node in range(NODES):
            mine = bodies[node * per_node + chunk * MINUTES : node * per_node + (chunk + 1) * MINUTES]
            a = time.process_time()
            raws = [decode.gunzip(body) for body, _ in mine]
            b = time.process_time()
            batches = [_received(raw, sha) for raw, (_, sha) in zip(raws, mine, strict=True)]
            c = time.process_time()
            raw_state = states[node]
            state = NodeState.from_bytes(raw_state) if raw_state else None
            rows = {
                hour: HourRow.from_bytes(unpacker.decompress(stored[node][hour]))
                for hour in rows_needed(state)
                if hour in stored[node]
            }
            done = advance(state, rows, batches, rules, context)
            d = time.process_time()
            for hour, row in done.rows.items():
                stored[node][hour] = packer.compress(row.to_bytes())
            states[node] = done.state.to_bytes() if done.state else None
            e = time.process_time()
            if chunk:
                count += len(mine)
                for name, spent in zip(parts, (b - a, c - b, d - c, e - d), strict=True):
                    parts[name] += spent
    for name, spent in parts.items():
        figures[name] = spent / count * 1e6
    figures["chain_us"] = sum(figures[name] for name in parts)
    figures["row_bytes"] = max(len(raw) for rows_ in stored.values() for raw in rows_.values())


def run(rounds: int = 7) -> dict[str, Any]:
    """Medians over the rounds; prints a table of µs of CPU per batch and ratios to the typed decode."""
    histories = {fault: _history(fault, 1) for fault in ("healthy", "missing", "throttled")}

    def one(number: int) -> dict[str, float]:
        figures: dict[str, float] = {}
        sample = [decode.gunzip(body) for body, _ in histories["healthy"][:300]]
        figures["calibrator_us"] = common.decode_us(sample)
        for fault, bodies in histories.items():
            figures[f"fold_{fault}_us"] = _fold_us(bodies, CONTEXT)
        _chain_us(histories["healthy"], CONTEXT, figures)
        figures["fold_ratio"] = figures["fold_healthy_us"] / figures["calibrator_us"]
        figures["chain_ratio"] = figures["chain_us"] / figures["calibrator_us"]
        return figures

    figures = common.repeat(rounds, one, "calibrator_us")
    common.show(
        "Fold of one batch (8 GPUs, 8 ports, 4 samples), CPU µs",
        figures,
        (
            ("calibrator_us", "calibrator c1: typed decode"),
            ("fold_healthy_us", "fold alone, healthy"),
            ("fold_missing_us", "fold alone, one GPU steadily missing"),
            ("fold_throttled_us", "fold alone, one GPU steadily throttled"),
            ("gunzip_us", "chain: gunzip"),
            ("decode_us", "chain: decode"),
            ("advance_us", "chain: state and row read, placement, fold, strips"),
            ("rows_us", "chain: rollups, bytes, zstd"),
            ("chain_us", "chain, all"),
            ("row_bytes", "greatest row after 20 minutes, compressed bytes"),
            ("fold_ratio", "fold alone / c1"),
            ("chain_ratio", "chain / c1"),
        ),
    )
    return figures
