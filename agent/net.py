"""The net facts: can the gateway and configured peers be reached from here. No packet is sent to the gateway."""

from __future__ import annotations

import re
import socket
import threading
import time
from pathlib import Path

from agent.errors import ConfigError

PEER_TIMEOUT_S = 2.0
PEER_EVERY_S = 60.0
PEERS_MOST = 16
_ARP_COMPLETE = 0x2


def gateway_state(proc: Path = Path("/proc")) -> str:
    """`ok` if the default gateway answered ARP lately, `fail` if it did not, `none` without one or without a fact."""
    try:
        routes = (proc / "net/route").read_text().splitlines()[1:]
        arp = (proc / "net/arp").read_text().splitlines()[1:]
    except OSError:
        return "none"
    for line in routes:
        fields = line.split()
        if len(fields) > 3 and fields[1] == "00000000" and int(fields[3], 16) & 0x2:
            address = socket.inet_ntoa(int(fields[2], 16).to_bytes(4, "little"))
            for entry in arp:
                parts = entry.split()
                if len(parts) > 3 and parts[0] == address:
                    return "ok" if int(parts[2], 16) & _ARP_COMPLETE else "fail"
    return "none"


def parse_peers(text: str) -> list[tuple[str, str, int]]:
    """(name on the wire, host, port) of each configured peer. Raises ConfigError."""
    peers = []
    for number, item in enumerate((part.strip() for part in text.split(",") if part.strip()), 1):
        match = re.fullmatch(r"\[?([^\[\]\s]+?)\]?:(\d{1,5})", item)
        if match is None or not 0 < int(match.group(2)) < 65536:
            raise ConfigError(f"--peers: {item[:80]!r} is not HOST:PORT")
        peers.append((f"peer{number}", match.group(1), int(match.group(2))))
    if len(peers) > PEERS_MOST:
        raise ConfigError(f"--peers takes at most {PEERS_MOST}")
    return peers


class Net:
    """Looks at peers from a thread of its own once a minute, so that a black hole delays no sample."""

    def __init__(self, peers: str) -> None:
        self._peers = parse_peers(peers)
        self._results: dict[str, str] = {}
        self._next = 0.0
        self._busy = threading.Lock()

    def facts(self) -> dict[str, str]:
        """The newest results; starts a new look when they are a minute old."""
        if self._peers and time.monotonic() >= self._next and self._busy.acquire(blocking=False):
            self._next = time.monotonic() + PEER_EVERY_S
            threading.Thread(target=self._look, daemon=True).start()
        return {"gateway": gateway_state(), **self._results}

    def _look(self) -> None:
        try:
            for name, host, port in self._peers:
                try:
                    socket.create_connection((host, port), PEER_TIMEOUT_S).close()
                    self._results[name] = "ok"
                except OSError:
                    self._results[name] = "fail"
        finally:
            self._busy.release()
