"""Between the agents and the server: an HTTP proxy that loses, repeats, delays and falsifies, as its weather says.

It understands requests (a method, headers, a body of Content-Length), because what hurts an at-least-once sender
happens between a request and its answer. Each fault that struck is counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections import Counter
from dataclasses import dataclass, field

PORTAL = b"<html><title>Welcome to the guest network</title></html>"
KEPT_REQUESTS = 400
SOME = (
    "drop_request", "drop_answer", "duplicate", "delay", "reorder", "truncate", "portal", "too_many", "bad_gateway",
    "slow",
)  # fmt: skip


@dataclass
class Weather:
    """What happens to requests now: a share 0..1 of them per fault, or all of them with `cut`."""

    shares: dict[str, float] = field(default_factory=dict)
    cut: bool = False
    one_way: bool = False  # requests arrive, answers don't


class FaultProxy:
    """Listens on a free port of 127.0.0.1 (`port`) and forwards to `target_port`, in a thread of its own."""

    def __init__(self, target_port: int, seed: int) -> None:
        self.target_port = target_port
        self.weather = Weather()
        self.struck: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()
        self.requests: list[bytes] = []  # some that were forwarded, for a replay
        self._rng = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)
        self._thread.start()
        self._ready.wait(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._loop.run_forever()

    async def _listen(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20)
        self.port: int = server.sockets[0].getsockname()[1]
        self._ready.set()

    def close(self) -> None:
        """Stops listening."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while await self._one(reader, writer):
                pass
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; False when the connection is to be closed."""
        request = await _request(reader)
        if self.weather.cut:
            self.struck["cut"] += 1
            return False
        fault = self._choose()
        if fault == "drop_request":
            return False
        if fault == "portal":
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(PORTAL) + PORTAL
            )
            return True
        if fault in ("too_many", "bad_gateway"):
            status = b"429 Too Many Requests\r\nRetry-After: 1" if fault == "too_many" else b"502 Bad Gateway"
            writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")
            return True
        if fault in ("delay", "reorder"):
            await asyncio.sleep(self._rng.uniform(0.1, 1.0 if fault == "delay" else 3.0))
        self._keep(request)
        if fault == "truncate":
            await self._forward(request[: -max(1, len(request) // 3)], closing=True)
            return False
        if fault == "duplicate":
            await self._forward(request)
        answer = await self._forward(request, slowly=fault == "slow")
        if not answer:
            return False
        if fault == "drop_answer" or self.weather.one_way:
            self.struck["one_way"] += self.weather.one_way
            self.struck["ack_lost_after_commit"] += answer.startswith(b"HTTP/1.1 202")
            return False
        writer.write(answer)
        await writer.drain()
        return True

    def _choose(self) -> str:
        draw = self._rng.random()
        for fault, share in self.weather.shares.items():
            draw -= share
            if draw < 0:
                self.struck[fault] += 1
                return fault
        return ""

    def _keep(self, request: bytes) -> None:
        if len(self.requests) < KEPT_REQUESTS:
            self.requests.append(request)
        elif self._rng.random() < 0.05:
            self.requests[self._rng.randrange(KEPT_REQUESTS)] = request

    async def _forward(self, request: bytes, slowly: bool = False, closing: bool = False) -> bytes:
        """The server's whole answer; nothing when there is none."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            return b""
        try:
            if slowly:
                for start in range(0, len(request), 256):
                    writer.write(request[start : start + 256])
                    await asyncio.sleep(0.05)
            else:
                writer.write(request)
            await writer.drain()
            if closing:
                return b""
            answer = await asyncio.wait_for(_request(reader), 30)
            self.statuses[int(answer[9:12])] += 1
            return answer
        except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError):
            return b""
        finally:
            writer.close()

    def replay(self, count: int) -> Counter[int]:
        """Sends kept requests again, as somebody would who recorded them; their answers by status."""
        chosen = self._rng.sample(self.requests, min(count, len(self.requests)))

        async def again() -> Counter[int]:
            answers: Counter[int] = Counter()
            for request in chosen:
                answer = await self._forward(request)
                answers[int(answer[9:12]) if answer else 0] += 1
            return answers

        return asyncio.run_coroutine_threadsafe(again(), self._loop).result(120)


async def _request(reader: asyncio.StreamReader) -> bytes:
    """One message with a body of Content-Length, headers and all."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            length = int(value)
    return head + (await reader.readexactly(length) if length else b"")
