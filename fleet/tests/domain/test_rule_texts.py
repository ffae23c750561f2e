"""Titles, explanations and actions are read at 3 a.m. and by lawyers: short, plain, whole sentences of our own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from fleet.domain.rules import Reason, load_rules

TITLE = 60
TOOLS = re.compile(
    r"\b(gpud|dcgm|nvsentinel|nvidia-smi|aws|eks|azure|meta|gcm|hyperpod|kubernetes|k8s|prometheus|grafana|slurm"
    r"|healthagent|nvml|catalogue|catalog|sysfs|dmesg|kmsg)\b",
    re.IGNORECASE,
)
NUMBERS = re.compile(r"#\s*\d|\bPRs?\b|\bpull request\b|\bADR\b|\barxiv\b", re.IGNORECASE)
IDENTIFIER = re.compile(
    r"\w+_\w+|\b[a-z]+[A-Z]\w*|\b0x[0-9a-f]+|\w\.(?:h|c|go|py|csv|toml|md)\b|`|\w\(|->|[<>=]=|\bINIT\b|\bACTIVE\b"
)
#: What a table of notes says to itself: its columns, weights, numbers of pull requests.
NOTES = re.compile(r"act-now|[|<>=/]|#\d|\b(?:IGNORE|WARN|FAIL|MONITOR)\b|\b[01]\.\d|\b(?:[Pp]ropose|[Uu]se 1)")


def faults(reason: Reason) -> Iterator[str]:
    """What is wrong with the texts of a reason."""
    if len(reason.title) > TITLE:
        yield f"title: {len(reason.title)} characters"
    if reason.title.endswith(".") or reason.title[:1].islower():
        yield "title: starts large and ends without a full stop"
    sentences = re.split(r"(?<=[.!?])\s+", reason.explanation)
    if not reason.explanation.endswith(".") or len(sentences) > 2:
        yield "explanation: one or two sentences, each with its full stop"
    if any(sentence[:1].islower() for sentence in sentences):
        yield "explanation: a sentence starts small"
    if not reason.action.endswith(".") or reason.action.lower().startswith("none"):
        yield "action: a sentence"
    if reason.lowers and reason.action == "Nothing to do.":
        yield "action: a reason that lowers says what to do"
    if reason.disagreement and (not reason.disagreement.endswith(".") or NOTES.search(reason.disagreement)):
        yield "disagreement: whole sentences of who says what"
    for name in ("title", "explanation", "action"):
        text = getattr(reason, name)
        if text != text.strip() or "  " in text:
            yield f"{name}: stray blanks"
        for what, pattern in (("tool", TOOLS), ("number of a source", NUMBERS), ("identifier", IDENTIFIER)):
            found = pattern.search(text)
            if found:
                yield f"{name}: {what} {found[0]!r}"


def test_every_text_is_plain() -> None:
    wrong = {reason.code: list(faults(reason)) for reason in load_rules().reasons.values()}
    assert {code: found for code, found in wrong.items() if found} == {}


GOOD = load_rules().reasons["XID_79"]


@pytest.mark.parametrize(
    "change",
    [
        {"explanation": "gpud also maps the plain line."},
        {"explanation": "The plain line counts too (PR #1209)."},
        {"explanation": "Moved to non-fatal in #1629."},
        {"explanation": "See sram_threshold_exceeded."},
        {"explanation": "Read nvml.h first."},
        {"explanation": "The mask 0x40 is set."},
        {"explanation": "The port is not ACTIVE."},
        {"explanation": "No full stop"},
        {"explanation": "One. Two. Three."},
        {"explanation": "And so on. and so forth."},
        {"title": "A title that goes on and on until nobody at night reads it to its end"},
        {"title": "fell off"},
        {"title": "Fell off."},
        {"action": ""},
        {"action": "None."},
        {"action": "Reset gpu"},
        {"action": "Nothing to do."},
        {"disagreement": "act-now: gpud | not: azure."},
        {"disagreement": "Catalogue IGNORE, gpud Fatal/reboot."},
        {"disagreement": "Propose 0.0 only with an action."},
        {"disagreement": "The catalogue says otherwise"},
    ],
    ids=str,
)
def test_a_bad_text_is_noticed(change: dict[str, str]) -> None:
    assert list(faults(GOOD)) == []
    assert list(faults(replace(GOOD, **change))) != []  # type: ignore[arg-type]
