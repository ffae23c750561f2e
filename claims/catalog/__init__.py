"""Providers' published terms as dated data, one TOML file a provider.

An entry is no contract: it names no unit, fee or zone, and leaves out what its text did not say. `template` turns it
into the fields of one, to be completed and confirmed by a person. An entry that the arithmetic can't express says why.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

from claims.domain.contract import Contract
from claims.domain.contract_load import contract_from
from claims.errors import CatalogError, ContractError, NotExpressible

_FOLDER = Path(__file__).parent
CONFIDENCES = ("high", "medium", "low")
_TEXTS = (
    "id", "provider", "service", "source", "effective", "checked_on", "confidence", "confirm", "counts_as_down",
    "fee_base", "claim_deadline", "filing_channel",
)  # fmt: skip
_LISTS = ("read_at", "exclusions", "evidence", "hides", "lacks")
#: What the check of steps that no contract can use needs beside them.
_ANY = {"name": "x", "version": "1", "kind": "tiers", "counts": ["degraded"], "scope": "node"}
#: What only a customer's own contract can say.
_NOT_HERE = ("units", "fee_charged", "fees", "zone", "currency", "name", "version")


@dataclass(frozen=True, slots=True)
class Entry:
    """One service's published terms. `hides`: what a plain reading overlooks; `lacks`: parts that the arithmetic
    leaves out; `not_expressible`: why there is no template at all, '' where there is one. `terms`: contract fields.
    """

    id: str
    provider: str
    service: str
    source: str
    effective: str
    checked_on: str
    confidence: str
    confirm: str
    counts_as_down: str
    fee_base: str
    claim_deadline: str
    filing_channel: str
    read_at: tuple[str, ...]
    exclusions: tuple[str, ...]
    evidence: tuple[str, ...]
    hides: tuple[str, ...]
    lacks: tuple[str, ...]
    not_expressible: str
    terms: Mapping[str, Any]

    def template(self) -> dict[str, Any]:
        """The fields of a contract with these terms. Raises NotExpressible."""
        if self.not_expressible:
            raise NotExpressible(f"{self.id} can't be expressed: {self.not_expressible}")
        return {
            "name": self.id,
            "version": self.checked_on,
            "provider": self.provider,
            "source": self.source,
            "claim_deadline": self.claim_deadline,
            "filing_channel": self.filing_channel,
            "evidence": list(self.evidence),
            **self.terms,
        }

    def contract(self) -> Contract:
        """The template as a contract, incomplete as it is. Raises NotExpressible."""
        return contract_from(self.template())


@lru_cache(maxsize=1)
def load_catalog() -> tuple[Entry, ...]:
    """Every entry, by id. Raises CatalogError naming file, entry and key."""
    return read_catalog({path.name: path.read_text() for path in sorted(_FOLDER.glob("*.toml"))})


def read_catalog(files: Mapping[str, str]) -> tuple[Entry, ...]:
    """The validated entries of these texts (file name → TOML), sorted by id. Raises CatalogError."""
    entries: dict[str, Entry] = {}
    for name, text in files.items():
        try:
            document = tomllib.loads(text, parse_float=Decimal)
        except tomllib.TOMLDecodeError as error:
            raise CatalogError(f"{name}: {error}") from error
        if set(document) != {"entry"} or not isinstance(document["entry"], list):
            raise CatalogError(f"{name}: a catalogue file holds [[entry]] tables and nothing else.")
        for table in document["entry"]:
            entry = _entry(name, table)
            if entry.id in entries:
                raise CatalogError(f"{name}: {entry.id} is there twice.", "id")
            entries[entry.id] = entry
    return tuple(entries[key] for key in sorted(entries))


def _entry(file: str, table: Mapping[str, Any]) -> Entry:
    where = f"{file}: {table.get('id', '?')}"
    for key in table:
        if key not in (*_TEXTS, *_LISTS, "not_expressible", "tiers", "contract"):
            raise CatalogError(f"{where}: unknown key {key!r}.", key)
    for key in _TEXTS:
        if not isinstance(table.get(key), str) or not table[key]:
            raise CatalogError(f"{where}: {key} must be a text.", key)
    for key in _LISTS:
        if not isinstance(table.get(key), list) or not all(isinstance(one, str) and one for one in table[key]):
            raise CatalogError(f"{where}: {key} must be a list of texts.", key)
    if not table["hides"]:
        raise CatalogError(f"{where}: hides must say what a plain reading overlooks.", "hides")
    if table["confidence"] not in CONFIDENCES:
        raise CatalogError(f"{where}: confidence must be one of {', '.join(CONFIDENCES)}.", "confidence")
    if "must confirm" not in table["confirm"]:
        raise CatalogError(f"{where}: confirm must say that a person must confirm the terms at the source.", "confirm")
    if not table["source"].startswith("https://"):
        raise CatalogError(f"{where}: source must be an https address.", "source")
    try:
        date.fromisoformat(table["checked_on"])
    except ValueError as error:
        raise CatalogError(f"{where}: checked_on must be a day.", "checked_on") from error
    reason, terms = table.get("not_expressible", ""), table.get("contract")
    if bool(reason) == (terms is not None):
        raise CatalogError(f"{where}: an entry has a contract table or says why it can't be expressed.", "contract")
    if reason and not table["lacks"]:
        raise CatalogError(f"{where}: lacks must name what can't be expressed.", "lacks")
    if terms is None:
        terms = {"tiers": table["tiers"]} if "tiers" in table else {}
    for key in _NOT_HERE:
        if key in terms:
            raise CatalogError(f"{where}: {key} belongs to a customer's contract, not to the catalogue.", key)
    values: dict[str, Any] = {key: table[key] for key in _TEXTS}
    values.update({key: tuple(table[key]) for key in _LISTS})
    entry = Entry(**values, not_expressible=reason, terms=terms)
    try:
        if reason and terms:
            contract_from(
                {"name": "x", "version": "1", "kind": "tiers", "counts": ["degraded"], "scope": "node", **terms}
            )
        elif not reason:
            entry.contract()
    except ContractError as error:
        raise CatalogError(f"{where}: {error}", error.field) from error
    return entry
