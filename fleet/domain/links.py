"""PCIe lanes and NVLinks by what samples show (review of the weights).

The lanes are compared with the most that the device had in its place, under load only: an idle link may narrow. The
links are compared with the product's number, else with the most that were active. No link on any GPU is the switches'
service, not the GPUs. Under MIG links are off by design. Links that an open Xid 74 tells of, or that a reset, a reload
or a peer's loss took down within three minutes before, are no reason of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.domain import conditions as cond
from fleet.domain import events
from fleet.domain.skus import sku

if TYPE_CHECKING:
    from fleet.domain.facts import Gpu, Interval
    from fleet.domain.placement import Item
    from fleet.domain.state import Place
    from fleet.domain.work import Stretch, Work

LOAD_PERCENT = 10  # a GPU above this utilisation works: its lanes are all in use
WIDTH, INACTIVE, FABRIC = "PCIE_WIDTH", "NVLINK_INACTIVE", "NVLINK_FABRIC"


def learn(place: Place, gpu: Gpu) -> None:
    """Remember the most lanes and the fewest inactive links of the place's device."""
    width, links = gpu.pcie_width, gpu.nvlink_inactive
    if width is not None and width > place.width:
        place.width = width
    if links is not None and not gpu.mig_mode and (place.links < 0 or links < place.links):
        place.links = links


def missing(place: Place, gpu: Gpu) -> int:
    """How many links are inactive that should not be."""
    inactive = gpu.nvlink_inactive
    if not inactive or gpu.mig_mode:
        return 0
    return inactive if sku(gpu.name).links else max(0, inactive - max(0, place.links))


def meaning(work: Work, place: Place, gpu: Gpu, item: Item) -> tuple[object, ...]:
    """What of inactive links can matter to `take`, for two samples to be compared by."""
    return gpu.nvlink_inactive, gpu.mig_mode, events.follows(work, place, item.ms), _none_anywhere(item.interval)


def take(work: Work, key: str, place: Place, gpu: Gpu, stretch: Stretch, item: Item, change: cond.Change) -> None:
    """Lanes and links of a listed GPU that is no vGPU."""
    learn(place, gpu)
    ms = item.ms
    width, is_loaded = gpu.pcie_width, (gpu.gpu_utilization or 0) > LOAD_PERCENT
    if width is not None and sku(gpu.name).has_pcie:
        narrow = width < place.width
        if narrow and is_loaded:
            change.gap_unknown |= cond.shown(work, key, place, WIDTH, stretch, ms)
        else:
            over = place.find(WIDTH)
            if over is not None and narrow and over.confirmed:
                cond.possible(work, key, place, over, stretch, ms)  # an idle link may be narrow
            else:
                change.gap_unknown |= cond.not_shown(work, key, place, WIDTH, stretch, ms)
    if gpu.nvlink_inactive is not None:
        code = ""
        if missing(place, gpu) and place.find("XID_74") is None and not events.follows(work, place, ms):
            code = FABRIC if _none_anywhere(item.interval) else INACTIVE
        for other in (INACTIVE, FABRIC):
            if other != code:
                change.gap_unknown |= cond.not_shown(work, key, place, other, stretch, ms)
        if code == FABRIC and (not work.context.owns_driver or place.links):
            slot = ms // 15_000
            place.segments.append((FABRIC, "N", slot, slot + 1, 100))
        elif code:
            change.gap_unknown |= cond.shown(work, key, place, code, stretch, ms)


def _none_anywhere(interval: Interval) -> bool:
    """Whether no link of any GPU is active: each has as many inactive ones as its product has, else as the others."""
    counts = {gpu.nvlink_inactive or 0 for gpu in interval.gpus}
    links = sku(interval.gpus[0].name).links
    return len(counts) == 1 and min(counts) >= max(1, links)
