"""Which GPUs a sample shows, and in which place each device stands (fold.md 15, 16, 23, 24)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.domain.facts import Gpu
from fleet.domain.state import ABSENT, BLIND, GOOD, LOST, NEVER, Place

if TYPE_CHECKING:
    from fleet.domain.placement import Item
    from fleet.domain.work import Work

STANDING_MS = 600_000  # a standing absence is pending this long (fold.md 24)

#: Per place: its class in this sample, the cause of unknown, NVML's reading.
Reading = tuple[Place, int, str, Gpu | None]


def read(work: Work, item: Item, clock: str) -> list[Reading]:
    """One reading per place, after devices were given their places. `clock` is `CLOCK` when it has no slot."""
    state = work.state
    assert state is not None
    gpus = item.interval.gpus
    nvml_ok = work.nvml == "ok"
    if not clock and nvml_ok and gpus:
        _settle(work, gpus)
    elif work.context.gpus is not None:
        _declare(work, work.context.gpus)
    if clock:
        return [(place, BLIND, clock, None) for place in state.places]
    listed = {gpu.uuid: gpu for gpu in gpus} if nvml_ok else {}
    pci = item.interval.pci or {}
    return [_read(work, item, place, listed, nvml_ok, pci) for place in state.places]


def is_elsewhere(place: Place) -> bool:
    """Whether a device was assigned to the place that this node has not shown: it has a bus id and no device here."""
    return not place.uuid and bool(place.bus)


def _read(work: Work, item: Item, place: Place, listed: dict[str, Gpu], nvml_ok: bool, pci: object) -> Reading:
    gpu = listed.get(place.uuid) if place.uuid else None
    if gpu is not None:
        place.bus = gpu.pci_bus_id or place.bus
        return place, GOOD, "", gpu
    missing = place.find("GPU_MISSING")
    if not place.uuid:
        if is_elsewhere(place):
            return place, BLIND, "NOT_SEEN", None
        if nvml_ok and listed:
            return place, NEVER, "", None
        return place, BLIND, "NVML_BLIND" if nvml_ok else _cause(work), None
    function = pci.get(place.bus) if isinstance(pci, dict) and place.bus else None
    if function in ("dead", "absent"):
        return place, LOST, "", None
    if nvml_ok and missing is not None and missing.confirmed:
        return place, LOST, "", None
    if not nvml_ok:
        return place, BLIND, _cause(work), None
    if not listed and missing is None:
        return place, BLIND, "NVML_BLIND", None
    if listed and any("missing" in work.reason(c.code).needs for c in place.conditions):
        return place, LOST, "", None
    if missing is not None and item.ms - missing.since > STANDING_MS:
        return place, BLIND, "UNBOUND", None
    return place, ABSENT, "", None


def _cause(work: Work) -> str:
    return cause_of(work.nvml)


def cause_of(nvml: str) -> str:
    """The cause of unknown where NVML's source has this status.

    >>> cause_of("ok"), cause_of("timeout")
    ('NVML_BLIND', 'NVML_TIMEOUT')
    """
    status = "BLIND" if nvml == "ok" else nvml.upper()
    return f"NVML_{status}" if status in ("ABSENT", "ERROR", "TIMEOUT", "BLIND", "LOST") else "NVML_ERROR"


def _declare(work: Work, count: int) -> None:
    """Make the declared places exist."""
    state = work.state
    assert state is not None
    while len(state.places) < count:
        _add(work, Place())


def _add(work: Work, place: Place) -> None:
    state = work.state
    assert state is not None
    state.places.append(place)


def _settle(work: Work, gpus: object) -> None:
    """Give new devices their places: the missing place of their bus id, else the lowest missing; never a surplus."""
    state = work.state
    assert state is not None
    listed: list[Gpu] = list(gpus)  # type: ignore[call-overload]
    known = {place.uuid for place in state.places}
    declared = work.context.gpus
    if declared is not None:
        _declare(work, declared)
    new = sorted((gpu for gpu in listed if gpu.uuid not in known), key=lambda gpu: (gpu.pci_bus_id or "", gpu.uuid))
    if not new:
        return
    here = {gpu.uuid for gpu in listed}
    for gpu in new:
        if gpu.uuid in known:
            continue  # listed twice
        known.add(gpu.uuid)
        free = [p for p in state.places if p.uuid not in here]
        same = [p for p in free if (p.uuid or is_elsewhere(p)) and p.bus == (gpu.pci_bus_id or "")]
        if same or free:
            place = (same or free)[0]
        elif declared is None:
            place = Place()
            _add(work, place)
        else:
            continue
        if place.uuid or is_elsewhere(place):
            place.has_action = False
            place.width, place.links = 0, -1
            place.ecc = gpu.ecc_uncorrected or 0
            for condition in place.conditions:
                condition.old = True  # a replacement ends what a new boot would end
        elif not place.ecc:
            place.ecc = gpu.ecc_uncorrected or 0
        place.uuid, place.bus = gpu.uuid, gpu.pci_bus_id or ""
        here.add(gpu.uuid)
