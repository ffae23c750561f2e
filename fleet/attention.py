"""What needs attention now: one trouble per node and reason, with a sentence, whose fault it is and the next step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from fleet.selectors_live import WORDS, Condition, Gpu, NodeNow, action_of, reason_of, title_of

SILENCE_ACTION = "Check that the node is up and its agent runs"
SILENT_TEXT = "No sample has come. Nothing is claimed for silence without a witness."
OVERRULED_TEXT = (
    "The newest samples under this name were of a boot that began before the one that is known, so they were not taken:"
    " two machines have one name, or a clock is wrong."
)
OVERRULED_ACTION = "Give each machine a name of its own"
FEW_SILENT = 3
BLIND_ACTION = "Check the driver on the node"
TWO_AGENTS = "Two agents on one node"
TWO_AGENTS_TEXT = (
    "Samples of more than one agent come under this node's name. Where they agree the worse one counts; where they"
    " contradict each other the time is unknown."
)


@dataclass(frozen=True)
class Trouble:
    """Something that is not well. `subjects` are GPUs as (place, uuid); `since_ms` None where no instant is known."""

    node_id: int
    node: str
    cluster: str
    word: str
    code: str
    what: str
    text: str
    action: str
    party: str
    since_ms: int | None
    subjects: tuple[tuple[int, str], ...]
    is_condition: bool
    is_certain: bool
    mark: str = ""
    also: tuple[str, ...] = ()
    headline: str = ""
    names: str = ""
    places: str = ""

    @property
    def css(self) -> str:
        """The glyph's class: the state, or `mark` for what lowers nothing yet."""
        return "mark" if self.word == "available" else self.word

    @property
    def uuids(self) -> list[str]:
        """Short UUIDs of the GPUs concerned, for reading; the full ones stand in the tables."""
        return [uuid.removeprefix("GPU-")[:8] for _, uuid in self.subjects if uuid]

    def order(self) -> tuple[Any, ...]:
        """Worst first, then the longest."""
        return WORDS.index(self.word), not self.is_condition, self.since_ms or 0, self.node, self.code


def troubles_of(node_id: int, node: str, cluster: str, now: NodeNow, last_sample_ms: int | None) -> tuple[Trouble, ...]:
    """What is wrong with one node: its own conditions, those of its ports and GPUs, what is unknown and why."""

    def trouble(word: str, code: str, subjects: Iterable[Gpu], condition: Condition | None, **more: Any) -> Trouble:
        values: dict[str, Any] = {
            "what": title_of(code),
            "text": condition.explanation if condition else getattr(reason_of(code), "explanation", ""),
            "action": condition.action if condition else action_of(code),
            "party": condition.party if condition else "none",
            "since_ms": condition.since_ms if condition else None,
            "is_condition": condition is not None,
            "is_certain": condition.is_certain if condition else True,
        }
        values.update(more)
        named = tuple((gpu.place, gpu.uuid) for gpu in subjects)
        places = f"GPU {', '.join(str(place) for place, _ in named)}" if named else ""
        if len(named) == len(now.gpus) > 2:
            places = f"All {len(named)} GPUs"
        if "headline" not in values:
            values["headline"] = f"{places} of {node}: {values['what']}" if places else f"{node}: {values['what']}"
        return Trouble(node_id, node, cluster, word, code, subjects=named, places=places, **values)

    if now.is_plain:
        return ()
    found: list[Trouble] = []
    seen: set[str] = set()
    for condition in now.conditions:
        seen.add(condition.code)
        found.append(trouble(_word(condition), condition.code, (), condition))
    for port in now.ports:
        for condition in port.conditions:
            if condition.code not in seen:
                found.append(trouble("degraded", condition.code, (), condition, what=f"{condition.title}"))
            seen.add(condition.code)
    by_code: dict[str, list[tuple[Gpu, Condition]]] = defaultdict(list)
    for gpu in now.gpus:
        for condition in gpu.conditions:
            if condition.code not in seen:
                by_code[condition.code].append((gpu, condition))
    found += _joined(
        trouble(
            min((gpu.word for gpu, _ in pairs), key=WORDS.index),
            code,
            [gpu for gpu, _ in pairs],
            min((condition for _, condition in pairs), key=lambda condition: condition.since_ms or 0),
            mark=next((mark for gpu, _ in pairs for mark in gpu.marks), ""),
        )
        for code, pairs in by_code.items()
    )
    if now.is_silent:
        found.append(
            trouble(
                "unknown",
                "NO_DATA",
                (),
                None,
                what="Samples of an earlier boot" if now.is_overruled else "No data",
                headline=f"{node} is silent",
                text=OVERRULED_TEXT if now.is_overruled else SILENT_TEXT,
                action=OVERRULED_ACTION if now.is_overruled else SILENCE_ACTION,
                since_ms=last_sample_ms,
            )
        )
        return tuple(sorted(found, key=Trouble.order))
    if now.installations > 1:
        found.append(
            trouble(
                "available",
                "TWO_INSTALLATIONS",
                (),
                None,
                what=TWO_AGENTS,
                headline=f"{node} is reported by {now.installations} agents",
                text=TWO_AGENTS_TEXT,
                mark="two agents",
            )
        )
    blind: dict[str, list[Gpu]] = defaultdict(list)
    for gpu in now.gpus:
        for cause in gpu.causes:
            blind[cause].append(gpu)
    for cause, gpus in blind.items():
        if cause != "OPEN":
            found.append(trouble("unknown", cause, gpus, None, action=action_of(cause) or BLIND_ACTION))
    return tuple(sorted(found, key=Trouble.order))


def gathered(troubles: Iterable[Trouble]) -> list[Trouble]:
    """For reading: the silent nodes of a cluster become one line when they are many. The order stays."""
    silent: dict[str, list[Trouble]] = defaultdict(list)
    for one in troubles:
        if one.code == "NO_DATA" and not one.is_condition:
            silent[one.cluster].append(one)
    out = []
    for one in troubles:
        same = silent[one.cluster] if one.code == "NO_DATA" and not one.is_condition else []
        if len(same) < FEW_SILENT:
            out.append(one)
        elif one is same[0]:
            names = ", ".join(other.node for other in same[:FEW_SILENT])
            more = f" and {len(same) - FEW_SILENT} more" if len(same) > FEW_SILENT else ""
            out.append(replace(one, headline=f"{len(same)} nodes are silent", names=f"{names}{more}"))
    return out


def shortened(gathered: list[Trouble], most: int) -> list[Trouble]:
    """The first so many; the line of many silent nodes takes the last place where it would be left out.

    Whoever sees single faults alone would take a fleet that nobody can see any more for a good one.
    """
    kept = gathered[:most]
    silences = [one for one in gathered[most:] if one.code == "NO_DATA" and not one.is_condition and one.names]
    return kept if not silences else [*kept[:-1], silences[0]]


def _joined(found: Iterable[Trouble]) -> list[Trouble]:
    """Reasons that hold for the same GPUs become one trouble: the one that began first leads."""
    by_subjects: dict[tuple[tuple[int, str], ...], list[Trouble]] = defaultdict(list)
    for one in found:
        by_subjects[one.subjects].append(one)
    joined = []
    for same in by_subjects.values():
        first, *others = sorted(same, key=lambda one: (not one.is_certain, one.since_ms or 0, one.code))
        joined.append(replace(first, also=tuple(other.what for other in others)))
    return joined


def _word(condition: Condition) -> str:
    """The word for a condition by its weight; one that lowers nothing yet is still no more than degraded."""
    return "down" if condition.weight == 0 and condition.is_certain else "degraded"
