"""What a node hour takes under zstd with its closing state: 8 GPUs and 8 ports, healthy and noisy."""

from __future__ import annotations

import hashlib
import uuid
from random import Random
from typing import Any

import pytest

from fleet.bodies import compress, decompress, pack_row
from fleet.domain.context import Context
from fleet.domain.node_hours import advance, rows_needed
from fleet.domain.rules import load_rules
from fleet.domain.state import NodeState
from fleet.domain.strips import HourRow, read_rollups
from fleet.tests.domain import facts

HOUR = 480_000
FIRST_MS = HOUR * 3_600_000
BOOTED_MS = FIRST_MS - 10**9
PORTS = tuple(hashlib.sha256(f"port {i}".encode()).hexdigest()[:16] for i in range(8))
UUIDS = tuple(f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, str(i))}" for i in range(8))
AGENT, BOOT = (str(uuid.uuid5(uuid.NAMESPACE_OID, name)) for name in ("agent", "boot"))


def hour(noise: float) -> HourRow:
    """The row of an hour after an hour like it; `noise`: the share of slots in which a GPU is throttled at random."""
    rng, rules = Random(1), load_rules()
    context = Context(gpus=8, ports=tuple((key, None) for key in PORTS))
    rows: dict[int, HourRow] = {}
    state = None
    for minute in range(-60, 61):
        batch = facts.Batch(
            tuple(_interval(rng, minute * 4 + i, noise) for i in range(4)),
            agent_id=AGENT,
            seq=minute + 2000,
            boot_id=BOOT,
            boot_at=BOOTED_MS,
        )
        first = batch.intervals[0]
        assert first.boottime is not None
        batch.sync = facts.Sync(first.ts - 15_000 + rng.randrange(40), first.boottime - 15_000)
        known = {h: rows[h] for h in rows_needed(state) if h in rows}
        done = advance(state, known, [facts.received(batch)], rules, context)
        rows.update(done.rows)
        assert done.state is not None
        state = NodeState.from_bytes(done.state.to_bytes())
    return rows[HOUR]


def test_within_a_day_of_a_reboot_it_is_little_more() -> None:
    """The clock of the boot before is remembered as well."""
    row = hour(0.0)
    state = NodeState.from_bytes(row.closing_state).copy()
    boot, offset, last = str(uuid.uuid5(uuid.NAMESPACE_OID, "before")), BOOTED_MS - 123_456_789, FIRST_MS - 7_013
    sync = (last - 13_012, last - 13_012 - offset + 23)
    one = (boot, offset, (), (), sync, None, -1, last - offset, offset - 7, 0, None, last, offset, None)
    state.others = {boot: one}
    assert NodeState.from_bytes(state.to_bytes()).others == state.others
    row.closing_state = state.to_bytes()
    assert len(compress(row.to_bytes())) <= 600


def _interval(rng: Random, slot: int, noise: float) -> facts.Interval:
    ts = FIRST_MS + slot * 15_000 + 7_500 + rng.randrange(-20, 20)
    gpus = []
    for i in range(8):
        more: dict[str, Any] = {"uuid": UUIDS[i], "recovery_action": 0}
        if rng.random() < noise:
            more |= {"throttle_time": {"hw_thermal": rng.randrange(1500, 15_000)}, "sm_clock": 990}
        gpus.append(facts.gpu(i, **more))
    ports = tuple(facts.port(i, guid_hash=PORTS[i], near=(gpus[i].pci_bus_id,)) for i in range(8))
    since = ts - BOOTED_MS
    return facts.Interval(ts=ts, mono=since, boottime=since, gpus=tuple(gpus), ib_ports=ports)


@pytest.mark.parametrize(("noise", "most"), [(0.0, 560), (0.5, 1_800), (1.0, 2_048)])
def test_a_node_hour_is_small(noise: float, most: int) -> None:
    """Every slot of every GPU at random holds 1,330 bytes of chance in its weights alone, and 290 of identities."""
    row = hour(noise)
    raw, packed = row.to_bytes(), pack_row(row)
    assert row.closing_state
    assert len(packed) <= most
    assert len(packed) <= len(compress(raw))
    assert decompress(packed) == raw
    again = HourRow.from_bytes(raw)
    assert again.to_bytes() == raw
    assert read_rollups(raw) == row.rollups()


def test_the_same_row_is_packed_alike_whatever_was_packed_before() -> None:
    noisy, calm = hour(1.0), hour(0.0)
    packed = pack_row(noisy)
    assert (pack_row(calm), pack_row(noisy)) == (compress(calm.to_bytes()), packed)
