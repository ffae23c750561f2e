"""What lies around an hour that is folded again: what is late, where to begin, which batches to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleet.domain.clocks import NO_FIT
from fleet.domain.placement import Item, Placed, place
from fleet.domain.receipts import ReceivedBatch
from fleet.domain.slots import HOUR_MS
from fleet.domain.state import NodeState, OtherFormat
from fleet.domain.strips import HourRow

NOTHING: Mapping[Any, Any] = {}


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
    hour: int,
    closings: Iterable[tuple[int, NodeState]],
    sealed_until: int = 0,
    ahead_of: Mapping[str, int] = NOTHING,
) -> tuple[int, NodeState | None]:
    """(the hour to fold from so that `hour` is folded right, the state before it).

    `closings`: hour and closing state of the rows before `hour` that have one, newest first. What comes late may decide
    a jump that was open, so no jump is open in the state; and it has nothing of a boot (`ahead_of`: boot_id and
    boottime) from this boottime on. Hours before `sealed_until` are not folded again.
    """
    for at, state in closings:
        is_open = any(fit[5] is not None for fit in state.fits)
        if at < sealed_until or not (is_open or any(_knows(state, *one) for one in ahead_of.items())):
            return hour, state
        hour = at
    return hour, None


def _knows(state: NodeState, boot: str, boottime: int) -> bool:
    fit = state.fit_of(boot)
    return fit is not None and fit[7] > boottime


def _is_back(state: NodeState | None) -> bool:
    """Whether receipts of one of its boots went back."""
    return state is not None and any(fit[13] is not None for fit in state.fits)


#: How far ahead batches are looked for that a receipt moved back: a server's clock may have been wrong by so much.
BACK_HOURS = 4


class Lookahead:
    """The batches around the hour that is folded. What turns out to stand in a later hour is kept until then."""

    def __init__(
        self,
        load: Callable[[int], Iterable[ReceivedBatch]],
        load_row: Callable[[int], HourRow | None],
        extra: Mapping[bytes, ReceivedBatch] = NOTHING,
    ) -> None:
        self._load, self._load_row = load, load_row
        self._backs: dict[int, bool] = {}
        self._loaded: dict[int, list[ReceivedBatch]] = {}
        self._carried: dict[bytes, ReceivedBatch] = dict(extra)
        self._seen: set[bytes] = set()
        self.fresh: dict[bytes, ReceivedBatch] = {}  # the batches that were looked at for the first time
        self.decided: dict[str, int] = {}  # by what was looked at before them, as in Placed
        self._decided: dict[str, int] = {}
        self.newest = -1  # the newest hour of any batch seen that stands in a later hour than the one folded

    def place(self, state: NodeState | None, hour: int, last_hour: int) -> Placed:
        """The hour's items, placed with what follows: as far ahead as an undecided jump of the clock needs."""
        self._loaded = {h: batches for h, batches in self._loaded.items() if h >= hour}
        ahead = hour
        went_back = _is_back(state) or any(self._went_back(h) for h in range(hour, hour + BACK_HOURS + 1))
        while True:
            if ahead not in self._loaded:
                self._loaded[ahead] = list(self._load(ahead))
            known = dict(self._carried)
            for h in range(hour, ahead + 1):
                known.update((b.sha256, b) for b in self._loaded[h])
            placed = placed_after(state, known.values())
            is_back = went_back or any(item.fit[13] is not None for item in placed.items)
            if not placed.undecided and (not is_back or ahead >= hour + BACK_HOURS):
                break
            if ahead >= last_hour + BACK_HOURS or (ahead >= last_hour and not is_back):
                break
            ahead += 1
        self._carried = {s: b for s, b in known.items() if placed.touched[s][1] > hour and s not in placed.suspect}
        self.fresh = {sha: batch for sha, batch in known.items() if sha not in self._seen}
        self._seen.update(known)
        self.decided = self._decided
        newest = {boot: max(bt, self.decided.get(boot, -1)) for boot, bt in placed.decided.items()}
        self._decided = {**self.decided, **newest}
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
            self._backs[hour] = _is_back(state)
        return self._backs[hour]


@dataclass(slots=True)
class Missed:
    """What a re-fold found of batches that stand elsewhere than where they were looked for.

    `hour`: an hour before the first one in which something stands; `ahead_of`: boot and boottime of samples that the
    state before it should not have known; `batches`: those that had to be looked at earlier; `through`: the newest hour
    in which something stands that its row does not hold.
    """

    hour: int | None = None
    ahead_of: dict[str, int] = field(default_factory=dict)
    batches: dict[bytes, ReceivedBatch] = field(default_factory=dict)
    through: int = -1

    @property
    def is_before(self) -> bool:
        """Whether the fold must begin earlier."""
        return self.hour is not None or bool(self.ahead_of)


def missed(
    placed: Placed,
    loader: Lookahead,
    states: tuple[NodeState | None, NodeState | None],
    hours: tuple[int, int],
    stands: Callable[[bytes], tuple[int, int] | None],
    sealed_until: int,
) -> Missed:
    """Look whether what is folded next was where it was looked for, of what `loader` gave for the first time.

    `states`: the one that the re-fold began with and the one before the hour that is next; `hours`: the first one and
    the next. `stands`: the hours in which a batch was folded so far, or which were found dirty by it. A sample that
    comes before one that is folded already, or that has decided a jump, by the clock of its boot, was missed.
    """
    out, fresh = Missed(), loader.fresh
    (opening, state), (first_hour, hour) = states, hours
    for item in placed.items:
        span = stands(item.sha256) if item.sha256 in fresh else None
        if span is None:
            continue
        boottime, boot, at = item.interval.boottime, item.batch.boot_id or "", item.ms // HOUR_MS
        if boottime is not None and state is not None and _knows(state, boot, boottime):
            if item.event is not None or (hour == first_hour and span[0] < first_hour):
                continue  # folded before
            if opening is None or not _knows(opening, boot, boottime):
                out.batches[item.sha256] = fresh[item.sha256]
            elif opening.watermark_ms // HOUR_MS >= sealed_until:
                out.batches[item.sha256] = fresh[item.sha256]
                out.ahead_of[boot] = min(boottime, out.ahead_of.get(boot, boottime))
        elif boottime is not None and boottime < loader.decided.get(boot, -1):
            out.batches[item.sha256] = fresh[item.sha256]
        elif not span[0] <= at <= span[1]:
            if at >= hour:
                out.through = max(out.through, at)
            elif at >= first_hour:
                out.batches[item.sha256] = fresh[item.sha256]
            elif at >= sealed_until:
                out.batches[item.sha256] = fresh[item.sha256]
                out.hour = at if out.hour is None else min(at, out.hour)
    return out
