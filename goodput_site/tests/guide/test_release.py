"""The release: the same bytes twice, every file listed with its checksum, a signature that openssl confirms."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from django.core.management import CommandError, call_command
from django.test import Client

from goodput_site.guide import building, content


def manifest_of(folder: Path) -> dict[str, Any]:
    """The manifest as data."""
    document: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    return document


def test_two_builds_are_equal(tmp_path: Path, signing_key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same sources, whatever their order; the tree itself may change while somebody works in it."""
    tree = building.sources()
    for name, files in {"a": tree, "b": dict(reversed(tree.items()))}.items():
        monkeypatch.setattr(building, "sources", lambda files=files: files)
        call_command("release", out=tmp_path / name, date="2026-11-30", sign_key=signing_key)
    names = sorted(file.name for file in (tmp_path / "a").iterdir())
    assert names == sorted(file.name for file in (tmp_path / "b").iterdir())
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_the_manifest_is_true(release: Path) -> None:
    manifest = manifest_of(release)
    assert manifest["version"] == content.version()
    assert manifest["date"] == "2026-11-30"
    for file in manifest["files"]:
        data = (release / file["name"]).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (file["size"], file["sha256"])
        assert file["url"] == f"/releases/{file['name']}"
    listed = {file["name"] for file in manifest["files"]}
    lists = {"manifest.json", f"manifest-{content.version()}.json", f"SHA256SUMS-{content.version()}"}
    assert {file.name for file in release.iterdir()} == listed | lists


def test_the_signature_is_over_the_list_of_checksums(release: Path) -> None:
    signature = manifest_of(release)["signature"]
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(signature["key"]))
    key.verify(base64.b64decode(signature["value"]), (release / signature["over"]).read_bytes())


def test_the_agent_of_the_archive_runs(release: Path, tmp_path: Path) -> None:
    name = f"goodput-{content.version()}"
    with tarfile.open(release / f"{name}-linux-amd64.tar.gz") as tar:
        tar.extractall(tmp_path)  # our own archive; Python before 3.11.4 knows no filter
    for file in ("goodput-agent.service", "install-linux.sh", "LICENSE", "sbom.cdx.json"):
        assert (tmp_path / name / file).exists()
    shown = subprocess.run(
        [sys.executable, tmp_path / name / "goodput-agent.pyz", "version"], capture_output=True, text=True, check=True
    )
    assert content.version() in shown.stdout


def test_the_verifier_of_the_release_runs(release: Path) -> None:
    program = release / f"goodput-verify-{content.version()}.pyz"
    if not program.exists():
        pytest.skip("this release has no verifier yet")
    shown = subprocess.run([sys.executable, program, "--help"], capture_output=True, text=True)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "pack" in shown.stdout


def test_the_source_archive_is_whole_and_holds_no_litter(release: Path) -> None:
    with tarfile.open(release / f"goodput-{content.version()}-source.tar.gz") as tar:
        names = {name.split("/", 1)[1] for name in tar.getnames()}
        owners = {(member.uid, member.uname, member.mtime) for member in tar.getmembers()}
    assert {
        "goodput",
        "manage.py",
        "requirements.lock",
        "docker-compose.yml",
        "deploy/docker/server.Dockerfile",
    } <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith((".git", "var/", ".venv"))]
    assert owners == {(0, "", building.STAMP)}


def test_the_sbom_lists_every_locked_package(release: Path) -> None:
    bill = json.loads((release / f"goodput-{content.version()}.cdx.json").read_text())
    listed = {(each["name"], each["version"]) for each in bill["components"]}
    assert ("django", "5.2.19") in {(name.lower(), version) for name, version in listed}
    lines = (building.ROOT / "requirements.lock").read_text().splitlines()
    assert len(listed) == len([line for line in lines if line[:1].isalnum()])
    assert all(each["hashes"] for each in bill["components"])


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    bad = tmp_path / "key.pem"
    bad.write_text("not a key")
    with pytest.raises(CommandError, match="Ed25519"):
        call_command("release", out=tmp_path / "out", sign_key=bad)
    assert not (tmp_path / "out").exists()


@pytest.mark.django_db
def test_the_site_serves_what_the_manifest_lists(release: Path, settings: Any, tmp_path: Path) -> None:
    (tmp_path / "releases").symlink_to(release)
    settings.GOODPUT_VAR = tmp_path
    client = Client(HTTP_HOST="localhost")
    manifest = client.get("/releases/manifest.json")
    assert b"".join(manifest.streaming_content) == (release / "manifest.json").read_bytes()
    for file in manifest_of(release)["files"]:
        response = client.get(file["url"])
        assert hashlib.sha256(b"".join(response.streaming_content)).hexdigest() == file["sha256"]
    page = client.get("/guide/downloads/").content.decode()
    assert all(file["sha256"] in page for file in manifest_of(release)["files"])
    with tarfile.open(fileobj=io.BytesIO((release / f"goodput-monitor-{content.version()}.tgz").read_bytes())) as tar:
        assert "goodput-monitor/Chart.yaml" in tar.getnames()
