"""A good run has no finding, and each broken promise has one: a pass says nothing of a check that cannot fail."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import importlib
import importlib.util
import inspect
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent import wire
from agent.clock import Instant
from agent.collect.base import build_interval
from agent.collect.sim import simulated_collectors
from agent.collect.sim_world import FIRST_BOOT_MS, World
from fleet import decode
from fleet.domain.receipts import ReceivedBatch
from fleet.domain.strips import HourRow
from fleet.domain.verdicts import State
from fleet.tests.domain.harness import Node
from goodput_site.chaos.bugs import FINDS, NEEDS
from goodput_site.chaos.faults import ALL, ELSEWHERE, Fault, Strike
from goodput_site.chaos.invariants import judge, same_rows, vouched_slots
from goodput_site.chaos.nemesis import schedule, torment
from goodput_site.chaos.oracle import Books, sample_hash
from goodput_site.chaos.server_side import Held, StoredBatch

ROOT = Path(__file__).resolve().parents[3]
FIRST_SLOT = 119_735_000
SKIPPED = {7, 30, 31, 32, 204}  # a missed slot, three in a row, and one at which the outbox begins anew
ANEW = 200  # as many samples are the first installation's
SLOTS = [n for n in range(320) if n not in SKIPPED]


def _world(node: str, org: str, books: Books, held: Held) -> None:
    """One healthy node's samples, in the books and at the server."""
    world = World(7, node, "healthy")
    collectors = simulated_collectors(world)
    boot_id = world.boot_id(FIRST_BOOT_MS)
    books.sims[node], books.orgs[node] = "healthy", org
    fold = Node()
    intervals = []
    for number in SLOTS:
        ts = (FIRST_SLOT + number) * 15_000 + 7_500
        up = ts - FIRST_BOOT_MS
        at = Instant(ts, up, up, boot_id, FIRST_BOOT_MS, "synchronised", 2)
        interval = build_interval(at, [collector.collect(at) for collector in collectors])
        sample = (node, boot_id, up)
        books.taken[sample] = {sample_hash(interval)}
        books.kept.add(sample)
        books.when[sample] = ts
        intervals.append(interval)
    for start in range(0, len(intervals), 4):
        some = intervals[start : start + 4]
        batch = {
            "schema_version": wire.SCHEMA_VERSION, "cluster_id": f"cluster-of-{org}", "node_id": node,
            "agent_version": "1+sim", "agent_id": hashlib.sha256(f"{node} {start < ANEW}".encode()).hexdigest()[:32],
            "seq": start % ANEW // 4 + 1, "boot_id": boot_id, "boot_at": FIRST_BOOT_MS, "intervals": some,
        }  # fmt: skip
        body, sha256 = wire.pack(batch)
        books.acked[sha256] = node
        samples = tuple(((node, boot_id, i["boottime"]), sample_hash(i)) for i in some)
        held.batches.append(
            StoredBatch(org, batch["cluster_id"], node, batch["agent_id"], batch["seq"], sha256, True, samples)
        )
        raw = decode.gunzip(body)
        fold.deliver([ReceivedBatch(bytes.fromhex(sha256), some[-1]["ts"] + 900, decode.decode_trusted(raw))])
    fold.settle()
    for hour, raw_row in fold.rows.items():
        row = HourRow.from_bytes(raw_row)
        gpus = [row.rollup(subject) for subject in row.subjects() if subject[0] == "g"]
        held.hours[org, node, hour] = row
        held.sums[org, node, hour] = (len(gpus), sum(sum(rollup.seconds.values()) for rollup in gpus))
        held.bodies[org, node, hour] = raw_row


@pytest.fixture(scope="module")
def good() -> tuple[Books, Held]:
    books, held = Books(), Held()
    _world("one", "local", books, held)
    _world("two", "second", books, held)
    return books, held


def test_a_good_run_has_no_finding(good: tuple[Books, Held]) -> None:
    assert judge(*good) == []
    assert list(same_rows(good[1].bodies, good[1].bodies)) == []


def test_slots_are_vouched_for_as_the_fold_says() -> None:
    centre = [number * 15_000 + 7_500 for number in range(10)]
    assert vouched_slots([centre[0], centre[2]]) == {0, 1, 2}  # 30 s apart
    assert vouched_slots([centre[0], centre[3]]) == {0, 3}  # 45 s apart
    assert vouched_slots([]) == set()


def _lose_a_row(books: Books, held: Held) -> None:
    del held.batches[5]


def _lose_a_sample(books: Books, held: Held) -> None:
    books.kept.add(("one", "b" * 32, 1))
    books.taken["one", "b" * 32, 1] = {"x"}


def _change_bytes(books: Books, held: Held) -> None:
    held.batches[3] = dataclasses.replace(held.batches[3], is_whole=False)


def _change_content(books: Books, held: Held) -> None:
    (sample, _), *rest = held.batches[3].samples
    held.batches[3] = dataclasses.replace(held.batches[3], samples=((sample, "other"), *rest))


def _double_a_row(books: Books, held: Held) -> None:
    held.batches.append(held.batches[2])


def _double_a_sample(books: Books, held: Held) -> None:
    again = dataclasses.replace(held.batches[2], seq=1_000, sha256="ff" * 32)
    held.batches.append(again)


def _skip_a_seq(books: Books, held: Held) -> None:
    held.batches[-1] = dataclasses.replace(held.batches[-1], seq=held.batches[-1].seq + 1)


def _leave_one_unfolded(books: Books, held: Held) -> None:
    held.waiting = 1


def _lose_seconds(books: Books, held: Held) -> None:
    key = min(held.sums)
    held.sums[key] = (held.sums[key][0], held.sums[key][1] - 15)


def _change_verdict(held: Held, want: Callable[[object], bool], give: Callable[[object], bool]) -> None:
    for key, row in held.hours.items():
        runs = [run for run in row.runs("g0") if run.end_slot > run.first_slot]
        bad = next((run for run in runs if want(run.verdict)), None)
        other = next((run for run in runs if give(run.verdict)), None)
        if bad and other:
            changed = row.copy()
            changed.put("g0", bad.first_slot, bad.first_slot + 1, other.verdict)
            held.hours[key] = changed
            return
    raise AssertionError("no such slot")


def _call_unknown_healthy(books: Books, held: Held) -> None:
    _change_verdict(
        held,
        lambda v: "OPEN" not in v.certain and v.state is State.UNKNOWN and v.certain != (),
        lambda v: v.nominal == 100,
    )


def _call_healthy_unknown(books: Books, held: Held) -> None:
    _change_verdict(held, lambda v: v.nominal == 100, lambda v: v.state is State.UNKNOWN)


def _lose_an_hour(books: Books, held: Held) -> None:
    del held.hours[min(held.hours)]


def _enter_the_wrong_room(books: Books, held: Held) -> None:
    held.batches[0] = dataclasses.replace(held.batches[0], org="second")


def _keep_one_back(books: Books, held: Held) -> None:
    held.queued.add(min(books.kept))


def _refuse_for_good(books: Books, held: Held) -> None:
    held.quarantined = {min(books.kept)}


def _outgrow_the_cap(books: Books, held: Held) -> None:
    held.outbox_bytes = 10**9


BROKEN: dict[Callable[[Books, Held], None], str] = {
    _lose_a_row: "I1",
    _lose_a_sample: "I2",
    _change_bytes: "I3",
    _change_content: "I3",
    _double_a_row: "I4",
    _double_a_sample: "I4",
    _skip_a_seq: "I6",
    _leave_one_unfolded: "I7",
    _lose_seconds: "I8",
    _call_unknown_healthy: "I17",
    _call_healthy_unknown: "I10",
    _lose_an_hour: "I10",
    _enter_the_wrong_room: "I12",
    _keep_one_back: "I14",
    _refuse_for_good: "I2",
    _outgrow_the_cap: "I15",
}


@pytest.mark.parametrize("breaking", BROKEN, ids=lambda breaking: breaking.__name__.strip("_"))
def test_each_broken_promise_is_found(good: tuple[Books, Held], breaking: Callable[[Books, Held], None]) -> None:
    books, held = copy.deepcopy(good[0]), copy.copy(good[1])
    held.batches, held.hours, held.sums = list(held.batches), dict(held.hours), dict(held.sums)
    held.queued = set()
    breaking(books, held)
    assert BROKEN[breaking] in {finding.invariant for finding in judge(books, held)}


def test_rows_that_differ_after_a_refold_are_found(good: tuple[Books, Held]) -> None:
    changed = dict(good[1].bodies)
    changed[min(changed)] = b"other"
    assert [finding.invariant for finding in same_rows(good[1].bodies, changed)] == ["I11"]


@pytest.fixture(scope="module")
def laid() -> Any:
    """The deliberate bugs, laid over nothing yet."""
    spec = importlib.util.spec_from_file_location("bugs_laid_over", ROOT / "goodput_site/chaos/bugs/sitecustomize.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_invariant_has_a_deliberate_bug(laid: Any) -> None:
    assert {invariant for invariant, _ in FINDS.values()} == {f"I{number}" for number in range(1, 18)}
    assert set(laid.BUGS) == set(FINDS)
    assert {name for times in NEEDS.values() for name in times} <= {fault.name for fault in ALL}


@pytest.mark.parametrize("name", FINDS)
def test_each_bug_replaces_what_is_there_and_is_called_alike(name: str, laid: Any) -> None:
    """A bug over a function that was renamed or takes other arguments now would break something else, or nothing."""
    module_name, change = laid.BUGS[name]
    module = importlib.import_module(module_name)
    owners = [module, *(each for each in vars(module).values() if inspect.isclass(each))]
    own = {owner: dict(vars(owner)) for owner in owners}
    known = {owner: {name: inspect.getattr_static(owner, name) for name in dir(owner)} for owner in owners}
    change(module)
    changed = [
        (owner, name) for owner in owners for name, now in vars(owner).items() if own[owner].get(name) is not now
    ]
    try:
        assert changed
        for owner, name in changed:
            before, now = known[owner][name], vars(owner)[name]
            if inspect.isfunction(before):
                assert [*inspect.signature(now).parameters] == [*inspect.signature(before).parameters]
    finally:
        for owner, name in changed:
            if name in own[owner]:
                setattr(owner, name, own[owner][name])
            else:
                delattr(owner, name)


def test_every_fault_of_the_list_is_here_or_held_elsewhere() -> None:
    found = {fault.id for fault in ALL} | {"F15"}  # the second outage while catching up is part of F14's
    assert found | set(ELSEWHERE) == {f"F{number:02}" for number in range(1, 25)}
    for words in ELSEWHERE.values():
        assert any((ROOT / word).exists() for word in words.split() if word.endswith(".py")), words


def test_the_same_seed_gives_the_same_order() -> None:
    first, second, other = (schedule(random.Random(seed)) for seed in (3, 3, 4))
    assert first == second != other
    assert {fault.name for fault in first} == {fault.name for fault in ALL}


class _Still:
    """A scene in which nothing happens."""

    def __init__(self) -> None:
        self.rng = random.Random(1)

    def pause(self, seconds: float) -> None:
        """No time passes."""


def test_what_found_nothing_to_strike_is_tried_again_and_told_if_it_never_did() -> None:
    tries = []

    def late(scene: Any) -> Strike:
        tries.append("late")
        return Strike(len(tries) > 1)

    faults = (Fault("F01", "late", late), Fault("F02", "never", lambda scene: Strike(False)))
    log = torment(_Still(), 0, lambda text: None, faults, only_once=True)  # type: ignore[arg-type]
    assert (log.records["late"].tried, log.records["late"].struck) == (2, 1)
    assert [record.name for record in log.missing()] == ["never"]
