"""What a node's live summary says, in the words of the pages: GPUs now, what is wrong, since when, what to do.

The summary is the fold's (`fleet.node_summary`). One thing is added here: time goes on after the last sample, so a node
that has been silent for longer than a late upload explains is unknown now, whatever its last sample said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from fleet.domain.rules import Reason, load_rules

REMEMBERED = 4096  # summaries, about 8 kB each
SILENT_AFTER_MS = 180_000  # three uploads of a minute each
WORDS = ("down", "held", "degraded", "unknown", "available")  # worst first
GLYPHS = {"down": "×", "degraded": "!", "unknown": "?", "held": "H", "available": ""}
MARKS = ("edge", "pending", "contested")


@dataclass(frozen=True)
class Condition:
    """Something that holds now: its reason in words, whose it is, since when (ms), what to do."""

    code: str
    title: str
    explanation: str
    action: str
    party: str
    since_ms: int | None
    weight: int
    is_certain: bool


@dataclass(frozen=True)
class Gpu:
    """A GPU's place now. `weight` is None when unknown; `since_ms` is when the worst reason began."""

    place: int
    uuid: str
    bus_id: str
    model: str
    word: str
    marks: tuple[str, ...]
    weight: int | None
    lower: int
    upper: int
    causes: tuple[str, ...]
    conditions: tuple[Condition, ...]

    @property
    def short(self) -> str:
        """The first eight characters of the UUID proper, enough to tell GPUs of an org apart."""
        return self.uuid.removeprefix("GPU-").removeprefix("MIG-")[:8]

    @property
    def glyph(self) -> str:
        """A character that tells the state without its colour."""
        return GLYPHS[self.word] or ("·" if self.marks else "")

    @property
    def css(self) -> str:
        """The glyph's class: the state, or `mark` for what lowers nothing yet."""
        return "mark" if self.marks and self.word == "available" else self.word

    @property
    def since_ms(self) -> int | None:
        """When the worst of what holds now began."""
        return self.conditions[0].since_ms if self.conditions else None

    @property
    def reason(self) -> str:
        """A few words on why it is not simply available; empty when it is."""
        if self.word == "unknown":
            return ", ".join(title_of(code) for code in self.causes) or "No data"
        return ", ".join(condition.title for condition in self.conditions[:2])


@dataclass(frozen=True)
class NodeNow:
    """A node as its page row shows it: its GPUs, what holds for it.

    `word` is the worst state among its GPUs; a node without any is unknown.
    """

    is_silent: bool
    gpus: tuple[Gpu, ...]
    ports: tuple[Gpu, ...]
    conditions: tuple[Condition, ...]
    causes: tuple[str, ...]
    model: str
    driver: str
    broken_sources: tuple[str, ...]

    word: str
    counts: Mapping[str, int]
    installations: int = 1  # agents that it is heard from now
    is_overruled: bool = False  # the newest samples under its name were of an earlier boot, so they were not taken
    domain: str = ""  # the NVLink domain that its GPUs name

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to say of it: all is available and unmarked."""
        return self.counts["available"] == len(self.gpus) and not (
            self.is_silent
            or self.installations > 1
            or self.is_overruled
            or self.conditions
            or any(gpu.conditions for gpu in self.gpus)
            or any(port.conditions for port in self.ports)
        )

    def count(self, word: str) -> int:
        """How many of its GPUs are in this state."""
        return self.counts[word]


def reason_of(code: str) -> Reason | None:
    """The rule of a reason code, None for one that no rule knows."""
    return load_rules().of(code)


def title_of(code: str) -> str:
    """A reason's title; an unknown code stands for itself."""
    reason = reason_of(code)
    return reason.title if reason else code


def action_of(code: str) -> str:
    """What to do about a reason; empty when nothing helps."""
    reason = reason_of(code)
    action = reason.action.rstrip(". ") if reason else ""
    return "" if action.lower() in ("", "none") else re.sub(r"\b(gpu|rma)\b", lambda word: word[0].upper(), action)


def state_word(state: str, nominal: int | None) -> str:
    """The word for a verdict: available, degraded, down, held or unknown."""
    if state == "unknown" or nominal is None:
        return "unknown"
    if state == "held":
        return "held"
    return "down" if nominal == 0 else "degraded" if nominal < 100 else "available"


def is_silent(last_sample_ms: int | None, now_ms: int) -> bool:
    """Whether a node was not heard for longer than a late upload explains."""
    return last_sample_ms is None or now_ms - last_sample_ms > SILENT_AFTER_MS


@lru_cache(maxsize=REMEMBERED)
def read_summary(text: str, silent: bool) -> NodeNow:
    """What a summary says; a pure function of its text, which stays the same while nothing happens to a node."""
    summary = msgspec.json.decode(text)
    gpus, ports = [], []
    for entry in summary.get("subjects", ()):
        if entry.get("kind") == "gpu":
            gpus.append(_subject(entry, silent))
        elif entry.get("kind") == "port":
            ports.append(_subject(entry, silent))
    node = summary.get("node", {})
    sources = summary.get("sources", {})
    counts = {word: sum(gpu.word == word for gpu in gpus) for word in WORDS}
    silent = silent or (bool(gpus) and all(gpu.causes == ("NO_DATA",) for gpu in gpus))  # as the fold found it
    return NodeNow(
        is_silent=silent,
        gpus=tuple(sorted(gpus, key=lambda gpu: gpu.place)),
        ports=tuple(ports),
        conditions=_conditions(node),
        causes=("NO_DATA",) if silent else tuple(node.get("certain", ())),
        model=", ".join(sorted({gpu.model for gpu in gpus if gpu.model})),
        driver=summary.get("driver") or "",
        broken_sources=tuple(sorted(name for name, status in sources.items() if status not in ("ok", "absent"))),
        word=next((word for word in WORDS if counts[word]), "unknown"),
        counts=counts,
        installations=1 if silent else summary.get("installations", 1),
        is_overruled=bool(summary.get("overruled")),
        domain=summary.get("domain", ""),
    )


def _subject(entry: dict[str, Any], silent: bool) -> Gpu:
    subject = entry.get("subject", "")
    state = entry.get("state", "unknown")
    conditions = _conditions(entry)
    certain = tuple(entry.get("certain", ()))
    word = state_word(state, entry.get("nominal"))
    weight, lower, upper, causes = entry.get("nominal"), entry.get("lower", 100), entry.get("upper", 0), certain
    if silent:
        word, weight, lower, upper, causes = _silent(word, conditions)
    return Gpu(
        place=int(subject[1:]) if re.fullmatch(r"g\d{1,3}", subject) else -1,
        uuid=entry.get("device", ""),
        bus_id=entry.get("bus_id", ""),
        model=entry.get("model", "").removeprefix("NVIDIA "),
        word=word,
        marks=() if silent or state not in MARKS or _has_lasted(state, entry) else (state,),
        weight=weight,
        lower=lower,
        upper=upper,
        causes=causes if word == "unknown" else (),
        conditions=conditions if word != "unknown" else (),
    )


def _has_lasted(state: str, entry: dict[str, Any]) -> bool:
    """Whether an edge is no news: the newest slot of every lasting condition is one until its next evidence."""
    return state == "edge" and any(
        item.get("last_ms", 0) > item.get("since_ms", 0) for item in entry.get("conditions", ())
    )


def _silent(word: str, conditions: Iterable[Condition]) -> tuple[str, int | None, int, int, tuple[str, ...]]:
    """A subject of a silent node: held where a condition that can't end by itself was open, else unknown."""
    for condition in conditions:
        reason = reason_of(condition.code)
        if reason and reason.sticky and condition.weight == 0 and condition.is_certain and word in ("down", "held"):
            return "held", 0, 100, 0, ()
    return "unknown", None, 100, 0, ("NO_DATA",)


def _conditions(entry: dict[str, Any]) -> tuple[Condition, ...]:
    """What holds for a subject, worst first; a shown reason without a condition (a throttle) is one as well."""
    found = []
    for item in entry.get("conditions", ()):
        reason = reason_of(item.get("code", ""))
        found.append(
            Condition(
                code=item.get("code", ""),
                title=title_of(item.get("code", "")),
                explanation=reason.explanation if reason else "No rule knows this code; it lowers nothing.",
                action=action_of(item.get("code", "")),
                party=item.get("party", "none"),
                since_ms=item.get("since_ms"),
                weight=item.get("weight", 100),
                is_certain=bool(item.get("certain", False)),
            )
        )
    have = {condition.code for condition in found}
    if entry.get("state") != "unknown":
        for code, certain in [(c, True) for c in entry.get("certain", ())] + [
            (c, False) for c in entry.get("possible", ())
        ]:
            reason = reason_of(code)
            if code not in have and reason and reason.lowers:
                weight = entry.get("nominal", 100)
                found.append(
                    Condition(
                        code, reason.title, reason.explanation, action_of(code), reason.party, None, weight, certain
                    )
                )
    lowering = [c for c in found if c.weight < 100 or (reason_of(c.code) and reason_of(c.code).lowers)]  # type: ignore[union-attr]
    return tuple(sorted(lowering, key=lambda c: (c.weight, c.since_ms or 0, c.code)))


def to_ms(at: datetime) -> int:
    """ms since 1970 UTC."""
    return int(at.timestamp() * 1000)


def from_ms(ms: int) -> datetime:
    """An aware datetime, UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC)


def throttle_words(mask: int | None) -> str:
    """Clocks event reasons in words, what the rules know; `none`, or `–` for what is absent."""
    if mask is None:
        return "–"
    known = [reason for reason in load_rules().reasons.values() if reason.mask and mask & reason.mask]
    rest = mask & ~sum({reason.mask for reason in known})
    words = [reason.title for reason in known] + ([f"0x{rest:x}"] if rest else [])
    return ", ".join(words) or "none"
