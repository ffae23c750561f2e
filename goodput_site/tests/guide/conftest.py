"""A release folder built once, and a loopback server that offers it as a Goodput server would."""

from __future__ import annotations

import functools
import http.server
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from django.core.management import call_command


def make_key(path: Path) -> Path:
    """A new signing key as a PEM file."""
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(pem)
    return path


@pytest.fixture(scope="session")
def signing_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The key that the release of these tests is signed with."""
    return make_key(tmp_path_factory.mktemp("key") / "release.pem")


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory, signing_key: Path) -> Path:
    """The folder of a signed release."""
    out = tmp_path_factory.mktemp("release")
    call_command("release", out=out, date="2026-11-30", sign_key=signing_key)
    return out


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files and logs nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def offered(release: Path, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """(origin, its release folder, a copy that a test may spoil)."""
    site = tmp_path / "site"
    folder = site / "releases"
    folder.mkdir(parents=True)
    subprocess.run(["cp", "-r", f"{release}/.", folder], check=True)
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", folder
        server.shutdown()
        thread.join()
