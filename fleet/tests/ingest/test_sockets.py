"""I23, I24, I25, I31, I37: framing, slowness and long connections, on raw sockets against the real granian."""

from __future__ import annotations

import contextlib
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest

from agent import wire
from fleet.tests.bodies import packed
from fleet.tests.ingest.server import Server, answers, request
from fleet.tests.ingest.uploads import bomb, count
from orgs.models import ApiKey
from orgs.services import revoke_key

pytestmark = pytest.mark.django_db(transaction=True)
LINGER = 0.4  # seconds in which a second answer would come


def chunked(body: bytes, size: int = 100, extension: bytes = b"") -> bytes:
    """A body in the chunked coding."""
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x%s\r\n%s\r\n" % (len(part), extension, part) for part in parts) + b"0\r\n\r\n"


def smuggled(token: str) -> bytes:
    """A whole second upload, to stand where the end of the first is in doubt."""
    return request(packed(node_id="smuggled")[0], token)


@pytest.mark.parametrize("extension", [b"", b";a=b", b';a="\r"', b";" + b"x" * 10_000], ids=["none", "a", "cr", "10k"])
def test_i23_a_chunked_upload_is_refused_and_is_one_request(
    extension: bytes, server: Server, alpha: Any, token: str
) -> None:
    head = request(b"", token, Content_Length=None, Transfer_Encoding="chunked")
    found = server.talk(head + chunked(packed()[0], extension=extension), LINGER)
    assert found[0].status in (400, 411)
    assert len(found) <= 2, "what follows a broken frame may get its own 400, never a receipt"
    assert all(answer.status >= 400 for answer in found)
    assert count(alpha) == 0


@pytest.mark.parametrize(
    "size", [b"F" * 30, b"f" * 100_000, b"-1", b"0x5", b"g", b""], ids=lambda size: size[:4].decode()
)
def test_i23_an_absurd_chunk_size_is_refused(size: bytes, server: Server, alpha: Any, token: str) -> None:
    head = request(b"", token, Content_Length=None, Transfer_Encoding="chunked")
    found = server.talk(head + size + b"\r\nabc\r\n0\r\n\r\n" + smuggled(token), LINGER)
    assert found[0].status in (400, 411)
    assert count(alpha) == 0


def test_i23_length_and_chunks_together_are_one_request(server: Server, alpha: Any, token: str) -> None:
    """Whichever of the two counts, the rest must not become a request of its own."""
    body = packed()[0]
    inner = smuggled(token)
    for data in (
        request(body, token, Transfer_Encoding="chunked", Content_Length=5) + b"0\r\n\r\n" + inner,
        request(b"0\r\n\r\n" + inner, token, Transfer_Encoding="chunked"),
        request(b"0\r\n\r\n" + inner, token, Transfer_Encoding="xchunked"),
        request(b"0\r\n\r\n" + inner, token, Transfer_Encoding="\x0bchunked"),
        request(b"0\r\n\r\n" + inner, token, Transfer_Encoding="identity"),
        request(b"0\r\n\r\n" + inner, token, Transfer_Encoding="chunked, identity"),
    ):
        found = server.talk(data, LINGER)
        assert [answer.status for answer in found] in ([400], [411])
    assert count(alpha) == 0


@pytest.mark.parametrize("second", ["7", "0", "99999999999999999999", "-1", "+5", "5, 6", "abc"])
def test_i23_two_lengths_that_differ_are_refused(second: str, server: Server, alpha: Any, token: str) -> None:
    body = packed()[0]
    data = request(body, token).replace(b"\r\n\r\n", b"\r\nContent-Length: " + second.encode() + b"\r\n\r\n", 1)
    found = server.talk(data + smuggled(token), LINGER)
    assert [answer.status for answer in found] == [400]
    assert count(alpha) == 0


@pytest.mark.parametrize("refused", ["key", "type", "size"])
def test_i23_a_body_that_was_not_read_is_not_taken_for_a_request(
    refused: str, server: Server, alpha: Any, token: str
) -> None:
    """A refusal before the read leaves the body on the connection; it must be thrown away with its request."""
    inner = smuggled(token)
    if refused == "size":
        inner = inner + b"\r\n" * wire.MAX_BODY_BYTES
    more = {"Content_Type": "text/plain"} if refused == "type" else {}
    data = request(inner, "gp_nobody" if refused == "key" else token, **more)
    found = server.talk(data + request(packed(node_id="honest")[0], token), 1)
    assert found[0].status == {"key": 401, "type": 415, "size": 413}[refused]
    assert len(found) <= 2
    assert count(alpha, "node = 'smuggled'") == 0
    assert count(alpha) == len(found) - 1, "the next request is served, or the connection was closed"


def test_i23_honest_requests_on_one_connection_are_each_answered(server: Server, alpha: Any, token: str) -> None:
    """The other half of the proof: the server does read a second request where there is one."""
    ends = ("keep-alive", "keep-alive", "close")
    data = b"".join(request(packed(node_id=f"n{n}")[0], token, Connection=end) for n, end in enumerate(ends))
    assert [answer.status for answer in server.talk(data, 5)] == [202] * 3
    assert count(alpha) == 3


@pytest.mark.parametrize("known", [True, False], ids=["with a key", "without"])
def test_i24_an_honest_length_over_the_limit_is_refused_before_the_body_comes(
    known: bool, server: Server, token: str
) -> None:
    head = request(b"", token if known else None, Content_Length=wire.MAX_BODY_BYTES + 1)
    assert server.talk(head)[0].code == "too_large"


def test_i24_a_lying_length_gets_its_own_bytes_and_no_more(server: Server, alpha: Any, token: str) -> None:
    body = packed()[0]
    found = server.talk(request(body, token, Content_Length=len(body) - 3) + smuggled(token), LINGER)
    assert found[0].code == "bad_gzip", "too small: the member is cut"
    assert all(answer.status >= 400 for answer in found)
    with server.connect() as agent:
        agent.sendall(request(body, token, Content_Length=len(body) + 3))
        agent.shutdown(socket.SHUT_WR)  # too great: the rest never comes
        assert answers(agent)[0].code == "cut_short"
    assert count(alpha) == 0


def test_i01_forty_bombs_on_four_threads_leave_the_server_small(server: Server, token: str) -> None:
    """Forty GiB when unpacked; a thread may hold 8 MiB of it, twice while they are joined."""
    assert server.process is not None
    (worker,) = psutil.Process(server.process.pid).children()
    assert server.talk(request(packed()[0], token))[0].status == 202
    before = worker.memory_info().rss
    data = request(bomb(), token)
    with ThreadPoolExecutor(8) as pool:
        assert {found[0].code for found in pool.map(server.talk, [data] * 40)} == {"too_large"}
    assert (worker.memory_info().rss - before) / 2**20 < 120


def test_i25_bodies_that_trickle_in_without_a_key_hold_up_nobody(server: Server, token: str) -> None:
    """Four threads serve; twelve strangers send a byte and wait."""
    with contextlib.ExitStack() as stack:
        for _ in range(12):
            stranger = stack.enter_context(server.connect())
            stranger.sendall(request(b"\x1f", "gp_nobody", Content_Length=500))
        assert server.talk(request(packed()[0], token))[0].status == 202


def test_i25_idle_connections_and_slow_headers_hold_up_nobody(server: Server, token: str) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(300):
            idle = stack.enter_context(server.connect())
            idle.sendall((b"", b"POST /v1/batches HTTP/1.1\r\nHost: lo", b"GET")[number % 3])
        assert server.talk(request(packed()[0], token))[0].status == 202


def test_i25_an_answer_that_nobody_reads_holds_up_nobody(server: Server, token: str) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(12):
            deaf = stack.enter_context(server.connect())
            deaf.sendall(request(packed(seq=number)[0], token))
        assert server.talk(request(packed()[0], token))[0].status == 202


def test_i31_a_key_revoked_during_a_connection_stops_within_the_caches_life(
    server: Server, alpha: Any, token: str
) -> None:
    """The server of the tests keeps keys for one second; the product for at most thirty (GOODPUT_KEY_CACHE_SECONDS)."""
    with server.connect() as agent:

        def upload() -> int:
            agent.sendall(request(packed()[0], token))
            return answers(agent)[0].status

        assert upload() == 202
        revoke_key(ApiKey.objects.get(), actor="test")
        revoked_at = time.monotonic()
        while upload() == 202:
            assert time.monotonic() - revoked_at < 5, "five times the cache's life"
            time.sleep(0.05)
        assert upload() == 401
        assert upload() == 401


def test_i31_a_cache_life_over_thirty_seconds_can_not_be_set() -> None:
    import os
    import subprocess
    import sys

    script = "from goodput_site import settings; print(settings.GOODPUT_KEY_CACHE_SECONDS)"
    env = {**os.environ, "GOODPUT_KEY_CACHE_SECONDS": "86400", "GOODPUT_EXPOSE": "local"}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "30"


def test_i32_two_authorization_headers_are_no_key(server: Server, alpha: Any, token: str) -> None:
    for second in (f"Bearer {token}", "Bearer gp_x", "", "Basic eDp4"):
        data = request(packed()[0], token).replace(b"\r\n\r\n", f"\r\nAuthorization: {second}\r\n\r\n".encode(), 1)
        assert server.talk(data)[0].status == 401
    assert count(alpha) == 0


@pytest.mark.parametrize(
    ("header", "statuses"),
    [
        (b"X-Request-Id: a\rX-Injected: b", {400}),
        (b"X-Request-Id: a\0b", {400}),
        (b"X-Request-Id: a\r\n folded: b", {400}),
        (b"X Request: a", {400}),
        (b"X-Request-Id: " + b"x" * 65_536, {202, 431}),
        (b"X-Request-Id: " + b"x" * 1_000_000, {431}),
        (b"\r\n".join(b"X-%d: 1" % n for n in range(200)), {431}),
        (b"X-Request-Id: \xff\xfe\xed\xa0\x80", {202, 400}),
        (b"User-Agent: goodput\x1b[31m", {202, 400}),
    ],
    ids=["CR", "NUL", "folded", "space in name", "64 kB", "1 MB", "200 headers", "not text", "escape"],
)
def test_i37_hostile_headers_are_refused_or_ignored(
    header: bytes, statuses: set[int], server: Server, token: str
) -> None:
    data = request(packed()[0], token).replace(b"\r\n\r\n", b"\r\n" + header + b"\r\n\r\n", 1)
    answer = server.talk(data)[0]
    assert answer.status in statuses
    assert not any("injected" in name or "injected" in value.lower() for name, value in answer.headers.items())


def test_i37_no_request_writes_a_line_of_its_own_into_the_log(server: Server, alpha: Any, token: str) -> None:
    canary = "2026-01-01 00:00:00 ERROR forged"
    before = server.log.stat().st_size
    quoted = "%0d%0a" + canary.replace(" ", "%20") + "%0a%1b[31m%E2%80%A8"
    for path in (f"/v1/x{quoted}", f"/v1/batches{quoted}", f"/v1/batches?x={quoted}"):
        server.talk(request(packed()[0], token, path=path))
    server.talk(request(packed(agent_version=f"1.0\r\n{canary}")[0], token))
    for node in ("n1", "n2"):
        server.talk(request(packed(agent_id=f"a {canary}", seq=1, node_id=node)[0], token))
    time.sleep(0.2)
    with server.log.open() as log:
        log.seek(before)
        lines = log.read().splitlines()
    assert any("seq_conflict" in line for line in lines), "the log is written"
    assert not any(line.startswith(canary) for line in lines)
    assert "\x1b" not in "".join(lines)
    assert token not in "".join(lines)


def test_local_mode_refuses_what_came_through_a_proxy(database_url: str, tmp_path: Any) -> None:
    with Server(tmp_path / "web.log", DATABASE_URL=database_url, GOODPUT_EXPOSE="local") as local:
        body = packed()[0]
        assert local.talk(request(body))[0].status == 202, "no key is needed"
        for more in (
            {"Host": "evil.example"},
            {"X_Forwarded_For": "10.0.0.1"},
            {"Forwarded": "for=x"},
            {"Via": "1.1 x"},
        ):
            assert local.talk(request(body, **more))[0].code == "not_local"
