"""Scenarios: who, when and what befell a node, as data; read, folded as a worker would, and told.

The language is that of docs/scenarios.md. `read` checks a file, `run` folds a scenario, `Outcome` says what came out.
"""

from fleet.domain.scenario.checking import ScenarioError
from fleet.domain.scenario.language import read
from fleet.domain.scenario.outcome import Outcome, run

__all__ = ["Outcome", "ScenarioError", "read", "run"]
