"""Alerts of an org: what happened, whom it is told, and what came of telling it."""
