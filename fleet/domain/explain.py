"""A verdict in words: what each of its reasons means, whose it is, what it needs and what would end it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from fleet.domain.rules import Reason, Rules
from fleet.domain.verdicts import State, Verdict

#: What a state means, as docs/fold.md says it.
STATES = {
    State.OBSERVED: "Evidence on both sides, or a sample of its own, says so.",
    State.EDGE: "A condition touches this slot, but bad evidence lies on one side only: claims count it as good.",
    State.PENDING: "A reason that needs corroboration has none yet: nothing is lowered but the upper reading.",
    State.CONTESTED: "Down by rule, but the GPU works: nothing is lowered but the upper reading; a review is open.",
    State.HELD: "A condition that cannot end by itself was open and nothing came since: claims count it as good.",
    State.UNKNOWN: "No evidence that decides: never down and never up; claims count it as good.",
}

_ENDS = {
    "reset": "a GPU reset line in the kernel log",
    "boot": "a new boot in which the device enumerates",
    "replaced": "a healthy device in its place",
    "action_none": "NVML's recovery action back to none",
    "powered": "twenty samples under power without a new event",
    "enumerates": "NVML listing the device again",
    "sample": "the next good sample",
    "event": "its own end event",
}
_ENDS_BY_ITSELF = {
    "slot": "its own slot only",
    "note": "its own slot only",
    "share": "the last throttled span",
    "witness": "the last slot that a witness observed",
    "unknown": "the next sample that says more",
    "hidden": "nothing to end, it is only watched",
}
_NEEDS = {
    "action": "a recovery action of NVML or an Xid 154",
    "missing": "the GPU missing by NVML or PCI",
    "nvml_errors": "NVML errors in two samples",
    "clocks": "clocks at half or below under load",
    "links": "inactive NVLinks",
    "witness": "a witness: a new boot, the probe, its peers",
    "owner": "the provider running the {owner}",
    "samples": "further samples",
}


@dataclass(frozen=True, slots=True)
class Explained:
    """One reason of a verdict in words; `holds` is `certain` or `possible`.

    `share`: the slot's own weight where the reason lowered it for a part of its time or of the GPU only; else None.
    """

    code: str
    holds: str
    title: str
    explanation: str
    party: str
    category: str
    weight: int
    needs: str
    ends: str
    action: str
    sources: tuple[str, ...]
    share: int | None = None


def explain(verdict: Verdict, rules: Rules) -> tuple[Explained, ...]:
    """The verdict's reasons in words, certain ones first; a code that the rule set does not know is said to be so."""
    out = [_explained(code, "certain", rules) for code in verdict.certain]
    lowering = [at for at, one in enumerate(out) if one.weight < 100]
    if len(lowering) == 1 and verdict.nominal is not None and out[lowering[0]].weight < verdict.nominal:
        out[lowering[0]] = replace(out[lowering[0]], share=verdict.nominal)
    return tuple(out + [_explained(code, "possible", rules) for code in verdict.possible])


def _explained(code: str, holds: str, rules: Rules) -> Explained:
    reason = rules.of(code)
    if reason is None:
        text = f"Rule set {rules.version} does not know this reason."
        return Explained(code, holds, code, text, "ambiguous", "none", 100, "", "", "", ())
    return Explained(
        code,
        holds,
        reason.title,
        reason.explanation,
        reason.party,
        reason.category,
        reason.weight,
        needs_of(reason),
        ends_of(reason),
        reason.action,
        reason.sources,
    )


def needs_of(reason: Reason) -> str:
    """What corroborates a reason, in words; empty when it needs nothing."""
    return _list(_need(need, reason) for need in reason.needs)


def ends_of(reason: Reason) -> str:
    """What ends a reason, in words; with and without NVML's recovery action where that differs."""
    if reason.lasts in _ENDS_BY_ITSELF:
        return _ENDS_BY_ITSELF[reason.lasts]
    ends = _list(_ENDS[end] for end in reason.ends)
    if reason.ends_without_action and set(reason.ends_without_action) != set(reason.ends):
        old = _list(_ENDS[end] for end in reason.ends_without_action)
        return f"{ends}; on drivers without a recovery action {old}"
    return ends


def also_of(reason: Reason, rules: Rules) -> tuple[str, ...]:
    """What else a rule decides, each in a sentence: samples in a row, whose driver or fabric, what stands before it."""

    def names(codes: Iterable[str]) -> str:
        return _list(rules.reasons[code].title for code in codes)

    out = [f"Takes {reason.persistence_samples} samples in a row."] if reason.persistence_samples > 1 else []
    if reason.owner:
        out.append(f"Infrastructure's only where the contract says that the provider runs the {reason.owner}.")
    if reason.symptom_of:
        out.append(f"Opens no incident of its own beside: {names(reason.symptom_of)}.")
    if reason.supersedes:
        out.append(f"Stands for both where this holds as well: {names(reason.supersedes)}.")
    if reason.own_slot:
        out.append(f"The slot of its event counts at once, as: {names([reason.own_slot])}.")
    if reason.review and "review" not in reason.explanation:
        out.append("Opens a review.")
    return tuple(out)


def _need(need: str, reason: Reason) -> str:
    return f"Xid {need[4:]}" if need.startswith("xid:") else _NEEDS[need].format(owner=reason.owner)


def _list(parts: Iterable[str]) -> str:
    texts = list(parts)
    if len(texts) < 2:
        return "".join(texts)
    return f"{', '.join(texts[:-1])} or {texts[-1]}"
