"""Receipts: a batch leaves only with one that bears the log key's signature, where a key is known."""

from __future__ import annotations

import base64
import json
import stat

import pytest

from agent import ed25519, wire
from agent.enrol import Enrolment, kept
from agent.errors import ConfigError
from agent.identity import Signer
from agent.line_ring import LineRing
from agent.receipts import Receipts, read_log_key
from agent.tests.rig import Rig
from agent.tests.test_enrol import SAID
from agent.transport import Transport, parse_endpoint


class Log:
    """A log's key; signs a backend's receipts."""

    def __init__(self, seed):
        self.public, self.sign = ed25519.load(bytes([seed]) * 32)
        blob = base64.b64encode(b"\x01" + self.public).decode()
        self.told = f"log.example+0000000{seed}+{blob}"

    def signed(self, receipt):
        message = wire.receipt_message(*(receipt[key] for key in ("batch_sha256", "node", "seq", "received_at")))
        return {**receipt, "signature": base64.b64encode(self.sign(message)).decode()}


@pytest.fixture
def log(backend):
    """The log whose key the backend's enrolment tells and whose signatures its receipts bear."""
    made = Log(1)
    backend.log = backend.told = made
    plain = backend.receipt
    backend.receipt = lambda body: backend.log.signed(plain(body)) if backend.log else plain(body)

    def enrol(handler, body):
        said = {"agent_id": json.loads(body)["agent_id"], "state": "active", "token": None}
        return 200, json.dumps({**said, "log_key": backend.told.told} if backend.told else said).encode()

    backend.enrol = enrol
    return made


def start(directory, backend, pinned=""):
    directory.mkdir(exist_ok=True)
    signer, transport = Signer(directory), Transport(parse_endpoint(backend.url))
    enrol = Enrolment(directory, transport, signer, lambda: "gp_x", SAID)
    keep = LineRing(directory, name="receipts.log").keep
    receipts = Receipts(pinned, lambda: enrol.log_key, enrol.doubt_log_key, keep)
    rig = Rig(directory, backend.url, sign=signer.sign, enrol=enrol, receipts=receipts)
    rig.minute()
    return rig


def waits(rig):
    return rig.store.outbox.queued_count()


def test_signed_receipts_deliver_and_are_kept_with_what_was_signed(tmp_path, backend, log):
    rig = start(tmp_path / "s", backend)
    rig.drain()
    assert waits(rig) == 0
    assert kept(tmp_path / "s")["log_key"] == log.told
    path = tmp_path / "s" / "receipts.log"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for line in path.read_text().splitlines():
        _at, parts, signature = line.split(" ")
        assert ed25519.verify(log.public, wire.receipt_message(*json.loads(parts)), base64.b64decode(signature))
        assert json.loads(parts)[0] in backend.batches
    rig.close()


@pytest.mark.parametrize("by", [None, Log(2)], ids=["no signature", "another key"])
def test_a_receipt_that_the_log_did_not_sign_delivers_nothing(tmp_path, backend, log, by):
    rig = start(tmp_path / "s", backend)
    rig.drain()
    backend.log = by
    rig.minute()
    assert rig.sender.step() > 0
    assert "log's key" in rig.sender.last_error
    assert waits(rig) == 1
    asked = len(backend.enrolments)
    assert rig.sender.step() > 0
    assert len(backend.enrolments) == asked + 1  # the key is asked for again; it is still the old one
    assert waits(rig) == 1
    backend.log = log
    rig.drain()
    assert waits(rig) == 0
    rig.close()


def test_a_new_key_of_the_server_is_learnt_and_told(tmp_path, backend, log, caplog):
    rig = start(tmp_path / "s", backend)
    rig.drain()
    backend.log = backend.told = Log(2)
    rig.minute()
    assert rig.sender.step() > 0
    rig.drain()
    assert waits(rig) == 0
    assert f"was {log.told} and is now {backend.told.told}" in caplog.text
    rig.close()


def test_a_pinned_key_is_not_given_up_for_what_the_server_tells(tmp_path, backend, log):
    rig = start(tmp_path / "s", backend, pinned=log.told)
    rig.drain()
    assert waits(rig) == 0
    backend.log = backend.told = Log(2)
    rig.minute()
    for _ in range(3):
        assert rig.sender.step() > 0
    assert "pinned" in rig.sender.last_error
    assert waits(rig) == 1
    rig.close()


def test_a_server_that_signs_no_receipts_gets_batches_all_the_same(tmp_path, backend, log):
    backend.log = backend.told = None
    rig = start(tmp_path / "s", backend)
    rig.drain()
    assert waits(rig) == 0
    assert not (tmp_path / "s" / "receipts.log").exists()
    backend.enrol = None  # older still
    rig.minute()
    rig.drain()
    assert waits(rig) == 0
    rig.close()


def test_a_server_that_went_back_to_a_release_without_a_log_gets_batches_again(tmp_path, backend, log):
    rig = start(tmp_path / "s", backend)
    rig.drain()
    backend.log = backend.enrol = None
    rig.minute()
    assert rig.sender.step() > 0
    rig.drain()
    assert waits(rig) == 0
    rig.close()


def test_an_agent_that_enrolled_before_keys_were_told_asks_once(tmp_path, backend, log):
    rig = start(tmp_path / "s", backend)
    rig.drain()
    rig.close()
    path = tmp_path / "s" / "enrolled"
    older = json.loads(path.read_text())
    del older["log_key"]
    path.write_text(json.dumps(older))
    for wanted in (2, 2):
        rig = start(tmp_path / "s", backend)
        rig.drain()
        assert len(backend.enrolments) == wanted
        rig.close()
    assert kept(tmp_path / "s")["log_key"] == log.told


def test_odd_receipts_are_wrong_and_never_an_escape(log):
    receipts = Receipts(log.told)
    good = log.signed({"batch_sha256": "ab", "node": "n", "seq": None, "received_at": "2026-11-30T00:00:00.000Z"})
    assert receipts.check(good) == ""
    for odd in ({"signature": "?"}, {"signature": 7}, {"signature": "AA=="}, {"node": "\ud800"}, {"seq": 1}):
        assert receipts.check({**good, **odd})
    lines = []
    Receipts(keep=lambda at, line: lines.append(line)).keep(0, {**good, "signature": "a\nforged line"})
    assert lines == []


@pytest.mark.parametrize("text", ["", "x", "name+00000000+AQ==", "a+b+????", "a+b+" + "A" * 44])
def test_a_pinned_key_that_is_none_is_refused_at_start(text):
    with pytest.raises(ConfigError, match="verifier key"):
        read_log_key(text)


def test_openssl_and_the_library_agree_on_signatures():
    public, sign = ed25519.load(bytes(32))
    for verify in (ed25519.verify, ed25519._verify_cryptography):
        assert verify(public, b"m", sign(b"m")) is True
        assert verify(public, b"n", sign(b"m")) is False
        assert verify(bytes([255]) * 32, b"m", sign(b"m")) is False
    assert ed25519.verify(public[:31], b"m", sign(b"m")) is False
