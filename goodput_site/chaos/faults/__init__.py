"""Faults by number (facts/reliability section 4.2): each is a function that strikes and says whether it really did.

A fault takes a `Scene` and returns a `Strike`. `ALL` is the table; what is not in it stands in `ELSEWHERE` with the
test that holds it, because it cannot be part of a run of minutes.
"""

from goodput_site.chaos.faults import agents, database, network, server
from goodput_site.chaos.faults.scene import Fault, Scene, Strike

ALL: tuple[Fault, ...] = (*agents.FAULTS, *server.FAULTS, *database.FAULTS, *network.FAULTS)

ELSEWHERE = {
    "F09": "power loss under the outbox: agent/tests/test_failpoints.py counts what is synced",
    "F16": "poison batches: fleet/tests/test_folding.py",
    "F20": "late data after a report was issued: claims/tests/test_reports.py",
    "F22": "a server restored from a backup: agent/tests/test_outbox.py",
    "F23": "an org deleted and made again: orgs/tests/test_create_org.py",
    "F24": "nobody who stamps the log: claims/tests/test_ledger.py",
}

__all__ = ["ALL", "ELSEWHERE", "Fault", "Scene", "Strike"]
