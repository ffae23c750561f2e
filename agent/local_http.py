"""`/metrics` and `/status` for this machine: read-only, on loopback only."""

from __future__ import annotations

import ipaddress
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Sequence

from agent import __version__
from agent.errors import ConfigError
from agent.node import Node

_FIGURES = (
    ("samples_waiting", "gauge", "Samples not yet in a batch."),
    ("batches_queued", "gauge", "Batches that wait for a receipt."),
    ("batches_quarantined", "gauge", "Batches that a server refused for good."),
    ("delivered", "counter", "Batches delivered."),
    ("dropped", "counter", "Batches evicted without a receipt."),
    ("used_bytes", "gauge", "Bytes of the outbox in use."),
)


def parse_listen(text: str) -> tuple[str, int]:
    """(host, port) of --metrics. Raises ConfigError for anything but a loopback address."""
    host, found, port = text.rpartition(":")
    host = host.strip("[]")
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not found or not loopback or not port.isdigit() or int(port) > 65535:
        raise ConfigError("--metrics must be a loopback HOST:PORT such as 127.0.0.1:9844")
    return host, int(port)


def state(nodes: Sequence[Node]) -> list[dict[str, Any]]:
    """Figures of every node of this process."""
    return [
        {
            "cluster": node.cluster,
            "node": node.node_id,
            "version": node.version,
            "trouble": node.store.trouble,
            "upload": node.sender.result if node.sender else "none",
            "last_error": node.sender.last_error if node.sender else "",
            "collect_ms": dict(node.durations_ms),
            **node.store.outbox.counts(),
        }
        for node in nodes
    ]


def metrics_text(nodes: Sequence[Node]) -> str:
    """The figures in Prometheus' text format."""
    figures = state(nodes)
    lines = [f'goodput_agent_info{{version="{__version__}"}} 1']
    for key, kind, text in _FIGURES:
        suffix = "_total" if kind == "counter" else ""
        lines += [f"# HELP goodput_agent_{key}{suffix} {text}", f"# TYPE goodput_agent_{key}{suffix} {kind}"]
        lines += [f"goodput_agent_{key}{suffix}{{{_labels(node)}}} {node[key]}" for node in figures]
    lines += [
        "# HELP goodput_agent_upload_ok Whether the last upload was receipted.",
        "# TYPE goodput_agent_upload_ok gauge",
    ]
    lines += [f"goodput_agent_upload_ok{{{_labels(node)}}} {int(node['upload'] == 'ok')}" for node in figures]
    lines += ["# HELP goodput_agent_collect_ms Time of the last reading.", "# TYPE goodput_agent_collect_ms gauge"]
    for node in figures:
        for source, value in sorted(node["collect_ms"].items()):
            lines.append(f'goodput_agent_collect_ms{{{_labels(node)},source="{source}"}} {value}')
    return "\n".join(lines) + "\n"


def _labels(node: dict[str, Any]) -> str:
    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'

    return f"cluster={quoted(node['cluster'])},node={quoted(node['node'])}"


class LocalPage:
    """Serves until `close`. Raises ConfigError if the port is taken."""

    def __init__(self, listen: str, nodes: Sequence[Node]) -> None:
        host, port = parse_listen(listen)

        class Handler(BaseHTTPRequestHandler):
            timeout = 5

            def do_GET(self) -> None:
                if self.path == "/metrics":
                    self._answer("text/plain; version=0.0.4; charset=utf-8", metrics_text(nodes))
                elif self.path == "/status":
                    self._answer("application/json", json.dumps({"nodes": state(nodes)}) + "\n")
                else:
                    self.send_error(404)

            def _answer(self, kind: str, text: str) -> None:
                body = text.encode()
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: a scrape is no news."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        try:
            self._server = Server((host, port), Handler)
        except OSError as error:
            raise ConfigError(f"--metrics {listen}: {error.strerror}") from None
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def close(self) -> None:
        """Stops serving."""
        self._server.shutdown()
        self._server.server_close()
