"""The text that exporters for Prometheus serve, read strictly: a line that is not of the format says nothing.

Format: prometheus.io, exposition formats, text-based (also what OpenMetrics adds at the end of a line is taken).
"""

from __future__ import annotations

import math
import re
from typing import Iterator, NamedTuple

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]{0,199})(?:\{(.*)\})? +(\S+)(?: +-?\d{1,19}(?:\.\d+)?)?(?: +#.*)?")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]{0,99})\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPED = re.compile(r"\\(.)")
_PLAIN = {"n": "\n"}
LINE_MOST = 8192


class Sample(NamedTuple):
    """One line: the metric's name, its labels, a finite value."""

    name: str
    labels: dict[str, str]
    value: float


def parse(text: str, prefixes: tuple[str, ...] = ("",)) -> Iterator[Sample]:
    """The samples whose names begin with one of `prefixes`; NaN and infinities are no values."""
    for line in text.splitlines():
        if not line.startswith(prefixes) or len(line) > LINE_MOST or line.startswith("#"):
            continue
        match = _SAMPLE.fullmatch(line.rstrip())
        if match is None:
            continue
        labels = _labels(match.group(2) or "")
        try:
            value = float(match.group(3))
        except ValueError:
            continue
        if labels is not None and math.isfinite(value):
            yield Sample(match.group(1), labels, value)


def _labels(text: str) -> dict[str, str] | None:
    """The labels; None where they are not whole or one stands twice."""
    found: dict[str, str] = {}
    at = 0
    while at < len(text.rstrip()):
        match = _LABEL.match(text, at)
        if match is None or match.group(1) in found:
            return None
        found[match.group(1)] = _ESCAPED.sub(lambda one: _PLAIN.get(one.group(1), one.group(1)), match.group(2))
        at = match.end()
    return found
