"""Puts a release into a folder, and keeps the one that a running server offers in step with its sources.

A server that nobody gave a release makes its own at the start, signed with a key of this installation
(`GOODPUT_VAR/secrets/release.pem`). A release that was signed with a key from elsewhere is never replaced: machines
that installed from it remember its key and would refuse another one.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from goodput_site.guide import building, content, releases


def publish(
    out: Path, version: str, date: str, key: Ed25519PrivateKey | None, with_binary: bool = False
) -> dict[str, Any]:
    """Build a release into `out` and return its manifest, which is written last: it names nothing that is missing."""
    out.mkdir(parents=True, exist_ok=True)
    with _alone(out):
        files = building.build(version, with_binary)
        for image in sorted(out.glob(f"goodput-images-{version}.tar")):  # saved by hand; listed where it lies
            files[image.name] = image.read_bytes()
        for name, data in files.items():
            _write(out / name, data)
        _write(out / f"SHA256SUMS-{version}", building.checksums(version, date, files))
        manifest = building.manifest(version, date, files, key)
        document = json.dumps(manifest, indent=1).encode() + b"\n"
        _write(out / f"manifest-{version}.json", document)
        _write(out / "manifest.json", document)
    return manifest


def offer(out: Path, key_file: Path) -> str:
    """Make the release of this server if it has none or an outdated one; says in a sentence what was done."""
    if releases.built_in().is_dir():
        return "the release of this image is offered"
    version, before = content.version(), releases.read(out)
    signer = (before or {}).get("signature", {}).get("key")
    if before and signer and (not key_file.exists() or signer != building.public_key(building.read_key(key_file))):
        fits = before["version"] == version
        advice = "" if fits else f"; this server is {version}: make its release with `manage release --sign-key`"
        return f"release {before['version']} is signed with a key from elsewhere and stays{advice}"
    reason = _why_outdated(out, before, version)
    if not reason:
        return f"release {version} is up to date"
    publish(out, version, date_of_sources(), own_key(key_file))
    return f"release {version} made, because {reason}"


def _why_outdated(out: Path, before: dict[str, Any] | None, version: str) -> str:
    if before is None:
        return "there was none"
    if before["version"] != version:
        return f"the last one was {before['version']}"
    made = (out / "manifest.json").stat().st_mtime
    if any(file.stat().st_mtime > made for file in building.source_files()):
        return "the sources changed"
    return ""


def own_key(file: Path) -> Ed25519PrivateKey:
    """The signing key of this installation, made at its first use; only its owner may read it."""
    if not file.exists():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        draft = file.with_name(f".{file.name}.{os.getpid()}")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(pem)
        draft.replace(file)
    return building.read_key(file)


def date_of_sources() -> str:
    """The date of the last commit; today where there is no repository."""
    with contextlib.suppress(OSError):  # no git here
        asked = subprocess.run(
            ["git", "log", "-1", "--format=%cs"], capture_output=True, text=True, cwd=building.ROOT, check=False
        )
        if asked.returncode == 0 and asked.stdout.strip():
            return asked.stdout.strip()
    return datetime.datetime.now(datetime.UTC).date().isoformat()


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Two builds into one folder come one after the other."""
    descriptor = os.open(out, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(path: Path, data: bytes) -> None:
    draft = path.with_name(f".{path.name}.new")
    draft.write_bytes(data)
    draft.replace(path)
