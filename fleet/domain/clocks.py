"""What the fold remembers of the clocks of a node's boots: that of the newest sample's boot, and others' for a while.

Receipts of a server whose clock was set wrong can lay the hours of two boots into each other, and a machine can be put
back into an earlier boot (a virtual machine's snapshot). Each boot then goes on from its own clock.
"""

from __future__ import annotations

from typing import Any

#: Placement of a boot, see placement.py: boot_id, offset or None, live differences, sync differences, last sync,
#: undecided jump (boottime, hour), segment's first boottime, last sample's boottime and difference, segment number,
#: offset before the segment, place of the last sample, least difference of place and boottime in this boot (None = no
#: sample yet), place from which on samples were held back (None = never).
Fit = tuple[
    str,
    int | None,
    tuple[int, ...],
    tuple[int, ...],
    tuple[int, int] | None,
    tuple[int, int] | None,
    int,
    int,
    int,
    int,
    int | None,
    int,
    int | None,
    int | None,
]
NO_FIT: Fit = ("", None, (), (), None, None, -1, -1, 0, 0, None, -1, None, None)

#: For how long after its last sample another boot's clock is remembered, and of how many boots at most.
CLOCK_KEPT_MS = 24 * 3_600_000
CLOCKS_KEPT = 8


def with_clock(others: dict[str, Fit], fit: Fit) -> dict[str, Fit]:
    """The other boots' clocks and this one's; of too many those go whose last sample is the oldest."""
    if fit[11] < 0:
        return others  # no sample of it had a boot-time clock
    kept = sorted(({**others, fit[0]: fit}).values(), key=_last)
    return {one[0]: one for one in kept[-CLOCKS_KEPT:]}


def kept_clocks(others: dict[str, Fit], ms: int) -> dict[str, Fit]:
    """Those of these clocks that are remembered at the instant `ms`."""
    for fit in others.values():
        if ms - fit[11] > CLOCK_KEPT_MS:
            return {boot: fit for boot, fit in others.items() if ms - fit[11] <= CLOCK_KEPT_MS}
    return others


def _last(fit: Fit) -> tuple[int, str]:
    return fit[11], fit[0]


def pack_fit(fit: Fit, last: int) -> tuple[Any, ...]:
    """The placement in small numbers: instants from the last sample, differences from the offset."""
    _, offset, live, syncs, sync, jump, start, last_bt, diff, number, before, place, low, back = fit
    zero = offset if offset is not None else 0
    return (
        offset,
        [d - zero for d in live],
        [d - zero for d in syncs],
        (sync[0] - last, sync[0] - sync[1] - zero) if sync else 0,
        jump or 0,
        start,
        last_bt + zero - last,
        diff - zero,
        number,
        before,
        place - last,
        None if low is None else low - zero,
        None if back is None else back - last,
    )


def read_fit(boot: str, raw: list[Any], last: int) -> Fit:
    """The placement that `pack_fit` packed."""
    _, offset, live, syncs, sync, jump, start, last_bt, diff, number, before, place, low, back = raw
    zero = offset if offset is not None else 0
    return (
        boot,
        offset,
        tuple(d + zero for d in live),
        tuple(d + zero for d in syncs),
        (sync[0] + last, sync[0] + last - sync[1] - zero) if sync else None,
        (jump[0], jump[1]) if jump else None,
        start,
        last_bt - zero + last,
        diff + zero,
        number,
        before,
        place + last,
        None if low is None else low + zero,
        None if back is None else back + last,
    )


def pack_other(code: Any, fit: Fit, last: int) -> tuple[Any, ...]:
    """Another boot's placement; `code`: its name's. Most are settled, which says the rest of `pack_fit`."""
    _, offset, live, syncs, sync, jump, start, last_bt, diff, number, before, place, low, back = fit
    if offset is None or sync is None or low is None or place != last_bt + offset:
        return (code, *pack_fit(fit, last))
    if live or syncs or jump or number or before is not None or back is not None:
        return (code, *pack_fit(fit, last))
    since = offset - last
    return (code, since, place - last, sync[0] - place, sync[0] - sync[1] - offset, start, diff - offset, low - offset)


def read_other(boot: str, packed: list[Any], last: int) -> Fit:
    """The placement that `pack_other` packed."""
    if len(packed) != _SETTLED:
        return read_fit(boot, packed, last)
    _, since, place, received, ahead, start, diff, low = packed
    offset, place = since + last, place + last
    sync = (received + place, received + place - ahead - offset)
    least = low + offset
    return (boot, offset, (), (), sync, None, start, place - offset, diff + offset, 0, None, place, least, None)


_SETTLED = 8  # what a settled placement takes
