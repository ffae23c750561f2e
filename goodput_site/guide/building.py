"""A release from the sources: archives, Compose files, chart, SBOM, the list of checksums and the manifest.

The same sources, version and date give the same bytes: members are sorted, have one owner, one time and one of two
modes, and gzip carries no time. What is signed is the list of checksums, because a shell can verify that with openssl.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

ROOT = Path(__file__).resolve().parents[2]
CHART = "deploy/helm/goodput-monitor"
# What the source archive holds; everything else of a working copy stays at home.
SOURCES = (
    *("agent", "orgs", "fleet", "claims", "goodput_site", "benchmarks", "templates", "static", "docs", "deploy"),
    *("goodput", "manage.py", "conftest.py", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"),
    *("CONTRIBUTING.md", "THREAT_MODEL.md", ".dockerignore", ".env.example"),
    *("requirements.txt", "requirements.lock", "requirements-dev.txt", "requirements-dev.lock"),
    *("docker-compose.yml", "docker-compose.release.yml", "docker-compose.gpu.yml"),
)
STAMP = 315532800  # 1980-01-01: no clock goes into an archive

Files = dict[str, tuple[bytes, bool]]  # name → content, and whether it is a program


def archive(files: Files) -> bytes:
    """A .tar.gz of these files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, (content, is_program) in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(content), STAMP, 0o755 if is_program else 0o644
            tar.addfile(member, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), compresslevel=9, mtime=0)


def source_files(root: Path = ROOT) -> Iterator[Path]:
    """Every file of the source archive."""
    for top in SOURCES:
        path = root / top
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and not file.is_symlink() and not _is_litter(file.relative_to(root)):
                yield file


def sources(root: Path = ROOT) -> Files:
    """What the source archive holds, by its path in the repository."""
    return {
        str(file.relative_to(root)): (file.read_bytes(), bool(file.stat().st_mode & 0o100))
        for file in source_files(root)
    }


def _is_litter(path: Path) -> bool:
    return any(part in ("__pycache__", ".venv", "var", ".pytest_cache") for part in path.parts) or path.suffix == ".pyc"


def agent_files(with_binary: bool) -> Files:
    """The agent as one file (and as an executable), built by `python -m agent.build` in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="goodput-release-") as out:
        command = [sys.executable, "-m", "agent.build", "--out", out, *(["--binary"] if with_binary else [])]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        return {file.name: (file.read_bytes(), True) for file in sorted(Path(out).iterdir())}


def verifier() -> dict[str, bytes]:
    """goodput-verify, which checks a claim's pack without a server, as one file; built in a process of its own."""
    if not (ROOT / "claims/verify/build.py").exists():
        return {}
    with tempfile.TemporaryDirectory(prefix="goodput-release-") as out:
        file = Path(out) / "goodput-verify.pyz"
        subprocess.run([sys.executable, "-m", "claims.verify.build", str(file)], check=True, cwd=ROOT)
        return {file.name: file.read_bytes()}


def sbom(version: str, lock: str) -> bytes:
    """A CycloneDX 1.5 document of the server: each package of the lock file, with the hashes that pip will accept."""
    components = []
    for name, pinned, hashes in _locked(lock):
        components.append(
            {
                "type": "library",
                "name": name,
                "version": pinned,
                "purl": f"pkg:pypi/{name.lower()}@{pinned}",
                "hashes": [{"alg": "SHA-256", "content": each} for each in hashes],
            }
        )
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, version + lock)}",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "goodput", "version": version}},
        "components": components,
    }
    return json.dumps(document, indent=1).encode() + b"\n"


def _locked(lock: str) -> Iterator[tuple[str, str, list[str]]]:
    for block in re.split(r"\n(?=[A-Za-z0-9])", lock):
        if match := re.match(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", block):
            yield match[1], match[2], re.findall(r"--hash=sha256:([0-9a-f]{64})", block)


def build(version: str, with_binary: bool = False) -> dict[str, bytes]:
    """Every file of a release but its lists: name → content."""
    tree = sources()
    agent = agent_files(with_binary)
    top = f"goodput-{version}"
    bundle: Files = {f"{top}/{name}": content for name, content in agent.items()}
    for name in ("deploy/systemd/goodput-agent.service", "deploy/install/install-linux.sh", "LICENSE", "docs/agent.md"):
        bundle[f"{top}/{Path(name).name}"] = tree[name]
    bill = sbom(version, tree["requirements.lock"][0].decode())
    bundle[f"{top}/sbom.cdx.json"] = (bill, False)
    chart = {name.removeprefix("deploy/helm/"): content for name, content in tree.items() if name.startswith(CHART)}
    return {
        f"goodput-{version}-linux-amd64.tar.gz": archive(bundle),
        f"goodput-{version}-source.tar.gz": archive({f"{top}/{name}": content for name, content in tree.items()}),
        f"goodput-monitor-{version}.tgz": archive(chart),
        f"docker-compose.release-{version}.yml": tree["docker-compose.release.yml"][0],
        f"docker-compose.gpu-{version}.yml": tree["docker-compose.gpu.yml"][0],
        f"goodput-{version}.cdx.json": bill,
        **{f"goodput-verify-{version}.pyz": program for program in verifier().values()},
    }


def checksums(version: str, date: str, files: dict[str, bytes]) -> bytes:
    """The list that is signed: a line that names the release, then `sha256sum` lines."""
    lines = [f"# goodput {version} {date}"]
    lines += [f"{hashlib.sha256(content).hexdigest()}  {name}" for name, content in sorted(files.items())]
    return ("\n".join(lines) + "\n").encode()


def manifest(version: str, date: str, files: dict[str, bytes], key: Ed25519PrivateKey | None) -> dict[str, Any]:
    """The manifest; with a key, an Ed25519 signature over the list of checksums that it names."""
    sums = checksums(version, date, files)
    document: dict[str, Any] = {
        "version": version,
        "date": date,
        "channel": "stable",
        "min_server_version": version,
        "checksums": f"/releases/SHA256SUMS-{version}",
        "files": [
            {
                "name": name,
                "os": "linux" if "linux" in name else "any",
                "arch": "amd64" if "amd64" in name else "any",
                "size": len(content),
                "sha256": hashlib.sha256(content).hexdigest(),
                "url": f"/releases/{name}",
            }
            for name, content in sorted(files.items())
        ],
    }
    if key is not None:
        document["signature"] = {
            "algorithm": "ed25519",
            "over": f"SHA256SUMS-{version}",
            "key": public_key(key),
            "value": base64.b64encode(key.sign(sums)).decode(),
        }
    return document


def read_key(path: Path) -> Ed25519PrivateKey:
    """A private key from a PEM file (`openssl genpkey -algorithm ed25519`). Raises ValueError for any other kind."""
    key = load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("not an Ed25519 key")
    return key


def public_key(key: Ed25519PrivateKey) -> str:
    """The public half, as manifests and installers write it: 32 bytes in base64."""
    return base64.b64encode(key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()
