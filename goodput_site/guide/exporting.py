"""The guide as static files: pages, texts, scripts and what the pages load, read from a running server."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

from goodput_site.guide import content, releases, views

_LOADED = re.compile(r"(?:href|src)=\"(/static/[^\"]+)\"|url\(\"?([^\")]+)\"?\)")


def export(origin: str, public: str, out: Path) -> list[str]:
    """Write every file below `out`, with `public` in place of the server's own address; returns their paths.

    Links to pages of the application (login, start page) are left as they are; they need a server.
    """
    written: list[str] = []
    loaded: set[str] = set()

    def keep(path: str, data: bytes) -> None:
        file = out / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        written.append(path)

    for page in content.PAGES:
        text = _read(origin + page.path).decode()
        loaded |= {match[1] for match in _LOADED.finditer(text) if match[1]}
        keep(f"{page.path}index.html", text.replace(origin, public).encode())
    for name in ("llms-full.txt", "guides/ios-dashboard-setup.txt", *views.SERVED):
        keep(f"/{name}", _read(f"{origin}/{name}").replace(origin.encode(), public.encode()))
    for path in sorted(loaded):
        data = _read(origin + path)
        keep(path, data)
        if path.endswith(".css"):
            for match in _LOADED.finditer(data.decode()):
                if match[2] and not match[2].startswith(("data:", "#")):
                    inner = f"{path.rpartition('/')[0]}/{match[2]}"
                    keep(inner, _read(origin + inner))
    if found := releases.manifest():
        lists = ("manifest.json", f"manifest-{found['version']}.json", f"SHA256SUMS-{found['version']}")
        for name in (*lists, *(file["name"] for file in found["files"])):
            keep(f"/releases/{name}", _read(f"{origin}/releases/{name}"))
    return written


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - the server that is exported
        data: bytes = answer.read()
        return data
