"""The agent's errors.

AgentError            code 1    the command failed
├── UsageError        code 2    an argument makes no sense
├── ConfigError       code 78   a setting is wrong or missing (EX_CONFIG)
└── PermissionProblem code 77   a file has the wrong owner or mode (EX_NOPERM)
"""

from __future__ import annotations


class AgentError(Exception):
    """A failure told once, at the edge, in one sentence that says what to do."""

    exit_code = 1


class UsageError(AgentError):
    """An argument that makes no sense."""

    exit_code = 2


class ConfigError(AgentError):
    """A setting that is wrong or missing."""

    exit_code = 78


class PermissionProblem(AgentError):
    """A file whose owner, mode or kind is not safe."""

    exit_code = 77
