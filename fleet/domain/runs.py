"""Run-length emissions: per subject the slots for which its verdict stays the same."""

from __future__ import annotations

from typing import NamedTuple

from fleet.domain.verdicts import HEALTHY, Verdict


class Emission(NamedTuple):
    """The verdict of a subject for the slots `[first_slot, end_slot)`."""

    subject: str
    first_slot: int
    end_slot: int
    verdict: Verdict


class RunSink:
    """Collects verdicts in slot order; a subject of which nothing is said goes on as it was."""

    __slots__ = ("done", "runs", "unhealthy")

    def __init__(self, subjects: list[str], first_slot: int) -> None:
        self.done: list[Emission] = []
        self.runs: dict[str, tuple[int, Verdict]] = {s: (first_slot, HEALTHY) for s in subjects}
        self.unhealthy: set[str] = set()

    def begin(self, subjects: list[str], slot: int) -> None:
        """Subjects of which nothing was said yet begin at this slot."""
        for subject in subjects:
            self.runs.setdefault(subject, (slot, HEALTHY))

    def put(self, subject: str, first_slot: int, verdict: Verdict) -> None:
        """From this slot on the subject has this verdict."""
        run = self.runs.get(subject)
        if run is not None:
            start, before = run
            if before == verdict:
                return
            if start < first_slot:
                self.done.append(Emission(subject, start, first_slot, before))
        self.runs[subject] = (first_slot, verdict)
        if verdict is HEALTHY or verdict == HEALTHY:
            self.unhealthy.discard(subject)
        else:
            self.unhealthy.add(subject)

    def end(self, subject: str, slot: int) -> None:
        """The subject exists no longer from this slot on."""
        run = self.runs.pop(subject, None)
        self.unhealthy.discard(subject)
        if run is not None and run[0] < slot:
            self.done.append(Emission(subject, run[0], slot, run[1]))

    def finish(self, end_slot: int) -> list[Emission]:
        """Every emission up to the slot, in order of their beginnings per subject; the sink is spent."""
        for subject, (start, verdict) in self.runs.items():
            if start < end_slot:
                self.done.append(Emission(subject, start, end_slot, verdict))
        return self.done
