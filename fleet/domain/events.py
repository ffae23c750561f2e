"""What a kernel event does to the GPUs of its node, at its own instant (fold.md 6, 11, 13, 14)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleet.domain import conditions as cond
from fleet.domain.conditions import SLICES, sliced
from fleet.domain.presence import is_elsewhere
from fleet.domain.rules import Reason
from fleet.domain.slots import SLOT_MS
from fleet.domain.state import BLIND, Place, Subject

if TYPE_CHECKING:
    from fleet.domain.placement import Item
    from fleet.domain.work import Work

ADMIN_KINDS = ("driver_unload", "driver_unbind", "gpu_reset", "shutdown")
MOST_CODE = 99_999  # no Xid is near it: a greater number is shown as unknown without it
SYMPTOM_MS = 180_000  # a 74 this long after its cause is a symptom (review of the weights)


def apply(work: Work, item: Item) -> None:
    """Apply one event. Unknown kinds and events of devices that have no place change nothing."""
    state = work.state
    assert state is not None
    event: Any = item.event
    at = item.ms
    batch_boot = item.batch.boot_id or ""
    boot = getattr(event, "boot_id", None) or batch_boot
    is_read_late = boot != batch_boot and state.boot_id == batch_boot
    if boot and state.boot_id and boot != state.boot_id and (item.boot_ms < state.boot_at or is_read_late):
        return  # of a boot that a later one has already ended, whatever its own clock said
    work.booted_ms = item.boot_ms if boot and boot != state.boot_id else 0
    kind = getattr(event, "kind", None) or "xid"
    bus = event.pci_bus_id or ""
    if kind in ADMIN_KINDS:
        state.admin.append((bus, at))
    if kind in ("driver_load", "driver_unload"):
        state.reload = True
        return
    if kind == "sxid":
        if event.code is not None:
            _sxid(work, at, event.code, event)
        return
    targets = [(i, p) for i, p in enumerate(state.places) if (not bus or p.bus == bus) and not is_elsewhere(p)]
    if kind == "gpu_reset":
        for index, place in targets:
            _end(work, index, place, at, "reset")
        return
    if not bus:
        return
    if kind == "xid":
        code = event.code
        for index, place in targets:
            for c in tuple(place.conditions):
                cond.lapse(work, f"g{index}", place, c, at)
            if code == 154:
                _recovery_line(work, index, place, at, getattr(event, "action", None))
            elif code is not None:
                _xid(work, index, place, at, code, event)
    elif kind == "bus_lost":
        for index, place in targets:
            _xid(work, index, place, at, 79, event)


def _end(work: Work, index: int, place: Place, at: int, how: str) -> None:
    state = work.state
    assert state is not None
    for condition in tuple(place.conditions):
        reason = work.reason(condition.code)
        ends = reason.ended_by(place.has_action)
        # a line of Xid 154 is the driver's word even where NVML has none
        if (how in ends or (how == "action_none" and how in reason.ends)) and condition.since <= at:
            cond.ended_by_event(work, f"g{index}", place, condition, at, state.open_slot)


def _recovery_line(work: Work, index: int, place: Place, at: int, action: int | None) -> None:
    """Xid 154: NVML's recovery action as the kernel log says it (fold.md 29)."""
    state = work.state
    assert state is not None
    if action == 0:
        _end(work, index, place, at, "action_none")
        return
    code = {1: "RECOVERY_REQUIRED", 2: "RECOVERY_REQUIRED", 3: "RECOVERY_DRAIN"}.get(action or 0)
    if action is not None:  # the driver asks for another one now
        for c in [c for c in place.conditions if c.code.startswith("RECOVERY_") and c.code != code]:
            cond.ended_by_event(work, f"g{index}", place, c, at, state.open_slot)
    if action in (1, 2):
        carried = False
        for c in place.conditions:
            reason = work.reason(c.code)
            if not c.confirmed and "action" in reason.needs:
                cond.confirm(place, c, at, at // SLOT_MS + 1, state.open_slot)
                carried = True
            elif c.confirmed and "reset" in reason.ends and not c.code.startswith("RECOVERY_"):
                carried = carried or c.weight == 0
        if carried:
            return
    if code is None:
        _note(work, index, place, "RECOVERY_OTHER", at)
    elif place.find(code) is None:
        cond.start(work, place, code, at, work.reason(code).weight, True, True)


def _note(work: Work, index: int, place: Place, code: str, at: int) -> None:
    _show(work, f"g{index}", place, code, at)


def _show(work: Work, key: str, subject: Subject, code: str, at: int) -> None:
    """Show a reason in its slot; one that asks for a review opens one."""
    slot = at // SLOT_MS
    segment = (code, "N", slot, slot + 1, 100)
    if segment not in subject.segments:
        subject.segments.append(segment)
        if work.reason(code).review:
            work.report("review", key, code, at, at, at, 100)


def _sxid(work: Work, at: int, code: int, event: Any) -> None:
    """An NVSwitch event: a fatal one is pending on every GPU, as its line names the switch; the rest are the node's."""
    state = work.state
    assert state is not None
    reason = work.rules.sxid(code, getattr(event, "severity", None)) or work.reason("SXID_UNKNOWN")
    if not reason.lowers:
        _show(work, "n", state.node, reason.code, at)
        return
    for place in state.places:
        if not is_elsewhere(place):
            _condition(work, place, reason, at, ())


def _xid(work: Work, index: int, place: Place, at: int, code: int, event: Any) -> None:
    state = work.state
    assert state is not None
    reason = work.rules.xid(code, getattr(event, "severity", None))
    if reason is None:
        _note(work, index, place, f"XID_{code}" if code <= MOST_CODE else "XID_UNKNOWN", at)
        return
    if reason.lasts == "hidden":
        return
    if "missing" in reason.needs and "enumerates" in reason.ends and _admin(work, place, at):
        return  # the owner's own act: party none
    if "links" in reason.needs and follows(work, place, at):
        _note(work, index, place, reason.code, at)
        return  # a symptom of a peer's loss, a reset or an act of the owner
    for c in place.conditions:
        if not c.confirmed and f"xid:{code}" in work.reason(c.code).needs:
            cond.confirm(place, c, at, at // SLOT_MS + 1, state.open_slot)
    if not reason.lowers:
        _note(work, index, place, reason.code, at)
        return
    parts = _parts(event)
    if reason.own_slot:
        _own_slot(work, index, place, work.reason(reason.own_slot), at, parts, report=False)
    if reason.lasts == "slot":
        _own_slot(work, index, place, reason, at, parts, report=True)
    elif reason.lasts == "condition":
        _condition(work, place, reason, at, parts)
    elif reason.lasts == "note":
        _note(work, index, place, reason.code, at)


def _admin(work: Work, place: Place, at: int) -> bool:
    state = work.state
    assert state is not None
    return any((not bus or bus == place.bus) and 0 <= at - ms <= cond.ADMIN_MS for bus, ms in state.admin)


def follows(work: Work, place: Place, at: int) -> bool:
    """Whether a peer's Xid 79, a reset or a driver's or owner's act came within three minutes before."""
    state = work.state
    assert state is not None
    if any(0 <= at - ms <= SYMPTOM_MS for _, ms in state.admin):
        return True
    lost = (c for p in state.places if p is not place for c in p.conditions if c.code == "XID_79")
    return any(0 <= at - c.since <= SYMPTOM_MS for c in lost)


def _parts(event: Any) -> tuple[tuple[str, int], ...]:
    instance = getattr(event, "instance", None)
    if instance is None:
        return ()
    slices = getattr(event, "slices", None)
    return ((str(instance), min(SLICES, 1 if slices is None else slices)),)


def _own_slot(
    work: Work, index: int, place: Place, reason: Reason, at: int, parts: tuple[tuple[str, int], ...], *, report: bool
) -> None:
    slot = at // SLOT_MS
    if not reason.lowers:
        _note(work, index, place, reason.code, at)
        return
    mine = [s for s in place.segments if s[0] == reason.code and s[2] == slot]
    if parts:  # instances of one slot add up: each is remembered by its own segment
        known = {s[1][1:]: s[4] for s in mine if s[1][0] == "I"} | dict(parts)
        parts = tuple(sorted(known.items()))
        place.segments = [s for s in place.segments if s not in mine or s[1] == "O"]
        place.segments += [(reason.code, f"I{name}", slot, slot + 1, slices) for name, slices in parts]
    weight = sliced(reason.weight, parts)
    before = [s for s in mine if s[1] == "O"]
    if any(s[4] <= weight for s in before):
        return
    place.segments = [s for s in place.segments if s not in before]
    place.segments.append((reason.code, "O", slot, slot + 1, weight))
    if report and not before:
        work.report("opened", f"g{index}", reason.code, at, at, at, weight)
        work.report("closed", f"g{index}", reason.code, at, at, at, weight)


def _condition(work: Work, place: Place, reason: Reason, at: int, parts: tuple[tuple[str, int], ...]) -> None:
    state = work.state
    assert state is not None
    c = place.find(reason.code)
    if c is None:
        weight = sliced(reason.weight, parts)
        c = cond.start(work, place, reason.code, at, weight, not reason.needs, True)
        c.parts = parts
        if (
            not c.confirmed
            and place.kind != BLIND
            and place.find("GPU_MISSING") is not None
            and "missing" in reason.needs
        ):
            missing = place.find("GPU_MISSING")
            if missing is not None and missing.confirmed:
                cond.confirm(place, c, at, at // SLOT_MS + 1, state.open_slot)
        return
    c.powered = 0
    if c.confirmed and c.since < work.booted_ms <= at:
        cond.again(work, place, c, at)
    if not c.confirmed:  # its ten minutes begin anew
        cond.pend(place, c, state.open_slot, at // SLOT_MS + 1)
        c.since = at
    if c.parts:
        c.parts = tuple(sorted({**dict(c.parts), **dict(parts)}.items())) if parts else ()
        weight = sliced(reason.weight, c.parts)
        if weight != c.weight and c.confirmed and c.since != at:
            c.last = max(c.last, at) if c.run_from >= 0 else c.last
            cond.freeze(place, c)
            c.run_from = c.last = at
            c.stance = "E"
        c.weight = weight
