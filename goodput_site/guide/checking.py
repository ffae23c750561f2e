"""Tries the guide against a running server: every address that it names, every command block that can run here.

Blocks run in one throw-away folder, in the guide's order: it is their home, installers lay their files below it and
start nothing (`GOODPUT_INSTALL_ROOT`), `sudo` there is a stand-in that gives no rights, `./token` holds a made-up
key. Where the server may be changed, PACK.zip is a simulated claim's pack and KEY the key of its log.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import re
import subprocess
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command

from goodput_site.guide import content, markup, views

SECONDS = 300  # for one address or one block
PACK = "PACK.zip"  # as the guide names it
TOO_LARGE = 256 << 20
BASH = ["bash", "--noprofile", "--norc"]


@dataclass(frozen=True)
class Result:
    """What came of one address or block: `outcome` is fetched, ran, parsed only, not runnable, or FAILED."""

    page: str
    what: str
    outcome: str
    why: str = ""

    @property
    def is_bad(self) -> bool:
        """Whether the guide promises something that is not so."""
        return self.outcome == "FAILED"


def check(origin: str, with_changes: bool = False) -> Iterator[Result]:
    """Every page, address and block of the guide on this server, in the guide's order; each address once.

    `with_changes` also runs the blocks that make an org or a key in this installation's database.
    """
    with tempfile.TemporaryDirectory(prefix="goodput-guide-") as folder:
        lay_out(Path(folder))
        if with_changes:
            call_command("demo_claim", out=Path(folder) / PACK, stdout=io.StringIO())
        yield from _check(origin, Path(folder), ("run", "change") if with_changes else ("run",))


def lay_out(folder: Path) -> None:
    """What the blocks find in their folder."""
    (folder / "bin").mkdir()
    (folder / "bin/sudo").write_text('#!/bin/sh\nexec "$@"\n')
    (folder / "bin/sudo").chmod(0o755)
    (folder / "token").write_text("gp_i_madeup_key-of-check-guide\n")
    (folder / "goodput").symlink_to(settings.BASE_DIR / "goodput")


def _check(origin: str, folder: Path, runnable: tuple[str, ...]) -> Iterator[Result]:
    seen: set[str] = set()
    for page in content.PAGES:
        text = content.text_of(page, origin)
        blocks = markup.parse(text)
        status, body = fetch(origin + page.path)
        yield _fetched(page.title, page.path, status)
        for address in addresses(text, origin) - seen:
            seen.add(address)
            yield _fetched(page.title, address, fetch(origin + address)[0])
        for block in blocks:
            if block.kind == "code":
                if escape(block.text.splitlines()[0]) not in body and status == 200:
                    yield Result(page.title, first_line(block), "FAILED", "the page shows other words")
                yield _tried(page.title, block, folder, runnable)
    for path in ("/llms-full.txt", *(f"/{name}" for name in views.SERVED)):
        if path not in seen:
            yield _fetched("files", path, fetch(origin + path)[0])


def addresses(text: str, origin: str) -> set[str]:
    """The paths on this server that a page names, in links and in commands."""
    linked = re.findall(r"\]\((/[^)#\s]*)", text)
    written = re.findall(re.escape(origin) + r"(/[A-Za-z0-9._/-]*[A-Za-z0-9/])", text)
    return {path for path in [*linked, *written] if path != "/v1/batches"}  # that one is for posting


def fetch(url: str) -> tuple[int, str]:
    """(status, body as text); status 0 when nothing answered."""
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:  # noqa: S310 - the server that is checked
            return answer.status, answer.read(TOO_LARGE).decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read(10_000).decode(errors="replace")
    except OSError:
        return 0, ""


def _fetched(page: str, path: str, status: int) -> Result:
    if status == 200:
        return Result(page, path, "fetched")
    hint = "; run `./goodput manage offer_release` first" if path.startswith("/releases/") else ""
    return Result(page, path, "FAILED", (f"status {status}" if status else "no answer") + hint)


def first_line(block: markup.Block) -> str:
    """What a block is called in the list."""
    lines = block.text.splitlines()
    return lines[0] + (" …" if len(lines) > 1 else "")


def _tried(page: str, block: markup.Block, folder: Path, runnable: tuple[str, ...]) -> Result:
    name = first_line(block)
    if block.language == "powershell":
        problem = powershell_problem(block.text)
        if problem is None:
            return Result(
                page, name, "not runnable", f"{block.why}; tree-sitter-powershell is not installed to parse it"
            )
        return Result(page, name, "FAILED", problem) if problem else Result(page, name, "parsed only", block.why)
    if block.language != "bash":
        return Result(page, name, "not runnable", block.why or "it is no command")
    parsed = subprocess.run([*BASH, "-n", "-c", block.text], capture_output=True, text=True)
    if parsed.returncode:
        return Result(page, name, "FAILED", parsed.stderr.strip())
    if block.how not in runnable:
        return Result(page, name, "parsed only", block.why + ("; runs with --change" if block.how == "change" else ""))
    places = {"HOME": str(folder), "GOODPUT_INSTALL_ROOT": str(folder / "root"), "KEY": _key_of(folder / PACK)}
    try:
        ran = subprocess.run(
            [*BASH, "-e", "-o", "pipefail", "-c", block.text],
            cwd=folder,
            env={**os.environ, **places, "PATH": f"{folder}/bin{os.pathsep}{os.environ.get('PATH', os.defpath)}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return Result(page, name, "FAILED", f"not done after {SECONDS} s")
    if ran.returncode:
        return Result(page, name, "FAILED", (ran.stderr or ran.stdout).strip()[-300:] or f"status {ran.returncode}")
    return Result(page, name, "ran", block.why)


def _key_of(pack: Path) -> str:
    """The key that a pack names for its log; empty where there is no pack."""
    if not pack.exists():
        return ""
    with zipfile.ZipFile(pack) as archive:
        return str(json.loads(archive.read("keys.json"))["log"])


def powershell_problem(text: str) -> str | None:
    """Empty when the grammar takes it, else where it stops; None where the grammar is not installed."""
    try:
        tree_sitter: Any = importlib.import_module("tree_sitter")
        grammar: Any = importlib.import_module("tree_sitter_powershell")
    except ImportError:
        return None
    tree = tree_sitter.Parser(tree_sitter.Language(grammar.language())).parse(text.encode())
    return "a syntax error" if tree.root_node.has_error else ""
