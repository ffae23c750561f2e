"""Summaries of nodes of which there is nothing to say, read in a hurry: the totals of a large fleet need no more.

A summary of a healthy node is some kilobytes of UUIDs and addresses. Only its states are looked at here; whatever is
not plainly well is left to `read_summary`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from fleet.selectors_live import WORDS, Gpu, NodeNow

#: Stands for each GPU of a plain node: what it is, and not which.
UNNAMED = Gpu(-1, "", "", "", "available", (), 100, 100, 100, (), ())


class _Subject(msgspec.Struct):
    """Of a subject what decides whether it is well."""

    kind: str = ""
    state: str = "unknown"
    nominal: int | None = None
    model: str = ""
    certain: list[Any] = []
    possible: list[Any] = []
    conditions: list[Any] = []

    @property
    def is_well(self) -> bool:
        """Whether nothing holds for it, nor may."""
        return not (self.certain or self.possible or self.conditions)


class _Summary(msgspec.Struct):
    """Of a summary what the totals need."""

    node: _Subject = msgspec.field(default_factory=_Subject)
    subjects: list[_Subject] = []
    sources: dict[str, str] = {}
    driver: str | None = None
    installations: int = 1
    overruled: bool = False
    domain: str = ""


_decode = msgspec.json.Decoder(_Summary).decode


def read_plain(text: str) -> NodeNow | None:
    """A node that is heard and wholly well, its GPUs by number only; None where there is more to say of it."""
    summary = _decode(text)
    gpus = ports = 0
    models = set()
    for subject in summary.subjects:
        if not subject.is_well:
            return None
        ports += subject.kind == "port"
        if subject.kind == "gpu":
            if subject.state != "observed" or subject.nominal != 100:
                return None
            gpus += 1
            models.add(subject.model.removeprefix("NVIDIA "))
    if not gpus or not summary.node.is_well or summary.installations > 1 or summary.overruled:
        return None
    broken = tuple(sorted(name for name, status in summary.sources.items() if status not in ("ok", "absent")))
    return _plain(gpus, ports, ", ".join(sorted(models - {""})), summary.driver or "", broken, summary.domain)


@lru_cache(maxsize=1024)
def _plain(gpus: int, ports: int, model: str, driver: str, broken: tuple[str, ...], domain: str) -> NodeNow:
    """One object for all nodes that look the same."""
    return NodeNow(
        is_silent=False,
        gpus=(UNNAMED,) * gpus,
        ports=(UNNAMED,) * ports,
        conditions=(),
        causes=(),
        model=model,
        driver=driver,
        broken_sources=broken,
        word="available",
        domain=domain,
        counts={word: gpus if word == "available" else 0 for word in WORDS},
    )
