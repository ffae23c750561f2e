"""The rule set: what each reason weighs, whose it is, what it needs and what ends it.

Data in TOML, one folder a version.

`load_rules` reads the folder beside this file, validates it key by key and computes its digest. A rule set that was
ever used is never edited: a change is a new folder. What an org decides otherwise is an amendment (`amend`); what two
rule sets say otherwise is a `diff`.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from fleet.domain.rules.amend import AMENDABLE, Amendment, amend, amendment, base_version
from fleet.domain.rules.difference import RuleChange, diff
from fleet.domain.rules.model import Reason, Rules, RulesError, reason_from

__all__ = [
    "AMENDABLE",
    "LATEST",
    "Amendment",
    "Reason",
    "RuleChange",
    "Rules",
    "RulesError",
    "amend",
    "amendment",
    "base_version",
    "diff",
    "load_rules",
    "read_rules",
    "versions",
]

LATEST = "2026-11-30"
#: Bytes that a rule file may have; the largest of ours has a tenth of it.
MAX_FILE = 2**20
_FOLDER = Path(__file__).parent
_VERSION = re.compile(r"\d{4}-\d{2}-\d{2}[a-z]?")


def versions() -> tuple[str, ...]:
    """The rule sets that are here, oldest first."""
    return tuple(sorted(path.name for path in _FOLDER.iterdir() if path.is_dir() and _VERSION.fullmatch(path.name)))


@lru_cache(maxsize=8)
def load_rules(version: str = LATEST) -> Rules:
    """The validated rule set of this version (the name of its folder). Raises RulesError naming file, line and key."""
    if not _VERSION.fullmatch(version) or not (_FOLDER / version).is_dir():
        raise RulesError(f"there is no rule set {version!r}")
    return read_rules(version, {path.name: path.read_bytes() for path in sorted((_FOLDER / version).glob("*.toml"))})


def read_rules(version: str, files: Mapping[str, str | bytes]) -> Rules:
    """A rule set from its files (name -> TOML, as text or as UTF-8). Raises RulesError naming file, line and key.

    The digest is the SHA-256 over the files in the order of their names, each as name, NUL, length, NUL, bytes.
    """
    digest = hashlib.sha256()
    reasons: dict[str, Reason] = {}
    for name in sorted(files):
        given = files[name]
        raw = given if isinstance(given, bytes) else given.encode("utf-8", "surrogatepass")
        digest.update(name.encode() + b"\0" + str(len(raw)).encode() + b"\0" + raw)
        text, document = _parsed(name, raw)
        tables = document.get("reason")
        if set(document) != {"reason"} or not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
            raise RulesError(f"{name}:1: a rule file holds [[reason]] tables and nothing else")
        for entry, lines in zip(tables, _lines(text, len(tables)), strict=True):
            reason = reason_from(name, entry, lines)
            if reason.code in reasons:
                raise RulesError(f"{reason.where}: {reason.code} is there twice, first in {reasons[reason.code].where}")
            reasons[reason.code] = reason
    if not reasons:
        raise RulesError(f"{version!r} holds no rules")
    return Rules(version, digest.hexdigest(), reasons)


def _parsed(name: str, raw: bytes) -> tuple[str, dict[str, Any]]:
    """The text of a rule file and what it holds. Raises RulesError naming file and line."""
    if len(raw) > MAX_FILE:
        raise RulesError(f"{name}:1: {len(raw)} bytes are too many; a rule file has at most {MAX_FILE}")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise RulesError(f"{name}:{line}: byte {raw[error.start]:#04x} is no UTF-8") from error
    try:
        return text, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        raise RulesError(f"{name}:{found[1] if found else len(text.splitlines()) or 1}: {error}") from error
    except RecursionError as error:
        raise RulesError(f"{name}:1: lists or tables lie too deep in each other") from error


_TABLE = re.compile(r"\s*\[\[\s*reason\s*\]\]")
_KEY = re.compile(r"\s*[\"']?([A-Za-z_][\w-]*)[\"']?\s*[=.]")


def _lines(text: str, count: int) -> list[dict[str, int]]:
    """Per [[reason]] table: key -> the line on which it stands; '' the line of the table's head."""
    tables: list[dict[str, int]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if _TABLE.match(line):
            tables.append({"": number})
        elif tables and (match := _KEY.match(line)):
            tables[-1].setdefault(match[1], number)
    return tables if len(tables) == count else [{"": 1} for _ in range(count)]
