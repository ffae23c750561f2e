"""The rule set: what each reason weighs, whose it is, what it needs and what ends it.

Data in TOML, one folder a version.

`load_rules` reads the folder beside this file, validates it key by key and computes its digest. A rule set that was
ever used is never edited: a change is a new folder.
"""

from __future__ import annotations

import hashlib
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from fleet.domain.rules.model import Reason, Rules, RulesError, reason_from

__all__ = ["LATEST", "Reason", "Rules", "RulesError", "load_rules", "read_rules"]

LATEST = "2026-11-30"
_FOLDER = Path(__file__).parent


@lru_cache(maxsize=8)
def load_rules(version: str = LATEST) -> Rules:
    """The validated rule set of this version (the name of its folder). Raises RulesError naming file and key."""
    folder = _FOLDER / version
    if "/" in version or not folder.is_dir():
        raise RulesError(f"there is no rule set {version!r}")
    return read_rules(version, {path.name: path.read_text() for path in sorted(folder.glob("*.toml"))})


def read_rules(version: str, files: dict[str, str]) -> Rules:
    """A rule set from the texts of its files (name -> TOML). Raises RulesError naming file and key.

    The digest is the SHA-256 over the files in the order of their names, each as name, NUL, length, NUL, text.
    """
    digest = hashlib.sha256()
    reasons: dict[str, Reason] = {}
    for name in sorted(files):
        raw = files[name].encode()
        digest.update(name.encode() + b"\0" + str(len(raw)).encode() + b"\0" + raw)
        try:
            document: dict[str, Any] = tomllib.loads(files[name])
        except tomllib.TOMLDecodeError as error:
            raise RulesError(f"{name}: {error}") from error
        if set(document) != {"reason"} or not isinstance(document["reason"], list):
            raise RulesError(f"{name}: a rule file holds [[reason]] tables and nothing else")
        lines = _lines(files[name])
        for entry in document["reason"]:
            reason = reason_from(name, entry, lines.get(str(entry.get("code", "")), 1))
            if reason.code in reasons:
                raise RulesError(f"{reason.where}: {reason.code} is there twice")
            reasons[reason.code] = reason
    return Rules(version, digest.hexdigest(), reasons)


def _lines(text: str) -> dict[str, int]:
    """Code -> the line on which it stands."""
    start = 'code = "'
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(start):
            found.setdefault(line[len(start) :].rstrip('" '), number)
    return found
