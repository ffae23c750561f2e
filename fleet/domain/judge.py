"""From what touches a slot to its verdict (fold.md 5 to 7, 13, 22, 30)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from fleet.domain.slots import SLOT_MS
from fleet.domain.state import Segment, Subject
from fleet.domain.verdicts import HEALTHY, STATE_RANK, State, Verdict


class Share(NamedTuple):
    """What ports take from a GPU in `[first, end)`: a triple, its state, its reasons."""

    first: int
    end: int
    state: State
    nominal: int
    lower: int
    upper: int
    codes: tuple[str, ...]


class Run(NamedTuple):
    """A verdict for the slots `[first, end)`."""

    first: int
    end: int
    verdict: Verdict


_O, _E, _P = State.OBSERVED, State.EDGE, State.PENDING
_K, _H = State.CONTESTED, State.HELD


def judge(
    subject: Subject,
    first: int,
    end: int,
    slot_cause: str,
    gap_cause: str,
    covers: Sequence[Segment] = (),
    shares: Sequence[Share] = (),
) -> list[Run]:
    """The verdicts of the slots `[first, end)`: the open slot `first`, whose cause of unknown is `slot_cause` ('' =
    known), and the slots after it up to the next sample's, whose cause is `gap_cause`.
    """
    segments: Sequence[Segment] = [*subject.segments, *covers] if covers else subject.segments
    if not segments and not shares:
        out = [Run(first, first + 1, _plain(slot_cause))]
        if end > first + 1:
            out.append(Run(first + 1, end, _plain(gap_cause)))
        return out
    cuts = {first, first + 1, end}
    for _, kind, a, b, _w in segments:
        if kind == "C":
            cuts.update((a // SLOT_MS, a // SLOT_MS + 1, b // SLOT_MS, b // SLOT_MS + 1))
        else:
            cuts.update((a, b))
    for share in shares:
        cuts.update((share.first, share.end))
    bounds = sorted(c for c in cuts if first <= c <= end)
    out = []
    for a, b in pairwise(bounds):
        out.append(Run(a, b, _slot(segments, shares, a, slot_cause if a == first else gap_cause)))
    return out


def _plain(cause: str) -> Verdict:
    return HEALTHY if not cause else Verdict(State.UNKNOWN, None, 100, 0, (cause,))


def _slot(segments: Iterable[Segment], shares: Iterable[Share], slot: int, cause: str) -> Verdict:
    start, stop = slot * SLOT_MS, (slot + 1) * SLOT_MS
    reasons: list[tuple[State, int, int, int, str]] = []
    notes: list[str] = []
    possible: set[str] = set()
    covered: dict[str, tuple[int, int, int, int]] = {}  # from, to, greatest and least weight
    bad: dict[str, int] = {}
    old_weights: dict[str, int] = {}
    for code, kind, a, b, w in segments:
        if kind == "C":
            if w == 100:
                if a < stop and b >= start:
                    possible.add(code)
            elif a < stop and b >= start:
                old = covered.get(code)
                if old is not None and max(a, old[0]) <= min(b, old[1]):
                    covered[code] = (min(a, old[0]), max(b, old[1]), max(w, old[2]), min(w, old[3]))
                elif old is None or b - a > old[1] - old[0]:
                    covered[code] = (a, b, w, w)
        elif a <= slot < b:
            if w == 100 and kind in "BPOKQTE":
                possible.add(code)  # what does not lower here is shown
            elif kind == "B":
                bad[code] = min(w, bad.get(code, 100))
            elif kind == "P":
                reasons.append((_P, 100, 100, w, code))
            elif kind == "O":
                reasons.append((_O, w, w, w, code))
            elif kind == "N":
                notes.append(code)
            elif kind == "M":
                possible.add(code)
            elif kind == "K":
                reasons.append((_K, 100, 100, w, code))
            elif kind == "Q":
                reasons.append((_E, w, 100, w, code))
            elif kind == "T":
                reasons.append((_E, 100, 100, w, code))
            elif kind == "H":
                reasons.append((_H, 0, 100, 0, code))
            elif kind == "E":
                reasons.append((_E, w, 100, w, code))
            elif kind == "W":
                old_weights[code] = w
            elif kind == "V" and cause == "NO_DATA":
                cause = code
            elif kind == "X":
                return Verdict(State.UNKNOWN, None, 100, 0, (code,))
    for code, (a, b, most, least) in covered.items():
        if code in old_weights:
            most = least = old_weights[code]
        if a <= start and b >= stop:
            reasons.append((_O, most, most, least, code))
            bad.pop(code, None)
        elif code not in bad:
            reasons.append((_E, 100, 100, least, code))
    for code, w in bad.items():
        reasons.append((_E, w, 100, w, code))
    for share in shares:
        if share.first <= slot < share.end:
            for code in share.codes:
                reasons.append((share.state, share.nominal, share.lower, share.upper, code))
    if not reasons and not notes and not possible:
        return _plain(cause)
    nominal = lower = upper = 100
    state = _O
    rank = 9
    certain: set[str] = set(notes)
    for reason_state, n, low, up, code in reasons:
        if n < nominal:
            nominal, rank = n, 9
        if n == nominal and STATE_RANK[reason_state] < rank:
            rank, state = STATE_RANK[reason_state], reason_state
        lower = min(lower, low)
        upper = min(upper, up)
        (certain if low < 100 else possible).add(code)
    possible -= certain
    if cause and nominal == 100:
        certain.add(cause)
        return Verdict(State.UNKNOWN, None, 100, 0, tuple(sorted(certain)), tuple(sorted(possible)))
    return Verdict(state, nominal, lower, upper, tuple(sorted(certain)), tuple(sorted(possible)))
