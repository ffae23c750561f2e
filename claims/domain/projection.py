"""A month that is still running: what it comes to if nothing more happens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from claims.domain.facts import HEALTHY, FactRun
from claims.domain.result import Inputs


def if_nothing_more_happens(inputs: Inputs, now_slot: int, subjects: Iterable[str]) -> Inputs:
    """The same inputs with every subject healthy from `now_slot` on: the draft's projection, never a result.

    What is known is kept; what is unknown before `now_slot` stays unknown. Witnesses are taken as alive from then on.
    """
    end = max(inputs.end_slot, inputs.period.end_slot)
    facts = {}
    for name in dict.fromkeys((*inputs.facts, *subjects)):
        before = [
            run if run.end_slot <= now_slot else run._replace(end_slot=now_slot)
            for run in inputs.facts.get(name, ())
            if run.first_slot < now_slot
        ]
        facts[name] = [*before, FactRun(now_slot, end, HEALTHY)] if now_slot < end else before
    witnessed = inputs.witnessed
    if witnessed is not None:
        witnessed = {
            name: [*((a, min(b, now_slot)) for a, b in witnessed.get(name, ()) if a < now_slot), (now_slot, end)]
            for name in facts
        }
    return replace(inputs, facts=facts, witnessed=witnessed, end_slot=end)
