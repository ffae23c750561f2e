"""A port is learned after 24 h ACTIVE, and only then missed (fold.md 16)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.domain.clocks import NO_FIT
from fleet.domain.fold import fold_all, hold
from fleet.domain.placement import Item, place
from fleet.domain.rules import load_rules
from fleet.domain.scenario import outcome
from fleet.domain.state import NodeState
from fleet.domain.work import Work
from fleet.tests.domain import facts

START = 480_000 * 3_600_000 + 7_500
DAY = 86_400_000
RULES = load_rules()


def sample(ms: int, state: str = "ACTIVE", **more: object) -> facts.Batch:
    ports = (facts.port(0, state=state, **more), facts.port(1, state="DOWN"))
    return facts.Batch((facts.Interval(ms, gpus=(facts.gpu(0),), ib_ports=ports),), seq=ms)


def held(state: NodeState | None, ms: int, until: int, port: str = "ACTIVE", **more: object) -> tuple:
    item = place([facts.received(sample(ms, port, **more))], NO_FIT).items[0]
    if state is None:
        state = fold_all(None, [item], RULES)[0]
        item = replace_ms(item, ms + 15_000)
    assert state is not None
    return hold(state, item, until, RULES)


def replace_ms(item, ms: int):  # type: ignore[no-untyped-def]
    return item._replace(ms=ms)


def test_a_port_becomes_a_subject_after_a_day_active() -> None:
    state, emissions, _ = held(None, START, START + DAY + 3_600_000)
    first = min(e.first_slot for e in emissions if e.subject == "p:G0")
    assert first == (START + DAY) // 15_000
    assert "p:G1" not in {e.subject for e in emissions}
    state, emissions, events = held(state, START + DAY + 3_600_000, START + DAY + 3_660_000, "DOWN")
    assert {e.verdict.nominal for e in emissions if e.subject == "g0"} == {100, 0}
    assert [(e.kind, e.subject) for e in events] == [("opened", "p:G0")]


def test_a_port_that_goes_down_before_its_day_is_over_starts_again() -> None:
    state, _, _ = held(None, START, START + DAY // 2)
    state, _, _ = held(state, START + DAY // 2, START + DAY // 2 + 30_000, "DOWN")
    _, emissions, _ = held(state, START + DAY // 2 + 30_000, START + DAY + 3_600_000)
    assert "p:G0" not in {e.subject for e in emissions}


def test_silence_does_not_count() -> None:
    state, _, _ = held(None, START, START + DAY // 2)
    state, emissions, _ = held(state, START + DAY * 3, START + DAY * 3 + DAY // 2 - 60_000)
    assert "p:G0" not in {e.subject for e in emissions}
    _, emissions, _ = held(state, START + DAY * 3 + DAY // 2 - 60_000, START + DAY * 3 + DAY // 2 + 60_000)
    assert "p:G0" in {e.subject for e in emissions}


def test_a_virtual_function_is_not_learned() -> None:
    _, emissions, _ = held(None, START, START + DAY + 3_600_000, is_vf=True)
    assert "p:G0" not in {e.subject for e in emissions}


def test_the_facts_are_not_changed() -> None:
    batch = sample(START)
    before = replace(batch)
    fold_all(None, place([facts.received(batch)], NO_FIT).items, RULES)
    assert batch == before


def test_a_virtual_function_counts_where_no_physical_port_is_seen() -> None:
    ports = (facts.port(0, is_vf=True), facts.port(1, is_vf=True, state="DOWN"))
    batch = facts.Batch((facts.Interval(START, gpus=(facts.gpu(0),), ib_ports=ports),), seq=1)
    item = place([facts.received(batch)], NO_FIT).items[0]
    state = fold_all(None, [item], RULES)[0]
    assert state is not None
    _, emissions, _ = hold(state, item._replace(ms=START + 15_000), START + DAY + 3_600_000, RULES)
    assert {e.subject for e in emissions if e.subject.startswith("p:")} == {"p:G0"}


def test_holding_a_sample_for_a_year_takes_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run-length means run-length: with and without a boot-time clock."""
    steps: list[int] = []
    take = Work.take

    def counted(work: Work, item: Item) -> None:
        steps.append(item.ms)
        assert len(steps) < 100
        take(work, item)

    monkeypatch.setattr(Work, "take", counted)
    for boottime in (None, 10**9):
        batch = sample(START)
        batch.intervals[0].boottime = batch.intervals[0].mono = boottime
        item = place([facts.received(batch)], NO_FIT).items[0]
        state = fold_all(None, [item], RULES)[0]
        assert state is not None
        steps.clear()
        end, _, _ = hold(state, item._replace(ms=START + 15_000), START + 365 * DAY, RULES)
        assert end is not None
        assert end.last_ms == START + 365 * DAY - 15_000


@settings(max_examples=20, deadline=None)
@given(st.data(), st.integers(1, 8), st.integers(1, 8))
def test_an_outage_never_costs_more_gpu_time_than_ports_were_down(data: st.DataObject, gpus: int, ports: int) -> None:
    """Whatever serves whom: declared for one GPU, near several, or nowhere."""
    declared, near, down = {}, {}, {}
    for port in range(ports):
        declared[f"G{port}"] = data.draw(st.none() | st.integers(0, gpus - 1))
        if data.draw(st.booleans()):
            near[str(port)] = sorted(data.draw(st.sets(st.integers(0, gpus - 1), min_size=1)))
        if data.draw(st.booleans()):
            down[str(port)] = {"state": "DOWN"}
    samples = [{"slots": [0, 3]}, {"slots": [4, 7], "port": down}, {"slots": [8, 9]}]
    inputs = {"gpus": gpus, "ports": ports, "boottime": False, "near": near, "deliveries": [{"samples": samples}]}
    run = outcome.run({"id": "x", "inputs": inputs, "context": {"ports": declared}})
    lost = 0
    for gpu in range(gpus):
        (verdict,) = run.node.verdicts(f"g{gpu}", run.told.zero + 5, run.told.zero + 6)
        assert verdict is not None
        assert verdict.nominal is not None
        lost += 100 - verdict.nominal
    assert lost <= 100 * len(down)
