"""Amendments: what an org lays over a rule set by date, with a reason, without touching its files.

The fold asks once an hour, at the hour's beginning, so an amendment is in force in whole hours. An hour's row names the
rule set and the amendments in force by `Rules.version` (`2026-11-30+` and twelve hex digits of a digest over them), and
its input digest holds the whole digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from fleet.domain.rules.model import Reason, Rules, RulesError, reason_from

#: What an amendment may change: what is decided, never which events and readings a reason is about.
AMENDABLE = (
    *("party", "severity", "weight", "lasts", "category", "needs", "ends", "ends_without_action", "own_slot"),
    *("persistence_samples", "symptom_of", "supersedes", "owner", "review", "action"),
)
_PLUS = "+"


@dataclass(frozen=True, slots=True)
class Amendment:
    """A dated change of one reason; make it by `amendment`. `changes`: (key, value) sorted by key, lists as tuples."""

    code: str
    changes: tuple[tuple[str, Any], ...]
    reason: str
    from_ms: int
    to_ms: int | None = None

    def is_in_force(self, at_ms: int) -> bool:
        """Whether it holds at this instant (half-open)."""
        return self.from_ms <= at_ms and (self.to_ms is None or at_ms < self.to_ms)

    def digest(self) -> str:
        """SHA-256 of its canonical form, hex."""
        form = [self.code, self.changes, self.reason, self.from_ms, self.to_ms]
        return hashlib.sha256(json.dumps(form, separators=(",", ":")).encode()).hexdigest()


def amendment(code: str, changes: Mapping[str, Any], reason: str, from_ms: int, to_ms: int | None = None) -> Amendment:
    """An amendment whose shape is sound; whether it fits a rule set is said by `amend`. Raises RulesError."""
    where = f"amendment of {code}"
    if not reason.strip():
        raise RulesError(f"{where}: reason: is missing")
    if not changes:
        raise RulesError(f"{where}: changes nothing")
    if to_ms is not None and to_ms <= from_ms:
        raise RulesError(f"{where}: ends before it begins")
    for key in changes:
        if key not in AMENDABLE:
            raise RulesError(f"{where}: {key}: cannot be amended; only {', '.join(AMENDABLE)}")
    plain = ((key, tuple(value) if isinstance(value, list) else value) for key, value in changes.items())
    return Amendment(code, tuple(sorted(plain)), reason.strip(), from_ms, to_ms)


def amend(rules: Rules, amendments: Iterable[Amendment], at_ms: int | None = None) -> Rules:
    """The rule set with the amendments in force at `at_ms` (None: with all of them); itself where there is none.

    Several of one reason: the later `from_ms` goes over the earlier. Raises RulesError for an amendment that the rule
    set does not allow: an unknown reason, a value that a rule file could not hold, two of one reason and instant.
    """
    chosen = sorted(
        (one for one in amendments if at_ms is None or one.is_in_force(at_ms)),
        key=lambda one: (one.from_ms, one.code, one.digest()),
    )
    if not chosen:
        return rules
    reasons = dict(rules.reasons)
    seen: set[tuple[str, int]] = set()
    for one in chosen:
        where = f"amendment of {one.code}"
        if one.code not in reasons:
            raise RulesError(f"{where}: there is no reason {one.code} in {rules.version}")
        if (one.code, one.from_ms) in seen:
            raise RulesError(f"{where}: two begin at one instant")
        seen.add((one.code, one.from_ms))
        reasons[one.code] = _amended(reasons[one.code], one)
    digests = tuple(one.digest() for one in chosen)
    digest = hashlib.sha256("\n".join((rules.digest, *digests)).encode()).hexdigest()
    version = f"{base_version(rules.version)}{_PLUS}{digest[:12]}"
    return Rules(version, digest, reasons, (*rules.amendments, *digests))


def base_version(version: str) -> str:
    """The rule set that a row's version names, its amendments aside.

    >>> base_version("2026-11-30+0123456789ab")
    '2026-11-30'
    """
    return version.partition(_PLUS)[0]


def _amended(old: Reason, one: Amendment) -> Reason:
    entry = {f.name: getattr(old, f.name) for f in fields(Reason) if f.name != "where"}
    entry = {key: value for key, value in entry.items() if value not in ((), "", -1)}
    entry.update(one.changes)
    entry["sources"] = tuple(dict.fromkeys((*old.sources, f"amendment: {one.reason}")))
    plain = {key: list(value) if isinstance(value, tuple) else value for key, value in entry.items()}
    return reason_from(f"{old.where}, amended", plain, {})
