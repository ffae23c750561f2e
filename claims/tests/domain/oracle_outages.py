"""The second implementation, second part: from slots that are down to the outages that count, in contract.md order."""

from __future__ import annotations

from fractions import Fraction

from claims.tests.domain.oracle_slots import chain


def runs(slots):
    """Consecutive slots as lists."""
    out = []
    for slot in sorted(slots):
        if out and out[-1][-1] == slot - 1:
            out[-1].append(slot)
        else:
            out.append([slot])
    return out


def in_clock(world, unit, down, reading):
    terms = world.terms
    pieces = runs(down)
    tickets = [r for r in world.case["rows"] if r["kind"] == "ticket"]
    own = [r for r in tickets if r["resource"] in chain(unit["name"])]
    members = [r for r in tickets if r["resource"] in unit["members"]]

    def covers(row, slot):
        start = row["a"] if terms["clock_start"] == "ticket" else row["ack"]
        if start is None or slot < start:
            return False
        ends = terms["clock_end"] or "ticket"
        if ends == "ticket":
            return row["b"] is None or slot < row["b"]
        run = next(piece for piece in pieces if piece[0] <= slot <= piece[-1])
        return row["b"] is None or run[0] < row["b"]

    kept = set()
    if terms["clock_start"] == "measured" and terms["clock_end"] == "ticket":
        for run in pieces:
            here = set(run)
            on_it = [r for r in own + members if r["a"] <= run[-1] and (r["b"] is None or r["b"] > run[0])]
            if on_it and all(r["b"] is not None for r in on_it):
                here = {slot for slot in run if any(slot < r["b"] for r in on_it)}
            kept |= here
        down = set()
    for slot in down:
        if (
            terms["clock_start"] == "measured"
            or any(covers(row, slot) for row in own)
            or any(
                covers(row, slot) and world.member_state(row["resource"], unit, slot, reading) == "down"
                for row in members
            )
        ):
            kept.add(slot)
    if terms["stop_clock"]:
        for row in own + members:
            for a, b in row["pauses"]:
                kept -= set(range(a, b))
    return kept


def long_enough(terms, count):
    seconds = count * 15
    return (
        seconds > terms["min_duration_s"]
        if terms["min_duration_compare"] == ">"
        else seconds >= terms["min_duration_s"]
    )


def outages(world, unit, within, reading, entitled, excluded):
    """Lists of counted slots, one per outage."""
    terms = world.terms
    down = {
        slot
        for slot in range(world.lo, world.hi)
        if slot in entitled and slot not in excluded and world.unit_state(unit, slot, reading) == "down"
    }
    kept = in_clock(world, unit, down, reading)
    if terms["minute_rule"] == "clock_minute":
        kept = {slot for slot in kept if all(slot // 4 * 4 + i in kept for i in range(4))}
    joined = []
    for run in runs(kept):
        if joined:
            gap = range(joined[-1][-1] + 1, run[0])
            if len(gap) * 15 <= terms["bridging_s"] and all(slot in entitled for slot in gap):
                joined[-1] += run
                continue
        joined.append(run)
    inside = range(world.first, world.end)
    if terms["min_duration_test"] == "clipped":
        pieces = []
        for run in joined:
            for test in (lambda s: s < world.first, lambda s: s in inside, lambda s: s >= world.end):
                piece = [slot for slot in run if test(slot)]
                if piece:
                    pieces.append(piece)
        joined = pieces
    joined = [run for run in joined if long_enough(terms, len(run))]
    if terms["kind"] in ("outage_table", "repair_time"):
        whole = runs(down)
        number = {slot: index for index, run in enumerate(whole) for slot in run}
        groups = []
        for run in joined:
            if groups and number[groups[-1][-1]] == number[run[0]]:
                groups[-1] = groups[-1] + run
            else:
                groups.append(run)
        joined = [run for run in groups if run[0] in inside]
    else:
        joined = [[slot for slot in run if slot in inside] for run in joined]
    if terms["minute_rule"] == "elapsed_floor":
        joined = [run[: len(run) // 4 * 4] for run in joined]
    return [run for run in joined if run]


def weighted_loss(world, unit, reading, entitled, excluded):
    lost = Fraction(0)
    touched = {}
    for slot in range(world.lo, world.hi):
        if slot not in entitled or slot in excluded:
            continue
        weights, unknown = [], False
        for name in chain(unit["name"]):
            looked_at = name in world.flat or name == unit["name"]
            if world.reach and world.terms["scope"] in ("gpu", "node") and "/" not in name:
                looked_at = True
            if looked_at:
                weights += world.counted(name, slot, reading)[0]
        unknown = world.own_state(unit, slot, "nominal") == "unknown"
        if reading == "upper" and unknown:
            weights.append(0)
        if weights:
            touched[slot] = min(weights)
    for slot in in_clock(world, unit, set(touched), reading):
        if world.first <= slot < world.end:
            lost += Fraction(100 - touched[slot], 100)
    return lost
