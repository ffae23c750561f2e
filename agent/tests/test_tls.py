"""Certificates are always verified: a batch waits rather than go to someone who only claims to be the server."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import threading

import pytest

from agent.tests.backend import Backend
from agent.tests.certificates import certificate
from agent.tests.rig import Rig
from agent.transport import Transport, TransportError, parse_endpoint


@pytest.fixture
def serve(tmp_path):
    """Starts a backend behind TLS with a given certificate; its URL is https."""
    servers = []

    def start(cert, key):
        backend = Backend()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        backend.server.socket = context.wrap_socket(backend.server.socket, server_side=True)
        backend.url = backend.url.replace("http://", "https://")
        servers.append(backend)
        return backend

    yield start
    for backend in servers:
        threading.Thread(target=backend.close, daemon=True).start()


def test_a_certificate_of_a_trusted_authority_is_taken(tmp_path, serve, monkeypatch):
    authority_file, _, authority = certificate(tmp_path, "authority")
    backend = serve(*certificate(tmp_path, "server", issuer=authority)[:2])
    monkeypatch.setenv("SSL_CERT_FILE", str(authority_file))
    rig = Rig(tmp_path / "s", backend.url)
    rig.sample()
    rig.drain()
    assert len(backend.batches) == 1
    rig.close()


def test_the_command_which_loads_tls_late_verifies_as_well(tmp_path, serve):
    authority_file, _, authority = certificate(tmp_path, "authority")
    good = serve(*certificate(tmp_path, "server", issuer=authority)[:2])
    bad = serve(*certificate(tmp_path, "self-signed")[:2])
    for backend, code in ((good, 0), (bad, 1)):
        flags = ["--source", "sim", "--endpoint", backend.url, "--state-dir", str(tmp_path / str(code))]
        done = subprocess.run(
            [sys.executable, "-m", "agent", "once", *flags],
            env={**os.environ, "SSL_CERT_FILE": str(authority_file)}, capture_output=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
    assert b"certificate" in done.stderr
    assert (len(good.batches), len(bad.batches)) == (1, 0)


@pytest.mark.parametrize("wrong", ["unknown authority", "self-signed", "other host", "expired"])
def test_any_other_certificate_keeps_the_batch_and_the_key(tmp_path, serve, monkeypatch, wrong):
    authority_file, _, authority = certificate(tmp_path, "authority")
    stranger = certificate(tmp_path, "stranger")[2]
    pair = {
        "unknown authority": lambda: certificate(tmp_path, "server", issuer=stranger),
        "self-signed": lambda: certificate(tmp_path, "server"),
        "other host": lambda: certificate(tmp_path, "server", address="127.0.0.9", issuer=authority),
        "expired": lambda: certificate(tmp_path, "server", days=-1, issuer=authority),
    }[wrong]()
    backend = serve(*pair[:2])
    monkeypatch.setenv("SSL_CERT_FILE", str(authority_file))
    rig = Rig(tmp_path / "s", backend.url, token=lambda: "secret")
    rig.sample()
    assert rig.sender.step() > 0
    assert rig.store.outbox.queued_count() == 1
    assert backend.requests == []
    transport = Transport(parse_endpoint(backend.url))
    with pytest.raises(TransportError, match="certificate"):
        transport.post(b"", {})
    rig.close()
