"""Faults by number (facts/reliability section 4.2): each is a function that strikes and says whether it really did.

A fault takes a `Scene` and returns a `Strike`. `faults.ALL` is the table; what is not in it is in `ELSEWHERE` with the
test that holds it, because it cannot be part of a run of minutes.
"""

from goodput_site.chaos.faults import agents, database, network, server
from goodput_site.chaos.faults.scene import Fault, Scene, Strike

ALL: tuple[Fault, ...] = (*agents.FAULTS, *server.FAULTS, *database.FAULTS, *network.FAULTS)

ELSEWHERE = {
    "F09": "power loss under the outbox: agent/tests/test_power_loss.py drops un-synced writes",
    "F16": "poison batches: fleet/tests/test_poison.py",
    "F18": "agents of an older version: fleet/tests/test_wire_versions.py",
    "F20": "late data after a report was issued: claims/tests/test_restatement.py",
    "F22": "a server restored from a backup: agent/tests/test_resend.py",
    "F24": "no time-stamping service: claims/tests/test_anchors.py",
}

__all__ = ["ALL", "ELSEWHERE", "Fault", "Scene", "Strike"]
