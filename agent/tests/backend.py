"""A small real HTTP server that stores batches and gives receipts, for tests; its behaviour can be scripted."""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgpack


class Backend:
    """Takes batches as the ingest contract says. `behave` (a function of the handler and body) may answer instead."""

    def __init__(self):
        self.batches = {}  # sha256 -> decoded batch
        self.requests = []  # (path, headers, body) of uploads
        self.enrolments = []  # the same of enrolments
        self.duplicates = 0
        self.down = False
        self.behave = None
        self.enrol = None  # answers enrolments: (handler, body) -> (status, bytes); none: an older server
        self.wall_ms = lambda: time.time_ns() // 1_000_000
        self._lock = threading.Lock()
        backend = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                with backend._lock:
                    kept = backend.enrolments if self.path.endswith("/enrol") else backend.requests
                    kept.append((self.path, dict(self.headers), body))
                if self.path.endswith("/enrol"):
                    return self.enrol(body)
                if backend.down:
                    return self.answer(503, b"", {"Retry-After": "1"})
                if backend.behave is not None and backend.behave(self, body):
                    return None
                return self.answer(202, json.dumps(backend.receipt(body)).encode())

            def enrol(self, body):
                status, reply = backend.enrol(self, body) if backend.enrol else (404, b"")
                return self.answer(status, reply, {"Content-Type": "application/json"})

            def answer(self, status, body, headers=None):
                self.send_response(status)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_args):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, client_address):
                pass  # a client that was killed in the middle of a request is part of these tests

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1/batches"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def receipt(self, body):
        raw = gzip.decompress(body)
        sha256 = hashlib.sha256(raw).hexdigest()
        batch = msgpack.unpackb(raw, raw=False)
        with self._lock:
            duplicate = sha256 in self.batches
            self.duplicates += duplicate
            self.batches[sha256] = batch
        stamp = datetime.fromtimestamp(self.wall_ms() / 1000, tz=UTC)
        return {
            "batch_sha256": sha256,
            "node": batch["node_id"],
            "seq": batch.get("seq"),
            "received_at": stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "duplicate": duplicate,
            "signature": None,
        }

    def sample_times(self):
        """ts of every sample of every stored batch, sorted."""
        return sorted(i["ts"] for batch in self.batches.values() for i in batch["intervals"])

    def close(self):
        self.server.shutdown()
        self.server.server_close()
