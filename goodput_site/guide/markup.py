"""The little markup of the guide's content: headings, paragraphs, lists, tables, command blocks.

Turns text into plain data that a template draws with its own escaping; no HTML is made here. A command block's opening
line says after the language how far `check_guide` goes with it: ```` ```bash run ````, ```` ```bash parse: why ````.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_INLINE = re.compile(r"`(?P<code>[^`]+)`|\*\*(?P<strong>[^*]+)\*\*|\[(?P<text>[^\]]+)\]\((?P<href>[^)\s]+)\)")
_HEADING = re.compile(r"(?P<marks>#{1,3}) (?P<text>.+?)(?: \{#(?P<id>[a-z0-9-]+)\})?")
_ITEM = re.compile(r"(?:- |(?P<number>\d+)\. )(?P<text>.*)")
_FENCE = re.compile(r"```(?P<language>[a-z]*)(?: (?P<how>run|change|parse|none)(?:: (?P<why>.+))?)?")
_SAFE_LINK = re.compile(r"(?:/|#|https?://|mailto:)[^\s\"'<>]*")


@dataclass(frozen=True)
class Span:
    """A piece of a line: `kind` is text, code, strong or link."""

    kind: str
    text: str
    href: str = ""


@dataclass(frozen=True)
class Block:
    """A block: `kind` is h1, h2, h3, p, ul, ol, table or code. Which other parts are filled depends on it."""

    kind: str
    spans: tuple[Span, ...] = ()
    rows: tuple[tuple[tuple[Span, ...], ...], ...] = ()  # items of a list (one cell each), or rows of a table
    head: tuple[tuple[Span, ...], ...] = ()
    text: str = ""  # of a code block
    anchor: str = ""
    language: str = ""
    how: str = ""  # run, change, parse or none
    why: str = ""
    extra: dict[str, str] = field(default_factory=dict)


def spans(line: str) -> tuple[Span, ...]:
    """The pieces of a line. A link that is not a path, http(s) or mailto stays text."""
    out, at = [], 0
    for match in _INLINE.finditer(line):
        if match.start() > at:
            out.append(Span("text", line[at : match.start()]))
        if match["code"]:
            out.append(Span("code", match["code"]))
        elif match["strong"]:
            out.append(Span("strong", match["strong"]))
        elif _SAFE_LINK.fullmatch(match["href"]):
            out.append(Span("link", match["text"], match["href"]))
        else:
            out.append(Span("text", match[0]))
        at = match.end()
    if at < len(line):
        out.append(Span("text", line[at:]))
    return tuple(out)


def parse(text: str) -> list[Block]:
    """The blocks of a page, in order."""
    return list(_blocks(text.splitlines()))


def _blocks(lines: list[str]) -> Iterator[Block]:
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
        elif fence := _FENCE.fullmatch(line):
            end = lines.index("```", at + 1)
            yield _code("\n".join(lines[at + 1 : end]), fence)
            at = end + 1
        elif heading := _HEADING.fullmatch(line):
            anchor = heading["id"] or re.sub(r"[^a-z0-9]+", "-", heading["text"].lower()).strip("-")
            yield Block(f"h{len(heading['marks'])}", spans(heading["text"]), anchor=anchor)
            at += 1
        elif line.startswith("|"):
            end = _end(lines, at, lambda each: each.startswith("|"))
            head, _, *rows = [_cells(each) for each in lines[at:end]]
            yield Block("table", head=head, rows=tuple(rows))
            at = end
        elif first := _ITEM.fullmatch(line):
            end = _end(lines, at, lambda each: bool(_ITEM.fullmatch(each)) or each.startswith("  "))
            yield Block("ol" if first["number"] else "ul", rows=tuple((spans(item),) for item in _items(lines[at:end])))
            at = end
        else:
            end = _end(lines, at, lambda each: bool(each.strip()) and not each.startswith(("```", "|", "#", "- ")))
            yield Block("p", spans(" ".join(lines[at:end])))
            at = end


def _code(text: str, fence: re.Match[str]) -> Block:
    return Block("code", text=text, language=fence["language"], how=fence["how"] or "none", why=fence["why"] or "")


def _end(lines: list[str], at: int, belongs: object) -> int:
    end = at
    while end < len(lines) and belongs(lines[end]):  # type: ignore[operator]
        end += 1
    return max(end, at + 1)


def _items(lines: list[str]) -> list[str]:
    """The text of each item; a line that is indented goes on with the item above."""
    items: list[str] = []
    for line in lines:
        match = _ITEM.fullmatch(line)
        if match:
            items.append(match["text"])
        else:
            items[-1] += " " + line.strip()
    return items


def _cells(line: str) -> tuple[tuple[Span, ...], ...]:
    """The cells of a table row; `\\|` is a bar."""
    parts = re.split(r"(?<!\\)\|", line.strip().strip("|"))
    return tuple(spans(part.strip().replace("\\|", "|")) for part in parts)


def plain(text: str) -> str:
    """The content as plain text for a reader without a browser: Markdown without this module's own marks."""
    out = []
    for line in text.splitlines():
        if (fence := _FENCE.fullmatch(line)) and line != "```":
            out.append(f"```{fence['language']}")
        elif heading := _HEADING.fullmatch(line):
            out.append(f"{heading['marks']} {heading['text']}")
        else:
            out.append(line)
    return "\n".join(out) + "\n"
