"""The release folder: what `manage release` wrote there, read for pages and downloads."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from django.conf import settings

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")


def own() -> Path:
    """The folder of this installation, which the server fills at its start."""
    return Path(settings.GOODPUT_VAR) / "releases"


def built_in() -> Path:
    """The folder that a container image was built with; in an installation without containers there is none."""
    return Path(settings.BASE_DIR) / "image-release"


def folder() -> Path:
    """Where releases lie: GOODPUT_VAR/releases, else the one that a container image was built with."""
    return built_in() if not (own() / "manifest.json").exists() and built_in().is_dir() else own()


def manifest() -> dict[str, Any] | None:
    """The newest release's manifest; None when there is none or it can't be read."""
    return read(folder())


def read(out: Path) -> dict[str, Any] | None:
    """The manifest in a folder; None when there is none or it can't be read."""
    try:
        found = json.loads((out / "manifest.json").read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and {"version", "date", "files"} <= set(found) else None


def file(name: str) -> Path | None:
    """A regular file of the release folder by its plain name; None for anything else, links included."""
    if not NAME.fullmatch(name):
        return None
    path = folder() / name
    return path if path.is_file() and not path.is_symlink() else None
