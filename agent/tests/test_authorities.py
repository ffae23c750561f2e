"""The machine's authorities in a folder of their own: trusted are exactly those that the file holds."""

from __future__ import annotations

import contextlib
import os
import ssl
import threading

import pytest

from agent import authorities
from agent.authorities_split import split
from agent.tests.backend import Backend
from agent.tests.certificates import certificate
from agent.transport import Transport, TransportError, parse_endpoint

MANY = 120


@pytest.fixture(scope="module")
def strangers(tmp_path_factory):
    """As many authorities as a machine's file holds, two of them under one name."""
    directory = tmp_path_factory.mktemp("strangers")
    names = [f"stranger-{number}" for number in range(MANY - 1)] + ["stranger-0"]
    return b"".join(certificate(directory, name)[0].read_bytes() for name in names)


@pytest.fixture
def server(tmp_path):
    """(backend behind TLS, certificate of the authority that signed its own)."""
    authority, _, issuer = certificate(tmp_path, "authority")
    backend = Backend()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate(tmp_path, "server", issuer=issuer)[:2])
    backend.server.socket = context.wrap_socket(backend.server.socket, server_side=True)
    yield backend.url.replace("http://", "https://"), authority.read_bytes()
    threading.Thread(target=backend.close, daemon=True).start()


def reach(url, state):
    """The status of an empty upload, or the error's words."""
    transport = Transport(parse_endpoint(url), state_dir=state)
    try:
        return transport.post(b"", {}).status
    except TransportError as error:
        return str(error)
    finally:
        transport.close()


def trust(monkeypatch, tmp_path, content, name="bundle.pem"):
    bundle = tmp_path / name
    bundle.write_bytes(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
    return bundle


def folders(state):
    return sorted(path.name for path in state.glob("authorities-*"))


def test_a_server_is_verified_by_the_folder_and_by_nothing_more(tmp_path, server, strangers, monkeypatch):
    url, authority = server
    state = tmp_path / "state"
    state.mkdir()
    bundle = trust(monkeypatch, tmp_path, strangers)
    assert "certificate" in str(reach(url, state))
    (first,) = folders(state)
    assert len(list((state / first).iterdir())) == MANY
    bundle.write_bytes(strangers + authority)  # the machine trusts one more
    os.utime(bundle, (1, 1))
    assert "certificate" not in str(reach(url, state))
    (second,) = folders(state)
    assert second != first
    assert authorities.client_context(state).cert_store_stats()["x509"] == 0  # nothing is loaded before it is needed
    bundle.write_bytes(strangers)  # and no longer
    os.utime(bundle, (2, 2))
    assert "certificate" in str(reach(url, state))


def test_names_are_those_that_openssl_looks_for(tmp_path, strangers):
    (tmp_path / "bundle.pem").write_bytes(strangers)
    assert split(tmp_path / "bundle.pem", tmp_path / "folder")
    names = sorted(path.name for path in (tmp_path / "folder").iterdir())
    assert sum(name.endswith(".1") for name in names) == 1  # the second one under one name
    assert not list(tmp_path.glob("folder.*"))


@pytest.mark.parametrize("form", ["TRUSTED CERTIFICATE", "CERTIFICATE", "X509 CRL", "nothing"])
def test_a_file_that_cannot_be_split_leaves_no_folder(tmp_path, strangers, form):
    """Also not in part: what is left out would be trusted no longer."""
    odd = b"" if form == "nothing" else strangers + f"-----BEGIN {form}-----\nAAAA\n-----END {form}-----\n".encode()
    (tmp_path / "odd.pem").write_bytes(odd)
    with contextlib.suppress(ValueError):
        assert not split(tmp_path / "odd.pem", tmp_path / "folder")
    assert not list(tmp_path.glob("folder*"))


def test_where_nothing_is_split_the_file_is_loaded_as_a_whole(tmp_path, server, strangers, monkeypatch):
    url, authority = server
    state = tmp_path / "state"
    state.mkdir()
    trust(monkeypatch, tmp_path, authority)  # one authority is not worth a folder
    assert "certificate" not in str(reach(url, state))
    trusted = b"-----BEGIN TRUSTED CERTIFICATE-----\nAAAA\n-----END TRUSTED CERTIFICATE-----\n"
    trust(monkeypatch, tmp_path, strangers + authority + trusted, "odd.pem")
    reach(url, state)
    assert folders(state) == []
