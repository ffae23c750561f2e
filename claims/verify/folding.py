"""What the enclosed batches of a window fold to, and whether it is what the report used."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from claims.domain.month_runs import VerdictRun, collect
from claims.verify.batches import BatchFacts, decoder, facts_of_batch, gunzip, remember
from claims.verify.documents import read
from claims.verify.documents import runs as decoded
from claims.verify.rule_sets import rules_of
from claims.verify.setting import Replayed
from fleet.domain.clocks import Fit
from fleet.domain.context import Dated
from fleet.domain.node_hours import ReceivedBatch, advance
from fleet.domain.refold import refold
from fleet.domain.slots import HOUR_MS, SLOTS_PER_HOUR, hour_of
from fleet.domain.state import FORMAT, NodeState
from fleet.domain.strips import HourRow

Files = Mapping[str, bytes]
FOLLOWING = 24  # hours behind a window that an undecided jump of a clock may ask for


class Folded(NamedTuple):
    """What a window's batches fold to: how many slots, what is wrong with them ('': they are what the report used), and
    the facts of each batch by its hash.
    """

    slots: int
    wrong: str
    facts: list[tuple[str, BatchFacts]]


def fold_one(files: Files, number: int) -> Folded:
    """Fold the window of this number and compare it with the runs that the report used.

    Both are clipped to the window's hours, which leave out the margin that closes the last stretch. Batches that came
    in order are folded as they came; where something came late or a clock was set, or where that gives other verdicts,
    all of them are placed and folded together, and that decides.
    """
    window = read(files, "windows.json")[number]
    parts: dict[str, list[Any]] = {}
    for month in window["months"]:
        for subject, line in decoded(files[f"runs/{window['node_id']}-{month}.json"]).items():
            parts.setdefault(subject, []).extend(line)
    low, high = slots_of(window)
    used = clipped(parts, low, high)
    dated = Replayed(rules_of(files), window["setting"])
    folded = fold_in_order(files, window, dated)
    found = None if folded is None else clipped(folded, low, high)
    if found != used:
        found = clipped(fold_enclosed(files, window, dated), low, high)
    wrong = ""
    if found != used:
        subject = next(one for one in sorted({*found, *used}) if found.get(one) != used.get(one))
        wrong = (
            f"The batches of {window['node']} from hour {window['first_hour']} on give other verdicts for {subject}"
            " than the report used."
        )
    facts = [(sha, facts_of_batch(files[f"batches/{sha}.msgpack.gz"])) for sha in window["batches"]]
    return Folded(sum(b - a for line in found.values() for a, b, _ in line), wrong, facts)


CHUNK = 240  # batches that are in memory at once, decoded


def fold_in_order(
    files: Files, window: Mapping[str, Any], dated: Dated, unpack: Callable[[bytes], Any] | None = None
) -> dict[str, list[VerdictRun]] | None:
    """The runs that a window's batches fold to in the order of their receipt, some at a time; see `in_order`.

    `unpack`: another decoder than the quickest that is there.
    """
    received = _received(files)
    unpack = unpack or decoder()
    order = sorted(window["batches"], key=lambda sha: (received[sha], sha))
    chunks = (
        [_batch(files, sha, received[sha], unpack) for sha in order[at : at + CHUNK]]
        for at in range(0, len(order), CHUNK)
    )
    return in_order(_opening(files, window), window["first_hour"], window["last_hour"], chunks, dated)


def in_order(
    opening: NodeState | None, first: int, last: int, chunks: Iterable[Sequence[ReceivedBatch]], dated: Dated
) -> dict[str, list[VerdictRun]] | None:
    """What `fold_window` gives, from batches in the order of their receipt; None where that order does not say it all:
    an item is older than one before it, or a clock was set, paused or went back.
    """
    if opening is not None and _is_moved(opening.fit):
        return None
    state = opening
    rows: dict[int, HourRow] = {}
    for batches in chunks:
        done = advance(state, rows, batches, dated)
        older = done.late and rows  # what the opening state holds already comes with the first ones
        if done.dirty or older or done.placed.undecided or any(_is_moved(item.fit) for item in done.placed.items):
            return None
        if state is None and min(done.rows, default=first) < first:
            return None
        state = done.state
        rows.update(done.rows)
    return _collected(rows, first, last)


def _is_moved(fit: Fit) -> bool:
    """Whether a jump of the clock is not decided, or receipts showed a pause or went back."""
    return fit[5] is not None or fit[9] > 0 or fit[13] is not None


def _opening(files: Files, window: Mapping[str, Any]) -> NodeState | None:
    """The state before a window. Raises ValueError for one that holds items of its hours."""
    state = NodeState.from_bytes(files[window["state"]]) if window["state"] else None
    if state is not None and hour_of(state.watermark_ms) >= window["first_hour"]:
        raise ValueError("the state before a window holds items of its hours")
    return state


def _batch(files: Files, sha: str, received_ms: int, unpack: Callable[[bytes], Any]) -> ReceivedBatch:
    """An enclosed batch, decoded; what other checks ask of it is kept."""
    body = files[f"batches/{sha}.msgpack.gz"]
    raw = gunzip(body)
    batch = unpack(raw)
    remember(body, raw, batch)
    return ReceivedBatch(bytes.fromhex(sha), received_ms, batch)


def _collected(rows: Mapping[int, HourRow], first: int, last: int) -> dict[str, list[VerdictRun]]:
    return collect(rows[hour] for hour in sorted(rows) if first <= hour <= last)


def _received(files: Files) -> dict[str, int]:
    """When each batch of the skeleton was received, ms."""
    return _instants(files["skeleton.json"])


@lru_cache(maxsize=2)
def _instants(skeleton: bytes) -> dict[str, int]:
    lines = read({"skeleton.json": skeleton}, "skeleton.json")
    return {one["sha256"]: int(one["received_us"]) // 1000 for one in lines}


def slots_of(window: Mapping[str, Any]) -> tuple[int, int]:
    """`[first, end)` of a window without the margin that closes its last stretch."""
    return window["first_hour"] * SLOTS_PER_HOUR, (window["last_hour"] - window["margin"]) * SLOTS_PER_HOUR


def fold_enclosed(files: Files, window: Mapping[str, Any], dated: Dated) -> dict[str, list[VerdictRun]]:
    """The runs that a window's batches fold to under these dated rows.

    A batch touches the hours of its own `ts`. Those that the window names as `moved` by the node's clocks to others are
    looked at for each hour.
    """
    unpack, received = decoder(), _received(files)
    batches, hours = [], {}
    for sha in window["batches"]:
        batches.append(_batch(files, sha, received[sha], unpack))
        if "moved" in window and sha not in window["moved"]:  # an older pack does not say which ones were
            facts = facts_of_batch(files[f"batches/{sha}.msgpack.gz"])
            hours[bytes.fromhex(sha)] = min(facts.instants) // HOUR_MS, max(facts.instants) // HOUR_MS
    return fold_window(_opening(files, window), window["first_hour"], window["last_hour"], batches, dated, hours)


def other_fold(files: Files) -> int | None:
    """The format of the states of the fold that the pack is of, where that is another one than this release folds with.

    Its manifest says it, and where it is older than that the states from which its folding starts.
    """
    said = read(files, "manifest.json").get("fold", FORMAT)
    if isinstance(said, int) and said != FORMAT:
        return said
    for name in sorted(one for one in files if one.startswith("states/")):
        raw = files[name]
        try:
            form = json.loads(raw[3 : 3 + int.from_bytes(raw[:3], "big")])[0]
        except (ValueError, IndexError, KeyError, TypeError):
            continue  # no state at all: the fold says so
        if isinstance(form, int) and form != FORMAT:
            return form
    return None


Hours = Mapping[bytes, tuple[int, int]]


def fold_window(
    opening: NodeState | None, first: int, last: int, batches: Sequence[ReceivedBatch], dated: Dated, hours: Hours
) -> dict[str, list[VerdictRun]]:
    """The runs of the hours `first..last` from these batches and the state before them.

    `hours`: the hours that a batch touches; one that is not in it may touch any.
    """
    near: dict[int, list[ReceivedBatch]] = {}
    anywhere = [one for one in batches if one.sha256 not in hours]
    for one in batches:
        if one.sha256 in hours:
            begin, end = hours[one.sha256]
            for hour in range(max(begin - 1, first - 1), min(end + 1, last + FOLLOWING) + 1):
                near.setdefault(hour, []).append(one)
    done = refold(opening, first, last, lambda hour: [*anywhere, *near.get(hour, ())], lambda hour: None, dated)
    return _collected(done.rows, first, last)


def clipped(runs: Mapping[str, Iterable[Any]], low: int, high: int) -> dict[str, list[Any]]:
    """The runs inside `[low, high)`, equal neighbours joined, by subject."""
    out: dict[str, list[Any]] = {}
    for subject, line in runs.items():
        mine: list[Any] = []
        for first, end, verdict in line:
            a, b = max(first, low), min(end, high)
            if a >= b:
                continue
            if mine and mine[-1][1] == a and mine[-1][2] == verdict:
                mine[-1] = (mine[-1][0], b, verdict)
            else:
                mine.append((a, b, verdict))
        if mine:
            out[subject] = mine
    return out
