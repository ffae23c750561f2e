"""Runs scenarios for the fold's tests; the language is that of fleet.domain.scenario."""

from __future__ import annotations

from typing import Any

from fleet.domain.context import Context
from fleet.domain.scenario import outcome
from fleet.domain.scenario.language import ZERO, Told
from fleet.domain.scenario.node import Node
from fleet.domain.scenario.outcome import subject_of as subject
from fleet.domain.slots import SLOT_MS

BASE = ZERO * SLOT_MS


def instant(time: list[int]) -> int:
    return BASE + time[0] * SLOT_MS + time[1]


def context_of(scenario: dict[str, Any]) -> Context:
    return Told(scenario).context()


def batches_of(scenario: dict[str, Any]) -> list[list[Any]]:
    return Told(scenario).deliveries()


def run(scenario: dict[str, Any], rules: Any = None) -> Node:
    """The node after every delivery, dirty hours folded again at the end."""
    return outcome.run(scenario, rules).node


__all__ = ["BASE", "ZERO", "batches_of", "context_of", "instant", "run", "subject"]
