"""What the agent's tests share."""

from __future__ import annotations

import pytest

from agent.tests.backend import Backend


@pytest.fixture
def backend():
    server = Backend()
    yield server
    server.close()
