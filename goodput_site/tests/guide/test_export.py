"""The exported guide: whole, naming its public address, and with all that its pages load."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from goodput_site.guide import content


@pytest.mark.django_db(transaction=True)
def test_the_export_is_whole(live_server: Any, release: Path, settings: Any, tmp_path: Path) -> None:
    (tmp_path / "releases").symlink_to(release)
    settings.GOODPUT_VAR = tmp_path
    out = tmp_path / "out"
    call_command("export_guide", out=out, base_url=live_server.url, public_url="https://g.example")
    for page in content.PAGES:
        text = (out / page.path.strip("/") / "index.html").read_text()
        for path in re.findall(r'(?:href|src)="(/(?:static|guide|releases)/[^"#]*)"', text):
            target = out / path.strip("/")
            assert (target / "index.html").exists() if path.endswith("/") else target.exists(), path
    assert "https://g.example/install-linux.sh | bash" in (out / "guide/linux/index.html").read_text()
    assert "GOODPUT_ORIGIN:-https://g.example}" in (out / "install-linux.sh").read_text()
    assert (out / "releases/manifest.json").read_bytes() == (release / "manifest.json").read_bytes()
    for file in out.rglob("*"):
        assert not (file.is_file() and live_server.url.encode() in file.read_bytes()), file


def test_no_server_is_told(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="can't be read"):
        call_command("export_guide", out=tmp_path, base_url="http://127.0.0.1:1")
