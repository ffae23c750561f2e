"""What the guide says: its pages in order, with the host, the version and the data contract filled in.

In text/*.md, `{{origin}}` is the address that the reader used, `{{version}}` this release, and `{{data-contract}}`
and `{{downloads}}` stand for what is generated from `agent/wire.py` and from the release folder.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.conf import settings

from agent import wire
from goodput_site.guide import releases

HERE = Path(__file__).parent / "text"
CONTACT = "kanan07linkedin@gmail.com"


@dataclass(frozen=True)
class Page:
    """A page of the guide: `name` is its file and its path."""

    name: str
    title: str

    @property
    def path(self) -> str:
        """Its path on the site."""
        return f"/guide/{self.name}/" if self.name else "/guide/"

    @property
    def url_name(self) -> str:
        """Its name in the URL configuration."""
        return f"guide-{self.name}" if self.name else "guide"


PAGES = (
    Page("", "Overview"),
    Page("how-it-works", "How it works"),
    Page("linux", "Linux"),
    Page("windows", "Windows"),
    Page("ios", "iPhone & iPad"),
    Page("compose", "Docker Compose"),
    Page("kubernetes", "Kubernetes"),
    Page("agent-only", "Agent only"),
    Page("sharing", "Sharing"),
    Page("data-contract", "Data contract"),
    Page("downloads", "Downloads"),
    Page("health-checks", "Health checks"),
    Page("verify", "Verify a claim pack"),
    Page("contact", "Contact"),
)


@cache
def version() -> str:
    """This release's version, from pyproject.toml."""
    return str(tomllib.loads((settings.BASE_DIR / "pyproject.toml").read_text())["project"]["version"])


def text_of(page: Page, origin: str) -> str:
    """The page's content with everything filled in; `origin` is scheme and host without a slash at its end."""
    text = (HERE / f"{page.name or 'overview'}.md").read_text()
    filled = {
        "origin": origin,
        "version": version(),
        "contact": CONTACT,
        "data-contract": data_contract() if "{{data-contract}}" in text else "",
        "downloads": downloads(origin) if "{{downloads}}" in text else "",
        "verifier": verifier(origin) if "{{verifier}}" in text else "",
        "host": origin.partition("://")[2].rpartition(":")[0] or origin.partition("://")[2],
    }
    for name, value in filled.items():
        text = text.replace("{{" + name + "}}", value)
    return text


TABLE_TITLES = {
    "BATCH": "Batch",
    "SYNC": "Batch: sync",
    "INTERVAL": "Per interval",
    "CLOCK": "Interval: clock",
    "GPU": "Per GPU",
    "ROW_REMAP": "GPU: row_remap",
    "FABRIC": "GPU: fabric",
    "PORT": "Per InfiniBand port",
    "XID": "Per Xid",
    "EVENT": "Per kernel event",
}


def data_contract() -> str:
    """Every key that may travel, table by table, from the module that encodes them."""
    parts = []
    for name, fields in wire.TABLES.items():
        anchor = name.lower().replace("_", "-")
        parts.append(f"### {TABLE_TITLES.get(name, name)} {{#{anchor}}}\n")
        parts.append("| Key | Type | Unit | Meaning | Sent |\n|---|---|---|---|---|")
        for field in fields:
            kind = f"{field.type} of {field.of}" if field.of else field.type
            kind += f", at most {field.most}" if field.most else ""
            presence = "always" if field.required else "if known"
            cells = (f"`{field.key}`", kind, field.unit or "-", field.meaning, presence)
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        parts.append("")
    return "\n".join(parts)


def verifier(origin: str) -> str:
    """How to run the verifier of the newest release, or a sentence that it has none."""
    name = f"goodput-verify-{version()}.pyz"
    if name not in {file["name"] for file in (releases.manifest() or {"files": []})["files"]}:
        return "This server offers no release with a verifier yet, see [Downloads](/guide/downloads/)."
    lines = ("```bash change: it needs a pack", f"curl -fsSLO {origin}/releases/{name}")
    return "\n".join((*lines, f'python3 {name} PACK.zip --key "$KEY"', "```"))


def downloads(origin: str) -> str:
    """The files of the newest release as a table, or a sentence that there are none here."""
    manifest = releases.manifest()
    if manifest is None:
        return (
            "This server has no release yet. It makes one at its start; whoever runs it can do so with "
            "`./goodput manage offer_release`. Until then the manifest answers 404."
        )
    lines = [f"Release {manifest['version']} of {manifest['date']}.\n", "| File | Size | SHA-256 |\n|---|---|---|"]
    for file in manifest["files"]:
        link = f"[{file['name']}]({origin}/releases/{file['name']})"
        lines.append(f"| {link} | {file['size']} bytes | `{file['sha256']}` |")
    if signature := manifest.get("signature"):
        lines.append(f"\nThe list is signed with Ed25519; the public key is `{signature['key']}`.")
    return "\n".join(lines)
