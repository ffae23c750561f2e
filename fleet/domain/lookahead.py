"""What lies around an hour that is folded again: what is late, where to begin, which batches to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fleet.domain.clocks import NO_FIT
from fleet.domain.placement import Item, Placed, place
from fleet.domain.receipts import ReceivedBatch
from fleet.domain.state import NodeState, OtherFormat
from fleet.domain.strips import HourRow


def is_late(item: Item, state: NodeState) -> bool:
    """Whether the item comes before the watermark; a sample by the clock of its boot, wherever it would stand now."""
    boottime = item.interval.boottime if item.event is None else None
    if boottime is not None:
        fit = state.fit_of(item.batch.boot_id or "")
        if fit is not None and boottime < fit[7]:
            return True
    return item.key <= state.watermark


def placed_after(state: NodeState | None, batches: Iterable[ReceivedBatch]) -> Placed:
    """Where these batches' items stand, going on from what the state knows of each boot's clock."""
    return place(batches, NO_FIT) if state is None else place(batches, state.fit, state.others)


def opening_of(
    hour: int, closings: Iterable[tuple[int, NodeState]], sealed_until: int = 0
) -> tuple[int, NodeState | None]:
    """(the hour to fold from so that `hour` is folded right, the state before it).

    `closings`: hour and closing state of the rows before `hour` that have one, newest first. In a boot whose receipts
    showed a pause, or went back, or that has an undecided jump, a late receipt may decide otherwise what was decided
    hours before, and where a late sample stands is not known before it is folded: such a boot is folded again from its
    beginning, or from the first hour that is not sealed (`sealed_until`).
    """
    boot = None
    for at, state in closings:
        if boot is None and not is_moved_by_receipts(state) and state.fit[5] is None:
            return hour, state
        if boot is None:
            boot = state.fit[0]
        if state.fit[0] != boot or at < sealed_until:
            return hour, state
        hour = at
    return hour, None


def is_moved_by_receipts(state: NodeState | None) -> bool:
    """Whether receipts showed a pause of its boot, or went back."""
    return state is not None and (state.fit[9] > 0 or state.fit[13] is not None)


#: How far ahead batches are looked for that a receipt moved back: a server's clock may have been wrong by so much.
BACK_HOURS = 4


class Lookahead:
    """The batches around the hour that is folded. What turns out to stand in a later hour is kept until then."""

    def __init__(
        self, load: Callable[[int], Iterable[ReceivedBatch]], load_row: Callable[[int], HourRow | None]
    ) -> None:
        self._load, self._load_row = load, load_row
        self._backs: dict[int, bool] = {}
        self._loaded: dict[int, list[ReceivedBatch]] = {}
        self._carried: dict[bytes, ReceivedBatch] = {}
        self.newest = -1  # the newest hour of any batch seen that stands in a later hour than the one folded

    def place(self, state: NodeState | None, hour: int, last_hour: int) -> Placed:
        """The hour's items, placed with what follows: as far ahead as an undecided jump of the clock needs."""
        self._loaded = {h: batches for h, batches in self._loaded.items() if h >= hour}
        fit = state.fit if state is not None else NO_FIT
        ahead = hour
        went_back = any(self._went_back(h) for h in range(hour, hour + BACK_HOURS + 1))
        while True:
            if ahead not in self._loaded:
                self._loaded[ahead] = list(self._load(ahead))
            known = dict(self._carried)
            for h in range(hour, ahead + 1):
                known.update((b.sha256, b) for b in self._loaded[h])
            placed = placed_after(state, known.values())
            is_back = went_back or fit[13] is not None or any(item.fit[13] is not None for item in placed.items)
            if not placed.undecided and (not is_back or ahead >= hour + BACK_HOURS):
                break
            if ahead >= last_hour + BACK_HOURS or (ahead >= last_hour and not is_back):
                break
            ahead += 1
        self._carried = {s: b for s, b in known.items() if placed.touched[s][1] > hour and s not in placed.suspect}
        self.newest = max((placed.touched[s][1] for s in self._carried), default=-1)
        return placed

    def _went_back(self, hour: int) -> bool:
        """Whether receipts went back by the end of this hour, when it was last folded."""
        if hour not in self._backs:
            row = self._load_row(hour)
            try:
                state = NodeState.from_bytes(row.closing_state) if row is not None and row.closing_state else None
            except OtherFormat:  # it is folded again before anything comes of it
                state = None
            self._backs[hour] = state is not None and state.fit[13] is not None
        return self._backs[hour]
