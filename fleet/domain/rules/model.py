"""A reason and a rule set, and what makes them valid."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

PARTIES = ("infrastructure", "customer", "ambiguous", "none")
CATEGORIES = ("unreachable", "hardware_failure", "firmware", "network", "degraded", "none")
SEVERITIES = ("info", "notice", "degraded", "down", "lost")
#: How long a reason lasts: its own slot; until evidence ends it; while samples show it; the throttled share of a
#: counter's span; not at all (shown in its slot); for slots that a witness observed; for slots without evidence.
LASTS = ("slot", "condition", "sample", "share", "note", "witness", "unknown", "hidden")
NEEDS = ("action", "missing", "nvml_errors", "clocks", "links", "witness", "owner", "samples")
ENDS = ("reset", "boot", "replaced", "action_none", "powered", "enumerates", "sample", "event")
SUBJECTS = ("gpu", "port", "node")
OWNERS = ("driver", "fabric")
#: Words by which a kernel line says how severe it is.
WORDS = ("fatal", "nonfatal")
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_NEEDED_XID = re.compile(r"xid:([0-9]{1,6})")
_XID = re.compile(r"XID_\d+")


class RulesError(ValueError):
    """A rule set that must not be used; the message names file, line and key."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason of a rule set.

    `weight`: 0..100 while it holds. `needs`: any of these corroborates it (empty = none needed); `xid:N` names an
    event. `ends`: evidence that ends it, `ends_without_action` the same on drivers without NVML's recovery action
    (empty = `ends` or work, see `ended_by`). `own_slot`: the reason that marks the event's own slot.
    `persistence_samples`: how many bad samples in a row it takes. `symptom_of`: opens no incident while one of these is
    open. `supersedes`: these are dropped where both hold. `owner`: the driver or fabric that the provider must own for
    it to be infrastructure's. `sxids`: the codes of NVSwitch events that it covers, `sxid_names` what each is called.
    `line`: the word of a kernel line that it takes.
    """

    code: str
    title: str
    explanation: str
    party: str
    severity: str
    weight: int
    lasts: str
    category: str
    sources: tuple[str, ...]
    subject: str = "gpu"
    needs: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    ends_without_action: tuple[str, ...] = ()
    own_slot: str = ""
    persistence_samples: int = 1
    symptom_of: tuple[str, ...] = ()
    supersedes: tuple[str, ...] = ()
    owner: str = ""
    action: str = ""
    review: bool = False
    disagreement: str = ""
    xid: int = -1
    sxid: int = -1
    sxids: tuple[int, ...] = ()
    sxid_names: tuple[str, ...] = ()
    line: str = ""
    mask: int = 0
    counters: tuple[str, ...] = ()
    where: str = ""

    @property
    def lowers(self) -> bool:
        """Whether it can lower a weight: never a customer's or nobody's reason (fold.md 14)."""
        return self.weight < 100 and self.party in ("infrastructure", "ambiguous")

    @property
    def is_shown_by_samples(self) -> bool:
        """Whether the fold counts the samples in a row that show it: a GPU's readings, a port's state."""
        return self.lasts in ("sample", "share") or (self.subject == "port" and self.lasts == "condition")

    def ended_by(self, has_action: bool) -> tuple[str, ...]:
        """The evidence that ends it, on a driver with NVML's recovery action or without.

        A rule that says nothing of drivers without one is ended there by work as well (fold.md 12).
        """
        if has_action:
            return self.ends
        return self.ends_without_action or (*self.ends, "powered")

    @property
    def switch_codes(self) -> tuple[tuple[int, str], ...]:
        """(code, what it is called) of the NVSwitch events that it covers."""
        return tuple(zip(self.sxids, self.sxid_names or ("",) * len(self.sxids), strict=True))

    @property
    def sticky(self) -> bool:
        """Whether the condition cannot end by itself, so that silence does not end it."""
        return self.lasts == "condition" and "sample" not in self.ends


@dataclass(frozen=True)
class Rules:
    """A validated rule set, compiled for the fold's look-ups. `digest` is SHA-256 in hex.

    `amendments`: the digests of the amendments laid over it; `version` and `digest` are then those of the whole.
    """

    version: str
    digest: str
    reasons: Mapping[str, Reason]
    amendments: tuple[str, ...] = ()
    by_xid: Mapping[tuple[int, str], Reason] = field(init=False, repr=False)
    by_sxid: Mapping[int, Reason] = field(init=False, repr=False)
    switch_words: Mapping[str, Reason] = field(init=False, repr=False)
    shares: tuple[Reason, ...] = field(init=False, repr=False)
    masks: tuple[Reason, ...] = field(init=False, repr=False)
    bad_mask: int = field(init=False, repr=False)
    by_counter: Mapping[str, Reason] = field(init=False, repr=False)
    counter_losses: Mapping[str, tuple[str, int]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        by_xid: dict[tuple[int, str], Reason] = {}
        by_sxid: dict[int, Reason] = {}
        for reason in self.reasons.values():
            for code in reason.sxids:
                if code in by_sxid:
                    raise RulesError(f"{reason.where}: sxid {code} has two rules")
                by_sxid[code] = reason
            if reason.xid >= 0:
                key = (reason.xid, reason.line)
                if key in by_xid:
                    raise RulesError(f"{reason.where}: xid {reason.xid} has two rules")
                by_xid[key] = reason
            own = self.reasons.get(reason.own_slot)
            if reason.own_slot and own is None:
                raise RulesError(f"{reason.where}: own_slot: there is no reason {reason.own_slot}")
            if own is not None and own.lasts != "slot":
                raise RulesError(f"{reason.where}: own_slot: {own.code} does not last a slot")
            for other in reason.symptom_of + reason.supersedes:
                if other not in self.reasons:
                    raise RulesError(f"{reason.where}: supersedes/symptom_of: there is no reason {other}")
        for reason in self.reasons.values():
            for need in reason.needs:
                if (named := _NEEDED_XID.fullmatch(need)) and (int(named[1]), "") not in by_xid:
                    raise RulesError(f"{reason.where}: needs: there is no rule for Xid {named[1]}")
        _refuse_cycles(self.reasons)
        _refuse_shared_readings(self.reasons)
        put = object.__setattr__
        shares = tuple(r for r in self.reasons.values() if r.lasts == "share" and r.lowers)
        put(self, "by_xid", by_xid)
        put(self, "by_sxid", by_sxid)
        put(self, "switch_words", {r.line: r for r in self.reasons.values() if r.sxids and r.line})
        put(self, "shares", shares)
        put(self, "masks", tuple(r for r in shares if r.mask))
        put(self, "bad_mask", sum({r.mask for r in shares}))
        put(self, "by_counter", {k: r for r in shares for k in r.counters})
        put(self, "counter_losses", {k: (r.code, 100 - r.weight) for r in shares for k in r.counters})

    def of(self, code: str) -> Reason | None:
        """The reason of a code; an Xid without a rule has that of the unknown ones under its own number."""
        found = self.reasons.get(code)
        unknown = self.reasons.get("XID_UNKNOWN")
        if found is not None or unknown is None or not _XID.fullmatch(code):
            return found
        return replace(unknown, code=code, title=f"{unknown.title} {code.removeprefix('XID_')}")

    def xid(self, code: int, line: str | None) -> Reason | None:
        """The reason of an Xid; `line` is the severity its line says. None for a code that no rule knows."""
        if line:
            found = self.by_xid.get((code, line))
            if found is not None:
                return found
        return self.by_xid.get((code, ""))

    def sxid(self, code: int, line: str | None) -> Reason | None:
        """The reason of an NVSwitch event; the word of its line (`fatal`, `nonfatal`) comes before the table.

        None for a code that no rule knows and whose line says nothing.
        """
        known = self.by_sxid.get(code)
        spoken = self.switch_words.get(line or "")
        if spoken is None or known is None:
            return known or spoken
        if known.lowers == spoken.lowers and not known.review:
            return known
        return spoken


_TEXTS = ("code", "title", "explanation", "party", "severity", "lasts", "category")
_LISTS = ("sources", "needs", "ends", "ends_without_action", "symptom_of", "supersedes", "counters", "sxid_names")
_NUMBERS = {"weight": 100, "persistence_samples": 100, "xid": 100_000, "sxid": 100_000, "mask": 2**64 - 1}
_LEAST = {"persistence_samples": 1}
_OTHER = ("subject", "own_slot", "owner", "action", "disagreement", "line")


def reason_from(file: str, entry: Mapping[str, Any], lines: Mapping[str, int]) -> Reason:
    """A validated reason. Raises RulesError naming file, line and key.

    `lines`: the line of each key, '' of the table itself; empty for what stands in no file.
    """
    head = lines.get("code", lines.get("", 0))
    where = f"{file}:{head}" if head else file

    def fail(key: str, why: str) -> RulesError:
        line = lines.get(key, head)
        place = f"{file}:{line}" if line else file
        return RulesError(f"{place}: {entry.get('code', '?')}: {key}: {why}")

    values: dict[str, Any] = {"where": where}
    for key, value in entry.items():
        if key in _TEXTS or key in _OTHER:
            if not isinstance(value, str) or (key in _TEXTS and not value.strip()):
                raise fail(key, "must be a text")
            values[key] = value
        elif key in _LISTS:
            if not isinstance(value, list) or not all(isinstance(v, str) and v.strip() for v in value):
                raise fail(key, "must be a list of texts")
            if key != "sxid_names" and len(set(value)) < len(value):
                raise fail(key, "says something twice")
            values[key] = tuple(value)
        elif key == "sxids":
            if not isinstance(value, list) or not all(type(v) is int and 0 <= v <= _NUMBERS["sxid"] for v in value):
                raise fail(key, "must be a list of codes")
            values[key] = tuple(value)
        elif key in _NUMBERS:
            least, most = _LEAST.get(key, 0), _NUMBERS[key]
            if type(value) is not int or not least <= value <= most:
                raise fail(key, f"must be an integer from {least} to {most}")
            values[key] = value
        elif key == "review":
            if not isinstance(value, bool):
                raise fail(key, "must be true or false")
            values[key] = value
        else:
            raise fail(key, "unknown key")
    for key in (*_TEXTS, "weight", "sources"):
        if key not in values:
            raise fail(key, "is missing")
    reason = Reason(**values)
    if not _CODE.fullmatch(reason.code):
        raise fail("code", "must be letters, digits and _, a letter first")
    for key, allowed in (
        ("party", PARTIES),
        ("severity", SEVERITIES),
        ("lasts", LASTS),
        ("category", CATEGORIES),
        ("subject", SUBJECTS),
        ("owner", ("", *OWNERS)),
        ("line", ("", *WORDS)),
    ):
        if getattr(reason, key) not in allowed:
            raise fail(key, f"must be one of {', '.join(filter(None, allowed))}")
    for need in reason.needs:
        if need not in NEEDS and not _NEEDED_XID.fullmatch(need):
            raise fail("needs", f"must be one of {', '.join(NEEDS)} or xid:N")
    for end in reason.ends + reason.ends_without_action:
        if end not in ENDS:
            raise fail("ends", f"must be one of {', '.join(ENDS)}")
    if reason.sxid_names and len(reason.sxid_names) != len(reason.sxids):
        raise fail("sxid_names", "must name each code of sxids")
    if not reason.sources:
        raise fail("sources", "is missing")
    if reason.lasts == "condition" and not reason.ends:
        raise fail("ends", "a condition must say what ends it")
    if reason.persistence_samples > 1 and not reason.is_shown_by_samples:
        raise fail("persistence_samples", "counts samples that show it; this one is told by an event or a witness")
    if "owner" in reason.needs and not reason.owner:
        raise fail("owner", f"must say of what: {' or '.join(OWNERS)}")
    if reason.party == "ambiguous" and reason.weight < 100 and not reason.needs:
        raise fail("needs", "an ambiguous reason below 100 must say what it needs")
    return reason


def _refuse_cycles(reasons: Mapping[str, Reason]) -> None:
    """Raise RulesError where supersedes or symptom_of leads back to its start."""
    for pick in ("supersedes", "symptom_of"):
        order = TopologicalSorter({code: getattr(reason, pick) for code, reason in reasons.items()})
        try:
            order.prepare()
        except CycleError as error:
            way = error.args[1][::-1]  # the sorter tells it from the end
            start = way.index(min(way))
            way = [*way[start:-1], *way[: start + 1]]
            raise RulesError(f"{reasons[way[0]].where}: {pick}: a cycle: {' -> '.join(way)}") from error


def _refuse_shared_readings(reasons: Mapping[str, Reason]) -> None:
    """Raise RulesError where two reasons are about one bit of the throttle mask or one counter."""
    bits = 0
    counters: dict[str, str] = {}
    for reason in reasons.values():
        if bits & reason.mask:
            raise RulesError(f"{reason.where}: mask: {bits & reason.mask:#x} has two rules")
        bits |= reason.mask
        for counter in reason.counters:
            if counter in counters:
                raise RulesError(f"{reason.where}: counters: {counter} has two rules, first {counters[counter]}")
            counters[counter] = reason.code
