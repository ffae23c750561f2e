"""Figures of result.json as people read them: floored percentages, spans, money. Nothing is computed anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

STATUS_WORDS = {
    "ok": "complete",
    "incomplete": "the contract is incomplete: no claim",
    "insufficient_data": "insufficient data: no claim",
    "not_measurable": "not measurable: nobody watched the connection",
}


#: What a contract does not say where it moves money, as a person would look it up.
MISSING_WORDS = {
    "allowance": "whether the allowance is taken off or only says from when on all counts",
    "ambiguous_counts": "whether a fault of unknown cause counts",
    "auto_credit_rule": "how automatic credits are taken off",
    "bridging_s": "how long a pause may be inside one outage",
    "cap": "the most that is paid",
    "clock_start": "when an outage begins: as measured, with the ticket, or when it is acknowledged",
    "denominator": "whether the whole month or the time of existence divides",
    "excludes": "which maintenance and other time is excluded",
    "exclusion_mode": "whether excluded time counts as up or is left out",
    "fee_charged": "the fee",
    "hourly_price": "the price of an hour",
    "min_duration_s": "how long an outage must be to count",
    "min_duration_compare": "whether an outage of exactly the least length counts",
    "min_duration_test": "whether the least length is asked of the whole outage or of its part in the month",
    "min_healthy": "how many members must be healthy",
    "minimum": "the least that is paid",
    "minute_rule": "how minutes are counted",
    "owns_driver": "who runs the GPUs' driver: a hang of the GPU's firmware is the provider's only where it does",
    "owns_fabric": "who runs the fabric between the nodes",
    "pooling": "whether each unit is judged by itself or all together",
    "steps": "whether only full steps of a repair count, or started ones too",
    "stop_clock": "whether a ticket's pauses stop the clock",
    "zone": "the time zone of its months",
}


def missing_words(field: str) -> str:
    """`who runs the GPUs' driver … (owns_driver)`: what is missing, and the field to write it in."""
    words = MISSING_WORDS.get(field)
    return field if words is None else f"{words} ({field})"


def percent(share: Mapping[str, str] | None, digits: int = 2) -> str:
    """The floored percentage of a share of result.json; `–` where there is none."""
    if not share:
        return "–"
    left, _, right = share["percent_floor_6"].partition(".")
    return f"{left}.{right[:digits]}" if digits else left


def span(seconds: str | int | None) -> str:
    """`3 h 11 min 30 s`; a fraction of a second is shown as it is."""
    if seconds is None or seconds == "":
        return "–"
    text = str(seconds)
    if "/" in text:
        over, _, under = text.partition("/")
        text = str(int(over) // int(under))
    total = int(text)
    days, rest = divmod(total, 86_400)
    parts = [(days, "d"), (rest // 3600, "h"), (rest // 60 % 60, "min"), (rest % 60, "s")]
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "0"


def money(amount: str | None, currency: str = "") -> str:
    """`€ 4,318.00`; `–` without an amount."""
    if amount is None or amount == "":
        return "–"
    sign = {"EUR": "€ ", "USD": "$ ", "GBP": "£ ", "": ""}.get(currency, f"{currency} ")
    left, _, right = str(amount).partition(".")
    digits = f"{int(left):,}" if left.lstrip("-").isdigit() else left
    minus = "-" if left.startswith("-0") else ""
    return f"{sign}{minus}{digits}.{right:0<2}"


def best_unit(result: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The unit whose uptime is the lowest in the reading that the claim rests on: the one that a head line shows."""
    basis = result["claim_rests_on"]
    rated = [unit for unit in result["units"] if unit["readings"][basis]["uptime"] is not None]
    return min(rated, key=lambda unit: _exact(unit["readings"][basis]["uptime"]["exact"]), default=None)


def _exact(text: str) -> float:
    over, _, under = text.partition("/")
    return int(over) / int(under or 1)


DIVISORS = {
    "full_month": "The divisor is the whole period: time that was not owed or that the owner stopped is up in it.",
    "existence": "The divisor is the time owed: time before delivery, after return or stopped by the owner is out.",
}


def method(document: Mapping[str, Any], inputs: Mapping[str, Any] | None = None) -> list[str]:
    """How the numbers were made, in sentences: the same on the page and on paper."""
    contract = document["contract"]
    divisor = DIVISORS["existence" if contract["kind"] == "weighted" else contract["denominator"] or "existence"]
    out = [
        "Time is cut into slots of 15 s. Each verdict follows from the enclosed rule set by the uploads of the nodes;"
        " the contract's rule is then replayed over the verdicts in three readings: with unknown time up, left out, and"
        " down.",
        "The claim is the least credit of the three. Unknown time, one-sided evidence and time under an exclusion are"
        " up in the claim. Half a slot on each side of a condition is in no reading.",
        divisor,
    ]
    if inputs is not None:
        out.append(
            f"Dated rows applied: {len(inputs['overlays'])}. Witnesses of the connection: {inputs['witnesses']}."
        )
        spans = inputs["rules"].get("spans", ())
        if len(spans) > 1:
            names = ", ".join(span["version"] for span in spans)
            out.append(f"The rules changed meanwhile; each verdict is read by those of its own hour: {names}.")
    return out


def summary_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """A report in a few lines."""
    assessment = document["assessment"]
    yield f"status     {STATUS_WORDS[assessment['status']]}"
    if assessment["missing"]:
        yield f"missing    {'; '.join(map(missing_words, assessment['missing']))}"
    result = assessment.get("result")
    for name in ("least", "most"):
        if name in assessment:
            one = assessment[name]
            yield f"{name:10s} {money(one['claim'], one['currency'])} if what is missing is read so"
    if result is not None:
        yield f"claim      {money(result['claim'], result['currency'])} ({result['claim_rests_on']} reading)"
        unit = best_unit(result)
        if unit is not None:
            readings = unit["readings"]
            yield (
                f"uptime     {percent(readings['lower']['uptime'], 4)} % of {unit['name']}, the lowest;"
                f" {percent(readings['upper']['uptime'], 4)} % if all unknown time were down"
            )
        yield f"coverage   {percent(result['coverage']['share'])} %"
    found = document["capability"]
    yield (
        f"capability {percent(found['availability'], 4)} % ({percent(found['worst'])} to {percent(found['best'])})"
        f" of {found['gpus']} GPUs"
    )
    if document["is_simulated"]:
        yield "simulated  these nodes are simulated: nothing here is owed by anybody"
