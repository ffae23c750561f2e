"""`manage.py check_guide`: does the guide of a running server hold? Says of each address and block what came of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from goodput_site.guide import checking, content


class Command(BaseCommand):
    """Fetch every address of the guide and try every command block."""

    help = "Check the guide of a running server: fetch every address, run or parse every command block."
    requires_system_checks: list[str] = []  # it asks the server, not the database

    def add_arguments(self, parser: CommandParser) -> None:
        """--base-url, --list, --change."""
        parser.add_argument("--base-url", help="the server; http://localhost:GOODPUT_PORT without it")
        parser.add_argument("--change", action="store_true", help="also run blocks that make an org or a key here")
        parser.add_argument("--list", type=Path, help="also write the list to this Markdown file")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print a line per address and block; CommandError when the guide promises something that is not so."""
        origin = (options["base_url"] or f"http://localhost:{settings.GOODPUT_PORT}").rstrip("/")
        results = []
        for result in checking.check(origin, options["change"]):
            results.append(result)
            why = f" ({result.why})" if result.why else ""
            self.stdout.write(f"{result.outcome:<12} {result.page}: {result.what}{why}")
        counts = Counter(result.outcome for result in results)
        self.stdout.write(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
        if options["list"]:
            options["list"].write_text(as_markdown(results, origin))
        if any(result.is_bad for result in results):
            raise CommandError("The guide does not hold on this server; see FAILED above.")


def as_markdown(results: list[checking.Result], origin: str) -> str:
    """The command blocks as a table; addresses are only counted. The server's own address is left out."""
    blocks = [result for result in results if result.outcome != "fetched"]
    lines = [
        f"# What was tried of the guide of {content.version()}",
        "",
        "Written by `./goodput manage check_guide --list docs/guides/checked.md` against a running server;",
        f"{len(results) - len(blocks)} addresses were fetched as well. A test compares this list with what comes of it",
        "now. CI also runs the blocks marked `--change`, against a server of its own.",
        "",
        "| page | command | outcome | why not more |",
        "|---|---|---|---|",
    ]
    for result in blocks:
        what = result.what.replace(origin, "").replace("|", "\\|")
        lines.append(f"| {result.page} | `{what}` | {result.outcome} | {result.why.replace('|', ' ')} |")
    return "\n".join(lines) + "\n"
