"""What a pack's numbers must come to: the result from its runs, and the runs from its batches."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from agent import wire
from claims.document import document_of
from claims.domain.assemble import assemble
from claims.domain.contract_load import contract_from_json, digest
from claims.domain.month_runs import VerdictRun, collect
from claims.domain.periods import build
from claims.domain.result import AutomaticCredit, Inputs
from claims.domain.rows import Row
from claims.domain.rule_spans import RuleSpan, Translator, read_spans
from claims.errors import PackError
from claims.verify.beside import Under, beside, is_amended, without_amendments
from claims.verify.documents import read
from claims.verify.documents import runs as decoded
from claims.verify.setting import Replayed
from fleet.domain.context import Dated
from fleet.domain.node_hours import ReceivedBatch, refold
from fleet.domain.rules import Rules, read_rules
from fleet.domain.slots import HOUR_MS, SLOTS_PER_HOUR
from fleet.domain.state import FORMAT, NodeState

Files = Mapping[str, bytes]
FOLLOWING = 24  # hours behind a window that an undecided jump of a clock may ask for


def base_of(files: Files) -> Callable[[str], Rules]:
    """What gives an enclosed rule set by its version, without amendments."""

    def base(version: str) -> Rules:
        folder = f"rules/{version}/"
        return _read_rules(version, tuple((n.rpartition("/")[2], b) for n, b in files.items() if n.startswith(folder)))

    return base


@lru_cache(maxsize=16)
def _read_rules(version: str, texts: tuple[tuple[str, bytes], ...]) -> Rules:
    return read_rules(version, {name: raw.decode() for name, raw in texts})


def rules_of(files: Files) -> list[RuleSpan]:
    """The rule sets that the pack encloses, by their time, as they were amended."""
    return read_spans(json.loads(files["inputs.json"])["rules"]["spans"], base_of(files))


def row_of(plain: Mapping[str, Any]) -> Row:
    """An overlay as the arithmetic takes it."""

    def number(key: str) -> int | None:
        return None if plain[key] is None else int(plain[key])

    return Row(
        plain["kind"],
        plain["resource"],
        int(plain["first_slot"]),
        number("end_slot"),
        plain["author"],
        None,
        number("acknowledged_slot"),
        tuple((int(a), int(b)) for a, b in plain["pauses"]),
        number("notice_s"),
        plain["reference"],
        plain["provider_word"],
    )


def inputs_of(files: Files) -> tuple[Any, Inputs]:
    """(terms, inputs) of the pack's files."""
    frozen = json.loads(files["inputs.json"])
    terms = contract_from_json(files["contract.json"])
    if digest(terms) != frozen["contract"]["digest"]:
        raise PackError("contract.json is not the contract that the report was computed under.")
    spans = rules_of(files)
    first, end = frozen["looked_at"]
    facts = assemble([(name, runs) for _, name, runs in nodes_of(files)], first, end, Translator(spans).over)
    invoice = frozen["invoice"]
    money: dict[str, Any] = {}
    if invoice is not None:
        spend = invoice["previous_month_spend"]
        money = {
            "fees": {unit: Decimal(amount) for unit, amount in invoice["fees"].items()},
            "automatic": [
                AutomaticCredit(a["unit"], Decimal(a["amount"]), a.get("reference", "")) for a in invoice["automatic"]
            ],
            "invoice_complete": invoice["is_complete"],
            "previous_month_spend": None if spend is None else Decimal(spend),
        }
    period = build(terms.period_kind, frozen["month"], terms.zone or "UTC", terms.anchor_day)
    rows = [row_of(one) for one in frozen["overlays"]]
    witnessed = {name: [(int(a), int(b)) for a, b in found] for name, found in frozen.get("witnessed", {}).items()}
    return terms, Inputs(period, facts, rows, witnessed, first, end, **money)


def nodes_of(files: Files) -> list[tuple[str, str, dict[str, list[VerdictRun]]]]:
    """(id, name, runs) of every node in the order in which the report took them: of two nodes of one name the later is
    the newer hardware. Raises PackError.
    """
    runs: dict[str, dict[str, list[VerdictRun]]] = {}
    names = {}
    for one in json.loads(files["inputs.json"])["node_months"]:
        raw = files[f"runs/{one['id']}-{one['month']}.json"]
        if hashlib.sha256(raw).hexdigest() != one["digest"]:
            raise PackError(f"The runs of {one['node']} in {one['month']} are not those of the report.")
        names[one["id"]] = one["node"]
        for subject, line in decoded(raw).items():
            runs.setdefault(one["id"], {}).setdefault(subject, []).extend(line)
    return [(one, names[one], runs[one]) for one in runs]


def result_of(files: Files) -> dict[str, Any]:
    """result.json computed again from the pack's runs, contract, rows and rules; under amended rules from the claimed
    hours' batches as well, for the result that stands beside.
    """
    frozen = json.loads(files["inputs.json"])
    terms, inputs = inputs_of(files)
    is_simulated = bool(json.loads(files["result.json"])["is_simulated"])
    found = document_of(terms, inputs, frozen["contract"], frozen["overlays"], is_simulated, frozen["computed_ms"])
    amended = rules_of(files)
    if found["is_over"] and is_amended(amended, inputs.period):
        base = base_of(files)
        plain = without_amendments(amended, base)
        folded = [
            (window["node_id"], *_slots(window), fold_enclosed(files, window, Under(Replayed(plain, setting), plain)))
            for window in read(files, "windows.json")
            for setting in [window["setting"]]
        ]
        found["unamended"] = beside(terms, inputs, nodes_of(files), folded, amended, base)
    return found


def gunzip(body: bytes) -> bytes:
    """The content of one gzip member, bounded. Raises PackError."""
    stream = zlib.decompressobj(wbits=31)
    try:
        raw = stream.decompress(body, wire.MAX_RAW_BYTES + 1)
    except zlib.error as error:
        raise PackError("A batch is no gzip member.") from error
    if len(raw) > wire.MAX_RAW_BYTES or not stream.eof or stream.unused_data:
        raise PackError("A batch is not exactly one gzip member.")
    return raw


def decoder() -> Callable[[bytes], Any]:
    """msgspec's where it is present, else the one of the standard library."""
    try:
        from fleet.decode import decode_trusted
    except ImportError:
        from claims.verify.unpack import decode as plain

        return plain
    return decode_trusted


class BatchFacts(NamedTuple):
    """What other checks than the fold need of a batch: the hash of its content, hex, its samples' instants (ms), what
    its clocks said.
    """

    sha256: str
    instants: tuple[int, ...]
    clocks: tuple[str, ...]
    errors_ms: tuple[int, ...]


class Folded(NamedTuple):
    """What a window's batches fold to: how many slots, what is wrong with them ('': they are what the report used), and
    the facts of each batch by its hash.
    """

    slots: int
    wrong: str
    facts: list[tuple[str, BatchFacts]]


def fold_one(files: Files, number: int) -> Folded:
    """Fold the window of this number and compare it with the runs that the report used.

    Both are clipped to the window's hours, which leave out the margin that closes the last stretch.
    """
    window = read(files, "windows.json")[number]
    folded = fold_enclosed(files, window, Replayed(rules_of(files), window["setting"]))
    parts: dict[str, list[Any]] = {}
    for month in window["months"]:
        for subject, line in decoded(files[f"runs/{window['node_id']}-{month}.json"]).items():
            parts.setdefault(subject, []).extend(line)
    low, high = _slots(window)
    found, used = clipped(folded, low, high), clipped(parts, low, high)
    wrong = ""
    if found != used:
        subject = next(one for one in sorted({*found, *used}) if found.get(one) != used.get(one))
        wrong = (
            f"The batches of {window['node']} from hour {window['first_hour']} on give other verdicts for {subject}"
            " than the report used."
        )
    facts = [(sha, facts_of_batch(files[f"batches/{sha}.msgpack.gz"])) for sha in window["batches"]]
    return Folded(sum(b - a for line in found.values() for a, b, _ in line), wrong, facts)


def _received(files: Files) -> dict[str, int]:
    """When each batch of the skeleton was received, ms."""
    return _instants(files["skeleton.json"])


@lru_cache(maxsize=2)
def _instants(skeleton: bytes) -> dict[str, int]:
    lines = read({"skeleton.json": skeleton}, "skeleton.json")
    return {one["sha256"]: int(one["received_us"]) // 1000 for one in lines}


def _slots(window: Mapping[str, Any]) -> tuple[int, int]:
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
        body = files[f"batches/{sha}.msgpack.gz"]
        raw = gunzip(body)
        batch = unpack(raw)
        facts = remember(body, raw, batch)
        batches.append(ReceivedBatch(bytes.fromhex(sha), received[sha], batch))
        if "moved" in window and sha not in window["moved"]:  # an older pack does not say which ones were
            hours[bytes.fromhex(sha)] = min(facts.instants) // HOUR_MS, max(facts.instants) // HOUR_MS
    opening = NodeState.from_bytes(files[window["state"]]) if window["state"] else None
    return fold_window(opening, window["first_hour"], window["last_hour"], batches, dated, hours)


def other_state_format(files: Files) -> int | None:
    """The format of the pack's states where it is a whole number and another one than this release folds from."""
    for name in sorted(one for one in files if one.startswith("states/")):
        raw = files[name]
        try:
            form = json.loads(raw[3 : 3 + int.from_bytes(raw[:3], "big")])[0]
        except (ValueError, IndexError, KeyError, TypeError):
            continue  # no state at all: the fold says so
        if isinstance(form, int) and form != FORMAT:
            return form
    return None


#: Facts by the batch's own bytes, so that no pack can leave wrong ones behind for another.
_known: dict[bytes, BatchFacts] = {}
MOST_KNOWN = 200_000


def remember(body: bytes, raw: bytes, batch: Any) -> BatchFacts:
    """Keep the facts of a batch that was decoded anyway: `body` as it was packed, `raw` without the gzip."""
    clocks = [interval.clock for interval in batch.intervals if interval.clock is not None]
    found = BatchFacts(
        hashlib.sha256(raw).hexdigest(),
        tuple(interval.ts for interval in batch.intervals),
        tuple(clock.status for clock in clocks),
        tuple(clock.error_ms for clock in clocks if clock.error_ms is not None),
    )
    _keep(body, found)
    return found


def _keep(body: bytes, found: BatchFacts) -> None:
    if len(_known) >= MOST_KNOWN:
        _known.clear()
    _known[body] = found


def forget() -> None:
    """Drop what is remembered of batches and rules, for who measures."""
    _known.clear()
    _read_rules.cache_clear()


def keep_facts(files: Files, facts: Iterable[tuple[str, BatchFacts]]) -> None:
    """Keep what another process found of these batches of the pack."""
    for sha, found in facts:
        _keep(files[f"batches/{sha}.msgpack.gz"], found)


def facts_of_batch(body: bytes) -> BatchFacts:
    """The facts of a batch, decoded once."""
    if (found := _known.get(body)) is not None:
        return found
    raw = gunzip(body)
    return remember(body, raw, decoder()(raw))


def hash_of_batch(body: bytes) -> str:
    """The SHA-256 of a batch's content, hex. Raises PackError."""
    found = _known.get(body)
    return hashlib.sha256(gunzip(body)).hexdigest() if found is None else found.sha256


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
    return collect(done.rows[hour] for hour in sorted(done.rows) if first <= hour <= last)


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


__all__ = ["Folded", "fold_one", "gunzip", "inputs_of", "result_of", "rules_of"]
