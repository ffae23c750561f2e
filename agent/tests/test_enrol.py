"""Enrolment from the node's side: once, before the first upload, in the way of none."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat

import pytest

from agent import wire
from agent.enrol import FILE, Enrolment, kept, token_in_use
from agent.identity import Signer, renew_secrets
from agent.tests.rig import Rig
from agent.transport import Transport, parse_endpoint

ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
SAID = {"cluster_id": "demo", "node_id": "node-1", "hw_id": None, "agent_version": "0.1.0"}


class Server:
    """The server's answers to enrolments; by default a token of the node's own."""

    def __init__(self, backend, token="gp_own", state="active"):
        self.status, self.token, self.state = 200, token, state
        self.asked = []
        backend.enrol = self.answer

    def answer(self, handler, body):
        said = json.loads(body)
        proof = base64.b64decode(handler.headers[wire.HEADER_SIGNATURE])
        key = ed25519.Ed25519PublicKey.from_public_bytes(base64.b64decode(said["public_key"]))
        key.verify(proof, wire.enrolment_message(body))
        self.asked.append((handler.headers.get("Authorization"), said))
        reply = {"agent_id": said["agent_id"], "state": self.state, "token": self.token}
        return self.status, json.dumps(reply if self.status == 200 else {"code": "agent_waiting"}).encode()


def start(tmp_path, backend, token="gp_bootstrap", **more):
    """A simulated node with an enrolment, in a state directory of its own."""
    directory = tmp_path / "state"
    directory.mkdir(exist_ok=True)
    signer = Signer(directory)
    transport = Transport(parse_endpoint(backend.url))
    enrolment = Enrolment(directory, transport, signer, lambda: token, {**SAID, **more})
    return Rig(directory, backend.url, sign=signer.sign, enrol=enrolment), enrolment


def keys_sent(backend):
    return [headers.get("Authorization") for _path, headers, _body in backend.requests]


def test_a_node_enrols_once_and_sends_with_its_own_key(tmp_path, backend):
    server = Server(backend)
    for _ in range(2):  # a restart asks nothing again
        rig, _enrolment = start(tmp_path, backend)
        rig.minute()
        rig.drain()
        agent_id = rig.store.outbox.agent_id
        rig.close()
    ((bearer, said),) = server.asked
    assert bearer == "Bearer gp_bootstrap"
    assert said == {
        "agent_id": agent_id, "agent_version": "0.1.0", "cluster_id": "demo", "node_id": "node-1",
        "public_key": Signer(tmp_path / "state").public_key,
    }  # fmt: skip
    assert set(keys_sent(backend)) == {"Bearer gp_own"}
    path = tmp_path / "state" / FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert token_in_use(tmp_path / "state", "gp_bootstrap") == "gp_own"
    assert token_in_use(tmp_path / "state", "gp_another") == "gp_another"  # a new file wins over what the old one gave


def test_what_a_node_says_of_itself_or_its_key_file_is_enrolled_anew(tmp_path, backend):
    server = Server(backend, token=None)
    for name, token in (("node-1", "gp_a"), ("node-1", "gp_b"), ("renamed", "gp_b"), ("renamed", "gp_b")):
        rig, _ = start(tmp_path, backend, token, node_id=name)
        rig.minute()
        rig.drain()
        rig.close()
    assert [(bearer[7:], said["node_id"]) for bearer, said in server.asked] == [
        ("gp_a", "node-1"), ("gp_b", "node-1"), ("gp_b", "renamed"),
    ]  # fmt: skip
    assert set(keys_sent(backend)) == {"Bearer gp_a", "Bearer gp_b"}  # without a token of its own it uses the file's


@pytest.mark.parametrize("status", [404, 405, 401, 403, 409, 422, 500])
def test_no_answer_to_an_enrolment_keeps_an_upload_back(tmp_path, backend, status):
    server = Server(backend)
    server.status = status
    rig, enrolment = start(tmp_path, backend, "gp_plain")
    rig.minute()
    for _ in range(40):
        enrolment._not_before = 0.0 if status == 500 else enrolment._not_before
        rig.drain()
    assert rig.store.outbox.queued_count() == 0
    assert set(keys_sent(backend)) == {"Bearer gp_plain"}
    assert kept(tmp_path / "state") == {}
    assert len(server.asked) == (1 if status != 500 else len(server.asked))
    rig.close()


def test_a_node_without_any_delivery_waits_a_moment_for_a_sick_server(tmp_path, backend):
    server = Server(backend)
    server.status = 503
    rig, enrolment = start(tmp_path, backend)
    rig.minute()
    assert rig.sender.step() > 0
    assert backend.requests == []  # an upload with a token that may only enrol would cost 15 minutes
    server.status = 200
    enrolment._not_before = 0.0
    rig.drain()
    assert set(keys_sent(backend)) == {"Bearer gp_own"}
    rig.close()


def test_an_own_key_that_is_refused_is_asked_for_anew(tmp_path, backend):
    """A server restored from a backup knows nothing of the key that it gave."""
    server = Server(backend)
    rig, _ = start(tmp_path, backend)
    rig.minute()
    rig.drain()
    server.token = "gp_second"
    backend.behave = lambda handler, body: (
        handler.headers["Authorization"] == "Bearer gp_own" and (handler.answer(401, b"") or True)
    )
    rig.minute()
    assert rig.sender.step() > 0
    rig.drain()
    assert keys_sent(backend)[-1] == "Bearer gp_second"
    assert rig.store.outbox.queued_count() == 0
    rig.close()


def test_an_answer_for_somebody_else_and_rubbish_are_not_kept(tmp_path, backend):
    for reply in (b'{"agent_id": "another", "token": "gp_x"}', b"<html>", b"[" * 4000, b'{"token": "gp_x"}'):
        backend.enrol = lambda handler, body, reply=reply: (200, reply)
        rig, _ = start(tmp_path, backend, "gp_plain")
        rig.minute()
        for _ in range(10):
            rig.sender.step()
        assert kept(tmp_path / "state") == {}
        rig.close()


def test_a_token_that_is_no_word_is_not_used(tmp_path, backend):
    Server(backend, token="gp x\r\nX-Evil: 1", state="Active <b>")
    rig, enrolment = start(tmp_path, backend, "gp_plain")
    rig.minute()
    rig.drain()
    assert kept(tmp_path / "state")["state"] == "unknown"
    assert enrolment.token() == "gp_plain"
    rig.close()


def test_a_copied_disk_brings_no_key_of_its_own_along(tmp_path, backend):
    Server(backend)
    rig, _ = start(tmp_path, backend)
    rig.minute()
    rig.drain()
    rig.close()
    renew_secrets(tmp_path / "state")
    assert token_in_use(tmp_path / "state", "gp_bootstrap") == "gp_bootstrap"


def test_the_enrolments_message_is_no_batchs():
    body = os.urandom(40)
    assert wire.enrolment_message(body) != wire.signed_message(hashlib.sha256(body).digest())
    assert len(wire.fingerprint(bytes(32)).split()) == 4


def test_the_contract_page_names_every_key_of_an_enrolment():
    from pathlib import Path

    text = (Path(__file__).parents[2] / "goodput_site/guide/text/data-contract.md").read_text()
    told = text[text.index("## Enrolment") : text.index("## What is never collected")]
    assert all(f"`{key}`" in told for key in wire.ENROLMENT)
