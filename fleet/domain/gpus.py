"""What a sample says of a GPU: listed by NVML or not (fold.md 7, 11, 12, 15, 24, 28, 29)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.domain import conditions as cond
from fleet.domain import links, throttle
from fleet.domain.skus import sku
from fleet.domain.slots import SLOT_MS
from fleet.domain.state import ABSENT, BLIND, GOOD, LOST, NEVER, Condition, Place

if TYPE_CHECKING:
    from fleet.domain.facts import Gpu
    from fleet.domain.placement import Item
    from fleet.domain.work import Stretch, Work

POWERED_SAMPLES = 20  # under power without a new event ends a condition on old drivers (fold.md 12)
ENUMERATED_SAMPLES = 2  # samples that enumerate the device refute an Xid 79 (fold.md 11)
LINKS_WEIGHT = 50  # of a 74 with inactive links and no recovery action (review of the weights)
BROKEN_SAMPLES = 2  # samples with NVML errors corroborate Xid 119 and 120 (review of the weights)


def good(work: Work, key: str, place: Place, gpu: Gpu, stretch: Stretch, item: Item, change: cond.Change) -> None:
    """Take a listed GPU's reading."""
    ms, slot = item.ms, item.ms // SLOT_MS
    action = gpu.recovery_action
    if action is not None:
        place.has_action = True
    elif place.has_action and (not stretch.same_boot or work.reloaded or place.cause == "NVML_ABSENT"):
        place.has_action = False  # another driver: the kernel log shows the end now (fold.md 7)
    under_power = powered(gpu)
    seen: set[str] = set()
    if place.conditions:
        # the driver's own word first: it tells of an incident only while no other reason is open (fold.md 11)
        for c in sorted(place.conditions, key=lambda c: not c.code.startswith("RECOVERY_")):
            seen.add(c.code)
            if _listed(work, key, place, gpu, c, action, under_power, stretch, item):
                change.gap_unknown = True
    if action:
        code = {1: "RECOVERY_REQUIRED", 2: "RECOVERY_REQUIRED", 3: "RECOVERY_DRAIN"}.get(action)
        if code is None:
            if not any(s[0] == "RECOVERY_OTHER" for s in place.segments):
                work.report("review", key, "RECOVERY_OTHER", ms, ms, ms, 100)
            place.segments.append(("RECOVERY_OTHER", "N", slot, slot + 1, 100))
        elif place.find(code) is None:
            c = cond.start(work, place, code, ms, work.reason(code).weight, True, False)
            if under_power:
                cond.contested(work, key, place, c, stretch, ms)
            elif cond.bad(work, key, place, c, stretch, ms, False, False):
                change.gap_unknown = True
    if sku(gpu.name).is_vgpu:
        return  # presence and Xid only: the rest is the host's to see
    throttle.take(work, key, place, gpu, stretch, item, seen, change)
    if place.width != gpu.pcie_width or gpu.nvlink_inactive or place.links != 0 or place.conditions:
        links.take(work, key, place, gpu, stretch, item, change)
    remap = gpu.row_remap
    if remap is not None and remap.failed:
        place.segments.append(("RMA_DUE", "N", slot, slot + 1, 100))
    errors = gpu.ecc_uncorrected or 0
    if errors != place.ecc:
        if errors > place.ecc and not work.kmsg_ok:
            own = work.reason("ECC_UNCORRECTED")
            place.segments.append((own.code, "O", slot, slot + 1, own.weight if own.lowers else 100))
            for kind in ("opened", "closed") if own.lowers else ():
                work.report(kind, key, own.code, ms, ms, ms, own.weight)
        place.ecc = errors


def powered(gpu: Gpu) -> bool:
    """Whether the GPU works: utilisation over 10 % and power over half its limit (fold.md 12)."""
    power, limit = gpu.power, gpu.power_limit
    return bool((gpu.gpu_utilization or 0) > 10 and power is not None and limit is not None and power * 2 > limit)


def _listed(
    work: Work, key: str, place: Place, gpu: Gpu, c: Condition, action: int | None, under_power: bool,
    stretch: Stretch, item: Item,
) -> bool:  # fmt: skip
    """Judge one open condition on a listed GPU; returns whether the gap before the sample is unknown."""
    ms = item.ms
    reason = work.reason(c.code)
    if reason.lasts in ("share", "sample"):
        return False
    ends = reason.ended_by(place.has_action)
    if "enumerates" in ends:
        if c.old or c.code == "GPU_MISSING":
            return cond.ended_by_sample(work, key, place, c, stretch, ms)
        c.seen += not work.again
        if c.seen >= ENUMERATED_SAMPLES:
            cond.ended_by_sample(work, key, place, c, stretch, ms)
        elif c.confirmed:
            cond.contested(work, key, place, c, stretch, ms)
        else:
            cond.pending(place, c, stretch, ms)
        return False
    if c.old and "boot" in ends and not (c.code.startswith("RECOVERY_") and action):
        return cond.ended_by_sample(work, key, place, c, stretch, ms)
    if not c.confirmed:
        return _unconfirmed(work, key, place, gpu, c, action, under_power, stretch, ms)
    if action == 0 and "action_none" in ends:
        return cond.ended_by_sample(work, key, place, c, stretch, ms)
    if c.code == "RECOVERY_REQUIRED" and action is not None and action not in (1, 2):
        return cond.ended_by_sample(work, key, place, c, stretch, ms)
    if c.code == "RECOVERY_DRAIN" and action is not None and action != 3:
        return cond.ended_by_sample(work, key, place, c, stretch, ms)
    if under_power and reason.lowers:
        c.powered += not work.again
        if c.powered >= POWERED_SAMPLES and not place.has_action and "powered" in ends:
            return cond.ended_by_sample(work, key, place, c, stretch, ms)
        cond.contested(work, key, place, c, stretch, ms)
    elif action is not None or (work.kmsg_ok and not place.has_action):
        return cond.bad(work, key, place, c, stretch, ms, False, c.stance == "E")
    else:
        cond.possible(work, key, place, c, stretch, ms)
    return False


def _unconfirmed(
    work: Work, key: str, place: Place, gpu: Gpu, c: Condition, action: int | None, under_power: bool,
    stretch: Stretch, ms: int,
) -> bool:  # fmt: skip
    if cond.lapse(work, key, place, c, ms):
        return False
    needs = work.reason(c.code).needs
    slot = ms // SLOT_MS
    confirmed = "action" in needs and action in (1, 2)
    inactive = "links" in needs and links.missing(place, gpu) > 0
    confirmed, half = confirmed or inactive, inactive and not confirmed
    if not confirmed and "clocks" in needs and gpu.sm_clock and gpu.sm_clock_max and gpu.gpu_utilization:
        confirmed = gpu.sm_clock * 2 <= gpu.sm_clock_max
    if confirmed:
        cond.confirm(place, c, ms, slot, stretch.first)
        if half:
            c.weight = max(c.weight, LINKS_WEIGHT)
        if under_power:
            cond.contested(work, key, place, c, stretch, ms)
        else:
            cond.bad(work, key, place, c, stretch, ms, False, True)
        return False
    if action == 0 and "action" in needs:
        return cond.ended_by_sample(work, key, place, c, stretch, ms)
    lapse = c.since + cond.LAPSE_MS
    if ms >= lapse and (work.kmsg_ok or action is not None):
        cond.pend(place, c, stretch.first, lapse // SLOT_MS + 1)
        cond.close(work, key, place, c, lapse)
        return False
    cond.pending(place, c, stretch, ms)
    return False


def not_listed(
    work: Work, key: str, place: Place, kind: int, cause: str, stretch: Stretch, item: Item, change: cond.Change
) -> None:
    """Take the reading of a GPU that NVML does not list or could not be asked about."""
    ms = item.ms
    missing = place.find("GPU_MISSING")
    fresh = None
    if missing is None and kind in (LOST, ABSENT, NEVER):
        fresh = missing = cond.start(work, place, "GPU_MISSING", ms, work.reason("GPU_MISSING").weight, False, False)
    for c in sorted(place.conditions, key=lambda c: c.code == "GPU_MISSING"):
        reason = work.reason(c.code)
        if c is missing:
            if kind == LOST:
                if not c.confirmed:
                    cond.confirm(place, c, ms, ms // SLOT_MS, stretch.first)
                    c.run_from = -1
                    if cond.bad(work, key, place, c, stretch, ms, True, False) and c is fresh:
                        change.gap_unknown = True
                else:
                    cond.bad(work, key, place, c, stretch, ms, True, True)
            elif c.confirmed and cause == "CLOCK" and work.nvml == "ok" and not _named(place, item):
                cond.bad(work, key, place, c, stretch, ms, True, True)
            elif c.confirmed and cond.is_behind_boot(c, item):
                cond.carried(work, key, place, c, stretch, ms)
            elif c.confirmed:
                cond.possible(work, key, place, c, stretch, ms)
            elif kind == NEVER or ms - c.since <= cond.LAPSE_MS:
                cond.pending(place, c, stretch, ms)
            else:
                if c.stance != "U":
                    cond.pend(place, c, stretch.first, (c.since + cond.LAPSE_MS) // SLOT_MS + 1)
                c.stance = "U"
        elif reason.lasts in ("share", "sample"):
            if not (work.several and place.kind == GOOD):  # else another installation has just read it
                cond.freeze(place, c)
                cond.close(work, key, place, c, ms)
        elif c.confirmed:
            if c.stance == "K" and kind == BLIND and cond.read_elsewhere(work, c, stretch):
                continue  # another installation has just read that it works
            if kind in (LOST, ABSENT, NEVER):
                cond.bad(work, key, place, c, stretch, ms, True, c.stance == "E")
            elif "boot" in reason.ended_by(place.has_action) and cond.is_behind_boot(c, item):
                cond.carried(work, key, place, c, stretch, ms)
            elif cause == "CLOCK" and (gpu := _named(place, item)) is not None and gpu.recovery_action:
                cond.bad(work, key, place, c, stretch, ms, False, c.stance == "E")
            elif c.code.startswith("RECOVERY_") or place.has_action or not work.kmsg_ok:
                cond.possible(work, key, place, c, stretch, ms)
            else:
                cond.bad(work, key, place, c, stretch, ms, False, c.stance == "E")
        else:
            _unlisted_pending(work, key, place, c, kind, cause, stretch, ms)


def _named(place: Place, item: Item) -> Gpu | None:
    """What a sample that has no slot of its own read of this GPU all the same (fold.md 7)."""
    return next((gpu for gpu in item.interval.gpus if gpu.uuid == place.uuid), None)


def _unlisted_pending(
    work: Work, key: str, place: Place, c: Condition, kind: int, cause: str, stretch: Stretch, ms: int
) -> None:
    needs = work.reason(c.code).needs
    if kind == BLIND and cause in ("NVML_ERROR", "NVML_TIMEOUT", "NVML_LOST") and "nvml_errors" in needs:
        # of several installations all must meet it: one that reads the GPU well denies the error
        c.seen += not work.several or (work.shared and place.kind == BLIND)
    if (kind == LOST and "missing" in needs) or ("nvml_errors" in needs and c.seen >= BROKEN_SAMPLES):
        cond.confirm(place, c, ms, ms // SLOT_MS, stretch.first)
        cond.bad(work, key, place, c, stretch, ms, True, True)
        return
    lapse = c.since + cond.LAPSE_MS
    if ms >= lapse and kind != BLIND and work.kmsg_ok:
        cond.pend(place, c, stretch.first, lapse // SLOT_MS + 1)
        cond.close(work, key, place, c, lapse)
        return
    cond.pending(place, c, stretch, ms)
