"""The status contract (facts/reliability 1.4): what each answer of a server does to a batch."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest

from agent import contract
from agent.errors import ConfigError
from agent.schedule import RETRY_AFTER_LEAST_S, RETRY_AFTER_MOST_S, next_centre, retry_delay, upload_phase
from agent.tests.rig import Rig
from agent.transport import Transport, TransportError, parse_endpoint

SHA = "a" * 64
RECEIPT = {
    "batch_sha256": SHA,
    "node": "n",
    "seq": 7,
    "received_at": "2026-11-30T05:20:00.123Z",
    "duplicate": False,
    "signature": None,
}
PROBLEM = {"content-type": "application/problem+json; charset=utf-8"}


def decide(status, body=b"", headers=None, seq=7):
    if isinstance(body, dict):
        body = json.dumps(body).encode()
    return contract.decide(status, headers or {}, body, SHA, seq, 1_796_000_000.0)


@pytest.mark.parametrize("status", [200, 202, 409])
def test_a_receipt_for_these_bytes_delivers(status):
    outcome = decide(status, RECEIPT)
    assert outcome.action == contract.DELIVERED
    assert outcome.received_at == 1_796_016_000_123


@pytest.mark.parametrize(
    "spoilt",
    [
        {"batch_sha256": "b" * 64},
        {"batch_sha256": SHA.upper()},
        {"seq": 8},
        {"received_at": "yesterday"},
        {"received_at": 1_796_016_000_123},
        {"node": None},
    ],
)
def test_a_receipt_for_anything_else_keeps(spoilt):
    assert decide(202, {**RECEIPT, **spoilt}).action == contract.RETRY


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b""),
        (200, b"<html>Please log in to this hotel</html>"),
        (200, b"[1,2]"),
        (200, b"[" * 60_000),
        (204, b""),
        (301, b""),
        (302, b""),
        (307, b""),
        (408, b""),
        (425, b""),
        (429, b""),
        (500, b""),
        (502, b"<html>"),
        (503, b""),
        (599, b""),
    ],
)
def test_what_is_no_receipt_keeps_and_tries_again(status, body):
    assert decide(status, body).action == contract.RETRY


@pytest.mark.parametrize("status", [401, 403, 404, 405, 410])
def test_refused_keys_and_wrong_addresses_keep_and_slow_down(status):
    outcome = decide(status)
    assert (outcome.action, outcome.retry_after_s) == (contract.SLOW, 900.0)


@pytest.mark.parametrize("status", [400, 415, 422])
def test_only_a_goodput_server_can_refuse_for_good(status):
    assert decide(status, {"code": "too_many_gpus"}, PROBLEM).action == contract.QUARANTINE
    assert decide(status, {"code": "too_many_gpus"}).action == contract.RETRY  # a proxy's JSON
    assert decide(status, b"<html>Bad Request</html>").action == contract.RETRY
    assert decide(status, {"code": "<script>"}, PROBLEM).action == contract.RETRY


def test_conflicts_and_size():
    assert decide(409, {"code": "seq_conflict"}, PROBLEM).action == contract.QUARANTINE
    assert decide(409, {"code": "something"}, PROBLEM).action == contract.RETRY
    assert decide(413).action == contract.SPLIT


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 5.0),
        ("0", RETRY_AFTER_LEAST_S),
        ("-3", RETRY_AFTER_LEAST_S),
        ("1000000000", RETRY_AFTER_MOST_S),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("", None),
        ("Mon, 30 Nov 2026 00:53:50 GMT", 30.0),
        ("Mon, 30 Nov 1999 00:53:50 GMT", RETRY_AFTER_LEAST_S),
    ],
)
def test_retry_after_is_clamped(text, seconds):
    assert contract.parse_retry_after(text, 1_796_000_000.0) == seconds


def test_jitter_is_full_and_capped():
    import random

    rng = random.Random(3)
    waits = [retry_delay(n, rng) for n in range(1, 60) for _ in range(20)]
    assert min(waits) < 1
    assert max(waits) <= 300
    assert max(waits) > 250


def test_samples_lie_at_slot_centres_and_uploads_are_spread():
    assert [next_centre(t) % 15_000 for t in (0, 7_499, 7_500, 14_999, 15_000)] == [7_500] * 5
    assert next_centre(7_500) == 22_500
    phases = [upload_phase(f"demo/node-{n}") for n in range(2000)]
    per_slot = [sum(1 for slot, _ in phases if slot == s) for s in range(4)]
    assert min(per_slot) > 400
    assert len({ms // 1000 for _, ms in phases}) == 12


def test_refused_for_good_goes_to_quarantine_and_the_rest_flows(tmp_path, backend):
    rig = Rig(tmp_path, backend.url)

    def behave(handler, body):
        if backend.requests and len(backend.requests) == 1:
            problem = {"code": "too_many_gpus", "status": 422}
            handler.answer(422, json.dumps(problem).encode(), {"Content-Type": "application/problem+json"})
            return True
        return False

    backend.behave = behave
    for _ in range(3):
        rig.minute()
        rig.drain()
    counts = rig.store.outbox.counts()
    assert counts["batches_quarantined"] == 1
    assert counts["batches_queued"] == 0
    assert counts["delivered"] == len(backend.batches) > 0
    rig.close()


def test_too_large_is_halved_without_a_gap_in_seq(tmp_path, backend):
    rig = Rig(tmp_path, backend.url)
    import gzip

    import msgpack

    def behave(handler, body):
        if len(msgpack.unpackb(gzip.decompress(body), raw=False)["intervals"]) > 1:
            handler.answer(413, b"")
            return True
        return False

    backend.behave = behave
    for _ in range(2):
        rig.minute()
        rig.drain()
    rig.store.assemble(rig.now_ms)
    rig.drain()
    assert len(backend.sample_times()) == 8
    assert all(len(b["intervals"]) == 1 for b in backend.batches.values())
    seqs = sorted(b["seq"] for b in backend.batches.values())
    assert seqs == list(range(1, 9))
    rig.close()


def test_an_outcome_that_the_disk_does_not_take_is_not_sent_for_ever(tmp_path, backend, monkeypatch):
    """D004: one copy at the server, however often the disk refuses."""
    from agent.outbox_file import OutboxFull

    rig = Rig(tmp_path, backend.url)
    rig.sample()
    outbox = rig.store.outbox
    real = outbox.delivered

    def full(*_args):
        raise OutboxFull("disk is full")

    monkeypatch.setattr(outbox, "delivered", full)
    for _ in range(5):
        rig.sender.step()
    assert len(backend.requests) == 1  # receipted once, remembered, not sent again
    monkeypatch.setattr(outbox, "delivered", real)
    rig.drain()
    assert outbox.queued_count() == 0
    rig.close()


def test_several_batches_share_a_connection(tmp_path, backend):
    backend.down = True
    rig = Rig(tmp_path, backend.url)
    for _ in range(5):
        rig.minute()
    backend.down = False
    peers = set()
    backend.behave = lambda handler, _body: peers.add(handler.client_address) or False
    rig.drain()
    assert len(backend.batches) >= 5
    assert len(peers) == 1
    rig.close()


def test_a_redirect_is_not_followed_and_the_key_stays_here(tmp_path, backend):
    from agent.tests.backend import Backend

    other = Backend()
    backend.behave = lambda handler, _body: handler.answer(302, b"", {"Location": other.url}) or True
    rig = Rig(tmp_path, backend.url, token=lambda: "secret-key")
    rig.sample()
    rig.sender.step()
    assert rig.store.outbox.queued_count() == 1
    assert other.requests == []
    assert backend.requests[0][1]["Authorization"] == "Bearer secret-key"
    other.close()
    rig.close()


def test_a_key_file_that_vanished_keeps_everything_until_it_is_back(tmp_path, backend):
    from agent.build_nodes import token_reader

    key = tmp_path / "key"
    key.write_text("one\n")
    key.chmod(0o600)
    rig = Rig(tmp_path / "s", backend.url, token=token_reader(key))
    key.unlink()
    rig.sample()
    assert rig.sender.step() > 0
    assert rig.store.outbox.queued_count() == 1
    key.write_text("two\n")
    key.chmod(0o600)
    rig.drain()
    assert backend.requests[-1][1]["Authorization"] == "Bearer two"
    assert rig.store.outbox.queued_count() == 0
    rig.close()


class Raw:
    """A server that answers every connection with the same bytes, slowly if asked."""

    def __init__(self, chunks, pause_s=0.0):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1/batches"
        self._chunks, self._pause = chunks, pause_s
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                try:
                    for chunk in self._chunks():
                        connection.sendall(chunk)
                        time.sleep(self._pause)
                except OSError:
                    pass

    def close(self):
        self._listener.close()


def endless():
    yield b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
    while True:
        yield b"x" * 65536


def dripping():
    yield b"HTTP/1.1 200 OK\r\n\r\n"
    while True:
        yield b"x"


def dripping_headers():
    yield b"HTTP/1.1 200 OK\r\nX-Long: "
    while True:
        yield b"x"


def never_final():
    while True:
        yield b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize(
    ("chunks", "pause"),
    [
        (endless, 0.0),
        (dripping, 0.05),
        (dripping_headers, 0.05),
        (never_final, 0.05),
        (lambda: [b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n" + b"x" * 200_000], 0.0),
        (lambda: [b"HTTP/1.1 100 Continue\r\n\r\n" * 50], 0.0),
        (lambda: [b"SSH-2.0-OpenSSH_9\r\n"], 0.0),
        (lambda: [b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 500 + b"\r\n"], 0.0),
        (lambda: [b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000 + b"\r\n\r\n"], 0.0),
        (lambda: [], 0.0),
    ],
)
def test_a_hostile_answer_is_bounded_and_empties_nothing(chunks, pause):
    server = Raw(chunks, pause)
    transport = Transport(parse_endpoint(server.url), deadline_s=1.0)
    before = time.monotonic()
    try:
        reply = transport.post(b"x", {})
    except TransportError:
        pass
    else:
        assert len(reply.body) <= 65536
        assert contract.decide(reply.status, reply.headers, reply.body, SHA, 1, 0.0).action != contract.DELIVERED
    assert time.monotonic() - before < 15
    transport.close()
    server.close()


@pytest.mark.parametrize(
    "text",
    [
        "http://1.1.1.1/v1/batches",
        "ftp://x/",
        "https://user:pw@host/",
        "host:8080",
        "http://[::1",
        "https://h:99999/",
    ],
)
def test_addresses_that_are_refused(text):
    with pytest.raises((ConfigError, ValueError)):
        parse_endpoint(text)


def test_plain_http_is_taken_for_private_addresses_and_names():
    for text in (
        "http://127.0.0.1:8080",
        "http://192.168.1.50:8080/v1/batches",
        "http://ingest:8080/",
        "http://[::1]:1/",
    ):
        assert parse_endpoint(text).plain
    assert parse_endpoint("https://goodput.example").url == "https://goodput.example:443/v1/batches"


def test_a_proxy_of_the_environment_is_used_and_no_proxy_honoured(tmp_path, backend, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    proxy = backend.url.split("/")[2]
    monkeypatch.setenv("http_proxy", f"http://user:geheim@{proxy}")
    transport = Transport(parse_endpoint("http://goodput.invalid:8080/v1/batches"))
    backend.behave = lambda handler, _body: handler.answer(503, b"") or True
    assert transport.post(b"", {}).status == 503
    path, headers, _body = backend.requests[0]
    assert path == "http://goodput.invalid:8080/v1/batches"
    assert headers["Proxy-Authorization"].startswith("Basic ")
    monkeypatch.setenv("no_proxy", "localhost,.invalid")
    with pytest.raises(TransportError, match="host name"):
        Transport(parse_endpoint("http://goodput.invalid:8080/v1/batches")).post(b"", {})
    transport.close()
