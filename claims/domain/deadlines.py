"""When a claim can be filed and when it is too late, what its ticket must say and what is still missing."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from claims.domain.contract import Contract, Deadline, Unit
from claims.domain.evaluate import POOLED
from claims.domain.incidents import Incident
from claims.domain.money import percent_text
from claims.domain.periods import Period, utc_text, zone_of
from claims.domain.result import Result
from fleet.domain.slots import slot_start

#: Fields that a filing needs whatever the provider asks for, and how a person calls them.
ALWAYS_NEEDED = {
    "account": "account, subscription or project",
    "resource_ids": "the provider's own ids of the resources",
    "contact": "name and address of the person who files",
}


SHOWN = 8  # names in a list of what is missing


@dataclass(frozen=True, slots=True)
class Window:
    """A claim can be filed in `[opens_ms, closes_ms)`; `closes_ms` is None where the contract does not say.

    `about`: the period's label, or the incident's unit and first instant. `why`: the rule in words.
    """

    about: str
    opens_ms: int
    closes_ms: int | None
    why: str

    def left_ms(self, now_ms: int) -> int | None:
        """Milliseconds until it closes, 0 when it has."""
        return None if self.closes_ms is None else max(0, self.closes_ms - now_ms)


def windows(contract: Contract, period: Period, found: Mapping[str, Sequence[Incident]]) -> list[Window]:
    """The filing windows of a month, the first to close first; those that never close last.

    After the period's end there is one; counted from incidents each has its own (sla.md trap 27). Days and months are
    those of the calendar in the contract's zone, to the same wall time; the 31st becomes a month's last day.
    """
    rule = contract.deadline
    zone = contract.zone or "UTC"
    if rule is None or rule.after == "period_end":
        closes = None if rule is None else _after(period.end_ms, rule, zone)
        return [Window(period.label, period.end_ms, closes, _words(contract))]
    out = []
    for unit, incidents in found.items():
        for one in incidents:
            start, end = slot_start(one.first_slot), slot_start(one.end_slot)
            event = start if rule.after == "incident_start" else end
            out.append(Window(f"{unit} {utc_text(start)}", start, _after(event, rule, zone), _words(contract)))
    return sorted(out, key=lambda window: (window.closes_ms or 0, window.about))


@dataclass(frozen=True, slots=True)
class Draft:
    """A ticket as text. `missing`: what it must still say; nothing is filed by itself."""

    subject: str
    body: str
    missing: tuple[str, ...]


def opening_ticket(contract: Contract, unit: Unit, incident: Incident, known: Mapping[str, str]) -> Draft:
    """The ticket to open at detection: it starts the clock where the contract says so, and keeps the claim possible.

    `known`: what is entered beside the contract (`account`, `resource_ids`, `contact`, answers to its own list of
    evidence by its words); it goes before what the contract says.
    """
    start = utc_text(slot_start(incident.first_slot))
    lines = [
        f"{unit.name} has been unavailable since {start} (UTC).",
        "Reasons seen: " + (", ".join(code for code, _ in incident.reasons) or "none") + ".",
        "Please confirm the time at which you received this report and the time at which you confirm the fault.",
        "We expressly reserve the service credit that our agreement gives for this outage.",
    ]
    subject = contract.filing_subject or f"Outage of {unit.name} since {start}"
    return _draft(contract, subject, lines, known, (unit,))


def claim_ticket(
    contract: Contract, result: Result, found: Mapping[str, Sequence[Incident]], known: Mapping[str, str]
) -> Draft:
    """The text that asks for the credit in so many words: each outage with its UTC instants, uptime, amount."""
    amount = "no credit" if result.claim is None else f"{result.claim} {result.currency}".strip()
    lines = [
        f"We expressly request the service credit for {result.period.label}: {amount}.",
        f"Period: {utc_text(result.period.start_ms)} to {utc_text(result.period.end_ms)} (UTC).",
    ]
    for unit in result.units:
        uptime = percent_text(unit.readings[result.basis].uptime)
        lines.append(f"{unit.name}: uptime {uptime} % by the terms of {contract.name}, version {contract.version}.")
        for one in found.get(unit.name, ()):
            reasons = ", ".join(f"{code} {seconds} s" for code, seconds in one.reasons)
            start, end = utc_text(slot_start(one.first_slot)), utc_text(slot_start(one.end_slot))
            lines.append(f"  {start} to {end} (UTC), {one.counted_s} s counted: {reasons}")
    subject = contract.filing_subject or f"SLA credit request, {contract.name}, {result.period.label}"
    units = contract.units if result.units and result.units[0].name == POOLED else _units_of(contract, result)
    draft = _draft(contract, subject, lines, known, units)
    if result.claim is None:
        return Draft(draft.subject, draft.body, (f"a result: it reads {result.status}", *draft.missing))
    return draft


def _units_of(contract: Contract, result: Result) -> tuple[Unit, ...]:
    """The units that a credit is asked for; all of them where it is for none by itself."""
    asked = {unit.name for unit in result.units if unit.readings[result.basis].credit.amount}
    return tuple(unit for unit in contract.units if unit.name in asked) or contract.units


def _draft(
    contract: Contract, subject: str, lines: Iterable[str], known: Mapping[str, str], units: Sequence[Unit]
) -> Draft:
    said = {"account": contract.account, "contact": contract.contact, "resource_ids": _ids(units), **known}
    body = list(lines)
    missing = []
    for key, name in (*ALWAYS_NEEDED.items(), *((one, one) for one in contract.evidence)):
        if said.get(key):
            body.append(f"{name[:1].upper()}{name[1:]}: {said[key]}")
        nameless = [unit.name for unit in units if not unit.provider_id] if key == "resource_ids" else []
        if not said.get(key):
            missing.append(name)
        elif nameless and key not in known:
            missing.append(f"{name}: {', '.join(nameless[:SHOWN])}{' and more' * (len(nameless) > SHOWN)}")
    if not contract.filing_channel:
        missing.append("the channel by which the provider takes claims")
    return Draft(subject, "\n".join(body) + "\n", tuple(missing))


def _ids(units: Sequence[Unit]) -> str:
    return ", ".join(f"{unit.name} = {unit.provider_id}" for unit in units if unit.provider_id)


def _after(event_ms: int, rule: Deadline, zone: str) -> int:
    moment = datetime.fromtimestamp(event_ms / 1000, UTC).astimezone(zone_of(zone)).replace(tzinfo=None)
    if rule.unit == "days":
        moment += timedelta(days=rule.count)
    else:
        month = moment.month - 1 + rule.count
        year, month = moment.year + month // 12, month % 12 + 1
        moment = moment.replace(year=year, month=month, day=min(moment.day, monthrange(year, month)[1]))
    return round(moment.replace(tzinfo=zone_of(zone)).timestamp() * 1000)


def _words(contract: Contract) -> str:
    if contract.deadline is None:
        said = contract.claim_deadline
        return f"The contract says: {said}" if said else "The contract does not say by when to claim."
    rule = contract.deadline
    return f"{rule.count} {rule.unit} after the {rule.after.replace('_', ' ')}."
