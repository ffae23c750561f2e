"""What a pack's numbers must come to: the result from its runs, and the runs from its batches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from claims.document import document_of
from claims.domain.assemble import assemble
from claims.domain.contract_load import contract_from_json, digest
from claims.domain.month_runs import VerdictRun
from claims.domain.periods import build
from claims.domain.result import AutomaticCredit, Inputs
from claims.domain.rows import Row
from claims.domain.rule_spans import Translator
from claims.errors import PackError
from claims.verify.beside import Under, beside, is_amended, without_amendments
from claims.verify.documents import read
from claims.verify.documents import runs as decoded
from claims.verify.folding import fold_enclosed, slots_of
from claims.verify.rule_sets import base_of, rules_of
from claims.verify.setting import Replayed

Files = Mapping[str, bytes]


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
    for one in read(files, "inputs.json")["node_months"]:
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
    is_simulated = bool(read(files, "result.json")["is_simulated"])
    found = document_of(terms, inputs, frozen["contract"], frozen["overlays"], is_simulated, frozen["computed_ms"])
    amended = rules_of(files)
    if found["is_over"] and is_amended(amended, inputs.period):
        base = base_of(files)
        plain = without_amendments(amended, base)
        folded = [
            (window["node_id"], *slots_of(window), fold_enclosed(files, window, Under(Replayed(plain, setting), plain)))
            for window in read(files, "windows.json")
            for setting in [window["setting"]]
        ]
        found["unamended"] = beside(terms, inputs, nodes_of(files), folded, amended, base)
    return found


__all__ = ["inputs_of", "nodes_of", "result_of", "row_of"]
