"""The quick way of a sample: what was healthy is healthy, what was steadily bad is as bad.

It changes nothing but times, so it gives what the long way would give; a test compares both. A subject is calm when
nothing but health is known of it; a place is steady when two samples in a row meant the same and its slot's verdict
was the same, so that a third one like them can only go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from fleet.domain import conditions as cond
from fleet.domain import gpus as gpus_of
from fleet.domain import links as links_of
from fleet.domain import throttle
from fleet.domain.context import touches
from fleet.domain.facts import Gpu, Interval
from fleet.domain.links import LOAD_PERCENT
from fleet.domain.ports import FLAPS, LEARNED_MS, key_of, only_virtual
from fleet.domain.slots import SLOT_MS, VOUCH_MS
from fleet.domain.state import GOOD, LOST, NEVER, Condition, NodeState, Place
from fleet.domain.verdicts import HEALTHY, Verdict

if TYPE_CHECKING:
    from fleet.domain.placement import Item
    from fleet.domain.work import Stretch, Work

ALL_OK = ("ok", "ok", "ok")
_KEYS = tuple(f"g{index}" for index in range(4096))  # a place never seen again stays, so there may be more than 64


def sources_of(interval: Interval) -> tuple[str, str, str]:
    """(nvml, ib, kmsg) as the sample says; a source that it does not name is taken from what it carries."""
    sources = interval.sources
    if sources is None:
        return ALL_OK
    nvml = sources.get("nvml") or ("ok" if interval.gpus else "absent")
    ib = sources.get("ib") or ("ok" if interval.ib_ports else "absent")
    return nvml, ib, sources.get("kmsg") or "absent"


class Steady(NamedTuple):
    """What a place's last samples meant, the verdict of its last closed slot, its open slot's segments."""

    meaning: tuple[Any, ...]
    verdict: Verdict
    template: tuple[tuple[str, str, int], ...]
    sure: bool


@dataclass(slots=True)
class Calm:
    """What the quick way compares samples with; made anew after every long way. `good` False: not to be gone."""

    good: bool = False
    places: list[tuple[str, str, bool, int, bool, int | None, int | None]] = field(default_factory=list)
    ports: list[tuple[str | None, str, tuple[str, ...]]] = field(default_factory=list)
    until_ms: int = 0  # a port is learned then


def calm_of(state: NodeState) -> Calm:
    """The comparison for this state."""
    node = state.node
    nvml, ib, _ = state.sources
    if node.kind or node.segments or node.slot_cause or len(state.agents) != 1:
        return Calm()
    if nvml != "ok" or (ib != "ok" and state.ports):
        return Calm()
    until = 1 << 62
    ports = []
    for port in state.ports:
        if port.busy or (not port.expected and not port.active_ms):
            return Calm()
        if not port.expected:
            until = min(until, port.active_ms + LEARNED_MS)
        ports.append((None if "/" in port.key else port.key, port.key, port.near))
    places = [_calm_place(p) for p in state.places]
    return Calm(True, places, ports, until)


def _calm_place(p: Place) -> tuple[str, str, bool, int, bool, int | None, int | None]:
    return p.uuid, p.bus, p.has_action, p.ecc, p.busy, p.width or None, None if p.links < 0 else 0


def take(work: Work, item: Item, state: NodeState, slot: int) -> bool:
    """Take the sample the quick way; False when it needs the long one (nothing is changed then)."""
    calm = work.calm
    if calm is None:
        calm = work.calm = calm_of(state)
    interval, batch, ms = item.interval, item.batch, item.ms
    last = state.last_ms
    if (
        not calm.good
        or ms - last > VOUCH_MS
        or (batch.boot_id is not None and batch.boot_id != state.boot_id)
        or not item.clock_ok
        or state.reload
        or item.agent not in state.agents
        or item.fit[9] != state.segment_number
        or ms >= calm.until_ms
        or (work.context.assigned and any(last < at <= ms for _, at in work.context.assigned))
    ):
        return False
    if sources_of(interval) != state.sources:
        return False
    if not _ports_calm(calm, interval.ib_ports):
        return False
    odd = _odd_places(work, calm, interval.gpus, state)
    if odd is None:
        return False
    failed = work.context.probe_failed
    probed = bool(failed) and touches(failed, state.open_slot * SLOT_MS, slot * SLOT_MS)
    if odd or work.sink.unhealthy or probed:
        _rest(work, item, state, slot, odd, probed)
    state.watermark = item[:6]
    state.last_ms = ms
    state.open_slot = slot
    if state.others or batch.boot_id is None:
        state.learn(item.fit, ms)
    else:
        state.fit = item.fit
    state.agents[item.agent] = ms
    if state.admin:
        state.admin = [a for a in state.admin if ms - a[1] <= cond.ACT_MS]
    return True


def _ports_calm(calm: Calm, listed: Any) -> bool:
    """Whether every known port is as healthy as it was and no other one is ACTIVE (a parked port is no subject)."""
    known = calm.ports
    at, count = 0, len(known)
    if len(listed) == count:
        for port, (guid, _, near) in zip(listed, known, strict=True):
            if guid is None or port.guid_hash != guid or port.state != "ACTIVE":
                break
            counters, mine = port.counters, port.near
            if (counters and counters.get(FLAPS)) or (mine and mine != near):
                break
        else:
            return True
    for port in listed:
        if at < count:
            guid, key, near = known[at]
            if port.guid_hash == guid and (guid is not None or key_of(port) == key):
                if port.state != "ACTIVE":
                    return False
                counters = port.counters
                if counters is not None and counters.get(FLAPS):
                    return False
                if port.near and port.near != near:
                    return False
                at += 1
                continue
        is_seen = port.state == "ACTIVE" and (not port.is_vf or only_virtual(listed))
        if is_seen or any(key_of(port) == key for _, key, _ in known):
            return False
    return at == count


def _odd_places(work: Work, calm: Calm, gpus: Any, state: NodeState) -> list[tuple[int, Gpu | None]] | None:
    """The places that need a look of their own (with their reading, None = missing); None for the long way."""
    odd: list[tuple[int, Gpu | None]] = []
    bad_mask, by_counter = work.rules.bad_mask, work.rules.by_counter
    at, count = 0, len(gpus)
    for index, (uuid, bus, has_action, ecc, busy, width, links) in enumerate(calm.places):
        gpu = gpus[at] if at < count else None
        if gpu is None or gpu.uuid != uuid:
            place = state.places[index]
            if place.kind not in (LOST, NEVER) or place.slot_cause or not count:
                return None
            odd.append((index, None))
            continue
        at += 1
        if gpu.pci_bus_id != bus:
            return None
        action, times, remap = gpu.recovery_action, gpu.throttle_time, gpu.row_remap
        if (
            busy
            or action
            or (action is not None) is not has_action
            or (gpu.ecc_uncorrected or 0) != ecc
            or gpu.pcie_width != width
            or gpu.nvlink_inactive != links
            or (remap is not None and remap.failed)
            or (
                (gpu.throttle_reasons or 0) & bad_mask
                if times is None
                else any(times.values()) and any(spent and name in by_counter for name, spent in times.items())
            )
        ):
            odd.append((index, gpu))
    return odd if at == count else None


def _rest(work: Work, item: Item, state: NodeState, slot: int, odd: list[tuple[int, Gpu | None]], probed: bool) -> None:
    """Judge the odd places; everything else is healthy from the open slot on, but the node while a probe fails."""
    stretch: Stretch | None = None
    sink, first = work.sink, state.open_slot
    runs, known, follows, span = sink.runs, work.steady, slot == first + 1, item.ms - state.last_ms
    for index, gpu in odd:
        place = state.places[index]
        key = _KEYS[index]
        steady = known.get(index)
        if (
            follows
            and steady is not None
            and steady.sure
            and runs[key][1] is steady.verdict
            and _means(work, item, place, gpu, span, steady.meaning)
        ):
            _go_on(place, steady, item.ms, slot)
            continue
        meaning = _meaning(work, item, place, gpu, span)
        if stretch is None:
            stretch = work.vouched_stretch(item, slot)
        kind = GOOD if gpu is not None else place.kind
        gap = work.take_gpu(key, place, kind, "", gpu, stretch, item)
        work.judge_gpu(key, place, stretch, gap, (), ())
        place.slot_cause = place.cause
        work.tidy(place, slot)
        _learn(work, index, place, meaning, sink.runs[key][1] if slot == first + 1 else None, slot)
        calm = work.calm
        if calm is not None:
            calm.places[index] = _calm_place(place)
    if probed:
        work.put_node(stretch or work.vouched_stretch(item, slot), "", ())
    if len(sink.unhealthy) > len(odd) or not all(_KEYS[index] in sink.unhealthy for index, _ in odd):
        odd_keys = [_KEYS[index] for index, _ in odd]
        for key in sink.unhealthy.difference(odd_keys):
            if key != "n" or not probed:
                sink.put(key, first, HEALTHY)


def _meaning(work: Work, item: Item, place: Place, gpu: Gpu | None, span: int) -> tuple[Any, ...]:
    """What of a reading can matter; equal meanings do the same to a steady place."""
    if gpu is None:
        return ()
    remap, works = gpu.row_remap, False
    for condition in place.conditions:
        if condition.stance != "S":  # what counters say ends otherwise
            works = gpus_of.powered(gpu)
            break
    return (
        gpu.recovery_action,
        throttle.losses(work, gpu, item, span),
        gpu.throttle_time is None,
        works,
        gpu.ecc_uncorrected,
        (gpu.pcie_width, (gpu.gpu_utilization or 0) > LOAD_PERCENT),
        links_of.meaning(work, place, gpu, item) if gpu.nvlink_inactive else gpu.nvlink_inactive,
        remap is not None and bool(remap.failed),
    )


def _means(work: Work, item: Item, place: Place, gpu: Gpu | None, span: int, meaning: tuple[Any, ...]) -> bool:
    """Whether `_meaning` would be this, compared part by part, what changes most often last."""
    if gpu is None or not meaning:
        return gpu is None and not meaning
    action, losses, no_times, works, ecc, lanes, links, failed = meaning
    remap, inactive = gpu.row_remap, gpu.nvlink_inactive
    if (
        gpu.recovery_action != action
        or (gpu.throttle_time is None) is not no_times
        or gpu.ecc_uncorrected != ecc
        or gpu.pcie_width != lanes[0]
        or ((gpu.gpu_utilization or 0) > LOAD_PERCENT) is not lanes[1]
        or (remap is not None and bool(remap.failed)) is not failed
        or (links_of.meaning(work, place, gpu, item) if inactive else inactive) != links
    ):
        return False
    for condition in place.conditions:
        if condition.stance != "S":
            if gpus_of.powered(gpu) is not works:
                return False
            break
    else:
        if works:
            return False
    return bool(throttle.losses(work, gpu, item, span) == losses)


def _go_on(place: Place, steady: Steady, ms: int, slot: int) -> None:
    template, end = steady.template, slot + 1
    if len(template) == 1:
        code, kind, weight = template[0]
        place.segments = [(code, kind, slot, end, weight)]
    else:
        place.segments = [(code, kind, slot, end, weight) for code, kind, weight in template]
    for condition in place.conditions:
        stance = condition.stance
        if stance == "S":
            condition.last = ms
        elif stance == "B":
            condition.last = ms
            condition.run_from = slot * SLOT_MS


def _lasts(work: Work, condition: Condition, start: int, never: bool) -> bool:
    """Whether another sample like the last one changes nothing in it but its times."""
    if condition.stance == "S":
        return condition.seen >= work.reason(condition.code).persistence_samples
    if condition.stance == "P":
        return never and condition.code == "GPU_MISSING"
    return condition.stance == "B" and condition.confirmed and condition.run_from == start


def _learn(work: Work, index: int, place: Place, meaning: tuple[Any, ...], verdict: Verdict | None, slot: int) -> None:
    """Remember what this sample meant; the second time in a row the place is steady."""
    start = slot * SLOT_MS
    never = place.kind == NEVER
    if (
        verdict is None
        or place.slot_cause
        or any(s[1] not in ("BONP" if never else "BON") or s[2] != slot or s[3] != slot + 1 for s in place.segments)
        or not all(_lasts(work, c, start, never) for c in place.conditions)
    ):
        work.steady.pop(index, None)
        return
    template = tuple((code, kind, weight) for code, kind, _, _, weight in place.segments)
    before = work.steady.get(index)
    same = (
        before is not None and before.meaning == meaning and before.template == template and before.verdict == verdict
    )
    work.steady[index] = Steady(meaning, before.verdict if same and before else verdict, template, same)
