"""The form of a new contract: a catalogue entry's terms, completed by a person. Fields are those of a contract file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from claims.catalog import Entry
from claims.domain.contract import Contract as Terms
from claims.domain.contract_load import contract_from
from claims.errors import ContractError

#: Fields with a place of their own; everything else stands in `terms` as JSON.
PLACES = (
    "name", "effective_from", "effective_to", "zone", "currency", "fee_charged", "min_healthy", "pooling",
    "ambiguous_counts", "owns_driver", "owns_fabric", "customer", "account", "contact",
)  # fmt: skip
MAX_GPUS = 64


def form_of(entry: Entry | None, data: Mapping[str, str] | None) -> dict[str, str]:
    """What stands in the fields: what was typed, else the entry's."""
    if data is not None:
        return {key: str(value) for key, value in data.items()}
    template = {} if entry is None else entry.template()
    out = {key: _shown(template[key]) for key in PLACES if key in template}
    rest = {key: value for key, value in template.items() if key not in PLACES}
    if entry is None:
        rest = {
            "version": "1",
            "kind": "tiers",
            "scope": "node",
            "counts": ["hardware_failure"],
            "tiers": [["99.5", "10"]],
        }
    return {**out, "terms": json.dumps(rest, indent=1, default=str, ensure_ascii=False), "gpus": "8"}


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def contract_from_form(data: Mapping[str, str], entry: Entry | None) -> tuple[Terms, str]:
    """(terms, the instant from which every unit is owed; '' where none was given). Raises ContractError."""
    try:
        document = json.loads(data.get("terms", "") or "{}", parse_float=Decimal)
    except ValueError as error:
        raise ContractError(f"The terms are no JSON: {error}", "terms") from error
    if not isinstance(document, dict):
        raise ContractError("The terms are no JSON object.", "terms")
    for key in PLACES:
        if text := data.get(key, "").strip():
            document[key] = text
    if "units" not in document:
        document["units"] = units_of(data.get("nodes", ""), data.get("gpus", ""), str(document.get("scope", "")))
    document.setdefault("version", "1")
    if entry is not None:
        document.setdefault("source", entry.source)
    entitled = data.get("entitled_from", "").strip()
    return contract_from(document), f"{entitled}T00:00:00Z" if len(entitled) == 10 else entitled


def units_of(nodes: str, gpus: str, scope: str) -> list[dict[str, Any]]:
    """One node a line, perhaps with the provider's own id (`gpu-017 = i-0abc`); each is a unit with its GPUs as
    members, or each GPU is one where the scope says so.
    """
    if not gpus.strip().isascii() or not gpus.strip().isdigit() or not 1 <= int(gpus) <= MAX_GPUS:
        raise ContractError(f"GPUs per node: a number from 1 to {MAX_GPUS}.", "gpus")
    ids: dict[str, str] = {}
    for line in nodes.splitlines():
        name, _, own = line.partition("=")
        if name.strip():
            ids[name.strip()] = own.strip()
    places = {name: [f"{name}/gpu{index}" for index in range(int(gpus))] for name in ids}
    if scope == "gpu":
        return [{"name": place, **_own(ids[name])} for name, members in places.items() for place in members]
    return [{"name": name, "members": members, **_own(ids[name])} for name, members in places.items()]


def _own(provider_id: str) -> dict[str, str]:
    return {"provider_id": provider_id} if provider_id else {}
