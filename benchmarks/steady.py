"""Uploads of one org on a timetable, in a process of its own: `python -m benchmarks.steady PORT TOKEN RATE SEED`.

Goes on until its standard input is closed, then prints a list of [Unix time when due, seconds to the receipt].
"""

from __future__ import annotations

import http.client
import json
import random
import sys
import threading
import time

from agent import wire
from benchmarks.common import batch

NODES = 20


def main(port: int, token: str, rate: float, seed: int) -> None:
    """Send until told to stop. Raises RuntimeError when a batch is refused."""
    over = threading.Event()
    threading.Thread(target=_until_closed, args=(over,), daemon=True).start()
    rng = random.Random(seed)
    first_ms = (int(time.time()) // 3600 - 1) * 3_600_000
    headers = {"Content-Type": "application/msgpack", "Content-Encoding": "gzip", "Authorization": f"Bearer {token}"}
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    latencies = []
    due, at = time.time(), 0
    while not over.is_set():
        body, _ = wire.pack(batch(f"other-{port}-{at % NODES:02d}", at // NODES, rng, first_ms))
        due += 1 / rate
        time.sleep(max(0.0, due - time.time()))
        client.request("POST", "/v1/batches", body, headers)
        answer = client.getresponse()
        said = answer.read()
        if answer.status != 202:
            raise RuntimeError(f"refused: {said[:300]!r}")
        latencies.append([due, time.time() - due])
        at += 1
    print(json.dumps(latencies))


def _until_closed(over: threading.Event) -> None:
    sys.stdin.read()
    over.set()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
