"""InfiniBand and RoCE ports: what each says of itself, with counters as growth since the previous sample."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from agent.clock import Instant
from agent.collect.base import ABSENT, ERROR, OK, TIMEOUT, Memory, Reading
from agent.collect.deadline import READ_TIMEOUT_S, DeadlineCall
from agent.collect.ib_parse import deltas, parse_counter, parse_guid, port_facts, reasons_of
from agent.collect.ib_read import Tree
from agent.collect.nvml_parse import Hash

log = logging.getLogger("goodput.ib")

SEEN_MOST = 256
_KEPT = ("link_downed", "link_error_recovery", "local_link_integrity_errors", "excessive_buffer_overrun_errors")


class IbCollector:
    """All ports of the machine."""

    source = "ib"

    def __init__(self, sysfs: Path, hash_id: Hash, timeout_s: float = READ_TIMEOUT_S) -> None:
        self._tree = Tree(sysfs)
        self._read = DeadlineCall(self._tree.ports, timeout_s)
        self._hash = hash_id
        self._before: dict[str, dict[str, int]] = {}
        self._active: set[str] = set()  # ports that were ever ACTIVE
        self._had_ports = False
        self._boot = ""

    def restore(self, memory: Memory) -> None:
        """Which ports were ever ACTIVE, and the flap counters of the last sample of the same boot."""
        self._active = {str(key) for key in memory.get("active", [])}
        self._had_ports = bool(self._active)
        self._boot = str(memory.get("boot", ""))
        for key, counters in memory.get("counters", {}).items():
            self._before[str(key)] = {str(name): int(value) for name, value in counters.items()}

    def collect(self, at: Instant) -> Reading:
        """Every port of real hardware; virtual functions are marked, software devices left out."""
        if at.boot_id != self._boot:
            self._before.clear()
            self._boot = at.boot_id
        try:
            raw = self._read()
        except TimeoutError:
            return Reading(self.source, TIMEOUT, {"ib_ports": []})
        except OSError as error:
            log.warning("InfiniBand cannot be read: %s", type(error).__name__)
            return Reading(self.source, ERROR, {"ib_ports": []})
        if raw is None or not raw:
            return Reading(self.source, ERROR if self._had_ports else ABSENT, {"ib_ports": []})
        self._had_ports = True
        ports = [self._port(port) for port in raw]
        kept = {
            key: {name: counters[name] for name in _KEPT if name in counters} for key, counters in self._before.items()
        }
        memory = {"active": sorted(self._active), "boot": self._boot, "counters": kept}
        return Reading(self.source, OK, {"ib_ports": ports}, memory)

    def _port(self, raw: dict[str, Any]) -> dict[str, Any]:
        facts = port_facts(raw)
        guid = parse_guid(raw["guid"])
        key = f"{raw['device']}/{raw['port']}"
        if guid is not None:
            facts["guid_hash"] = self._hash("port-guid", f"{guid}/{raw['port']}")
            key = facts["guid_hash"]
        if facts.get("state") == "ACTIVE" and not facts["is_vf"] and len(self._active) < SEEN_MOST:
            self._active.add(key)
        texts = dict(raw["counters"])
        if facts.get("link_layer") == "Ethernet":
            texts.update(self._tree.netdev_counters(raw["netdevs"]))
        counters = {
            name: value for name, value in ((n, parse_counter(t)) for n, t in texts.items()) if value is not None
        }
        grown, pegged = deltas(counters, self._before.get(key))
        self._before[key] = counters
        if grown:
            facts["counters"] = grown
        if pegged:
            facts["pegged"] = pegged
        reasons = reasons_of(facts.get("state"), key in self._active)
        if reasons:
            facts["reasons"] = reasons
        return facts

    def close(self) -> None:
        """Nothing is held."""
