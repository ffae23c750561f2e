"""The node in memory that the fold's tests drive; see fleet.domain.scenario.node."""

from fleet.domain.scenario.node import Node

__all__ = ["Node"]
