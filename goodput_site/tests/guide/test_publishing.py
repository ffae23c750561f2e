"""What a server offers that nobody gave a release: its own, made at the start, signed by a key of the installation."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from goodput_site.guide import building, content, publishing
from goodput_site.tests.guide.conftest import make_key


@pytest.fixture
def installation(tmp_path: Path, settings: Any) -> Path:
    """An empty GOODPUT_VAR."""
    settings.GOODPUT_VAR = tmp_path / "var"
    return tmp_path / "var"


def offered(installation: Path) -> dict[str, Any]:
    """The manifest that the server of this installation would show."""
    document: dict[str, Any] = json.loads((installation / "releases/manifest.json").read_text())
    return document


def offer(installation: Path) -> str:
    """What the launcher runs at each start."""
    return publishing.offer(installation / "releases", installation / "secrets/release.pem")


def test_a_fresh_installation_offers_a_signed_release(installation: Path, capsys: Any) -> None:
    call_command("offer_release")
    assert "made, because there was none" in capsys.readouterr().out
    key = installation / "secrets/release.pem"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert offered(installation)["version"] == content.version()
    assert offered(installation)["signature"]["key"] == building.public_key(building.read_key(key))


def test_a_current_release_is_left_alone(installation: Path) -> None:
    offer(installation)
    before = {file.name: file.stat().st_mtime_ns for file in (installation / "releases").iterdir()}
    assert "up to date" in offer(installation)
    assert {file.name: file.stat().st_mtime_ns for file in (installation / "releases").iterdir()} == before


def test_another_version_or_newer_sources_are_released_with_the_same_key(
    installation: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(installation)
    key = offered(installation)["signature"]["key"]
    monkeypatch.setattr(content, "version", lambda: "0.1.99")
    assert "the last one was" in offer(installation)
    assert (offered(installation)["version"], offered(installation)["signature"]["key"]) == ("0.1.99", key)
    long_ago = time.time() - 10 * 365 * 86400
    os.utime(installation / "releases/manifest.json", (long_ago, long_ago))
    assert "the sources changed" in offer(installation)
    assert offered(installation)["signature"]["key"] == key


def test_a_release_signed_elsewhere_is_never_replaced(
    installation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machines that installed from it remember its key; one of ours they would refuse."""
    call_command("release", out=installation / "releases", date="2026-11-30", sign_key=make_key(tmp_path / "far.pem"))
    before = offered(installation)
    assert "stays" in offer(installation)
    monkeypatch.setattr(content, "version", lambda: "0.1.99")
    assert "--sign-key" in offer(installation)
    assert offered(installation) == before


def test_a_release_by_hand_into_the_folder_keeps_the_key(installation: Path, tmp_path: Path) -> None:
    offer(installation)
    key = offered(installation)["signature"]["key"]
    call_command("release", out=installation / "releases", date="2026-11-30")
    assert offered(installation)["signature"]["key"] == key
    call_command("release", out=tmp_path / "elsewhere", date="2026-11-30")
    assert "signature" not in json.loads((tmp_path / "elsewhere/manifest.json").read_text())


def test_an_image_offers_what_it_was_built_with(
    installation: Path, tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.BASE_DIR = tmp_path
    (tmp_path / "image-release").mkdir()
    assert "of this image" in offer(installation)
    assert not (installation / "releases").exists()
