"""The NVML and InfiniBand cases of the field through the real collectors and the fold: what each reading comes to.

Console text can't be read, so each case of NVML says which answers of the driver stand for it, as the agent's own
tests do; the InfiniBand cases are written out as a sysfs. A case may judge otherwise than the design: `design` says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from agent.replay import replay
from agent.tests.conftest import stub_driver, stub_libraries
from agent.tests.stub_driver import INSTANT
from fleet.domain.context import Context
from fleet.domain.scenario import made
from fleet.domain.scenario.node import Node
from fleet.domain.slots import SLOT_MS, SLOTS_PER_HOUR
from fleet.domain.verdicts import State, Verdict

__all__ = ["stub_driver", "stub_libraries"]  # fixtures

FILE = Path(__file__).parents[2] / "agent/tests/data/field-cases.jsonl"
ALL = {case["id"]: case for case in map(json.loads, FILE.read_text().splitlines())}
NVML = {name for name, case in ALL.items() if case["kind"] == "b.nvml"}
PORTS = {name for name, case in ALL.items() if case["kind"] == "c.ib"}
LOST, NOT_SUPPORTED, UNKNOWN, MISMATCH, NOT_LOADED, RESET_REQUIRED = 15, 3, 999, 18, 9, 16

FIRST = 1_000 * SLOTS_PER_HOUR + 60
BAD = FIRST + 8  # the case begins here
GOOD = BAD + 20  # and is over from here on
END = GOOD + 20

WELL = (State.OBSERVED, 100, 100, 100)
DOWN = (State.OBSERVED, 0, 0, 0)
PENDING = (State.PENDING, 100, 100, 0)
NO_WORD = (State.UNKNOWN, None, 100, 0)
DOUBTED = (State.CONTESTED, 100, 100, 0)
BRAKED = (State.OBSERVED, 50, 50, 50)


@dataclass(frozen=True)
class Played:
    """Answers of the driver that stand for a case, and what its GPUs come to: index -> verdict, others are well.

    `always`: what the machine answers before and after as well. `dead`: bus ids that the bus says are dead.
    """

    answers: Mapping[str, Any] = field(default_factory=dict)
    becomes: Mapping[int, tuple[State, int | None, int, int]] = field(default_factory=dict)
    always: Mapping[str, Any] = field(default_factory=dict)
    dead: tuple[str, ...] = ()
    design: str = ""
    events: tuple[made.Event, ...] = ()

    @property
    def is_restart(self) -> bool:
        """Whether each reading is of an agent that has just begun: the library is loaded once, a call may hang."""
        return "init__ret" in self.answers or "HANG" in self.answers.values()


FOUR = {"count": 4}
GONE = {"gpu__1__handle__ret": LOST}
BUS = tuple(f"0000:{0x10 + n:02x}:00.0" for n in range(8))
WHOLE = dict.fromkeys(range(8), NO_WORD)
IDLE = {"gpu__0__utilization.gpu": 0, "gpu__0__power": 9_600, "gpu__0__reasons": 1}
NO_TIMES = {f"gpu__0__field.{n}.ret": NOT_SUPPORTED for n in (74, 76, 269, 270, 271)}  # the mask alone
SLOW = {**NO_TIMES, "gpu__0__sm_clock": 345}
PLAYED: dict[str, Played] = {
    "N001": Played(GONE, {1: DOWN}, FOUR, (BUS[1],)),
    "N002": Played({**GONE, "gpu__2__handle__ret": UNKNOWN}, {1: DOWN, 2: DOWN}, FOUR, (BUS[1], BUS[2])),
    "N004": Played(
        {"gpu__1__handle__ret": UNKNOWN},
        {0: PENDING},  # what has no bus id stands first
        {"count": 2, "gpu__1__pci": "000:BA:80.0"},
        design="without a bus id nothing says that the GPU is gone: pending, later unknown (fold.md 24)",
    ),
    "N005": Played({"init__ret": UNKNOWN}, dict.fromkeys(range(2), NO_WORD), {"count": 2}),
    "N006": Played({"init__ret": MISMATCH}, WHOLE),
    "N008": Played({"init__ret": NOT_LOADED}, WHOLE),
    "N010": Played(
        {"gpu__0__remapped_rows__ret": LOST, "gpu__0__utilization__ret": RESET_REQUIRED},
        {0: DOWN},
        {"count": 2},
        (BUS[0],),
    ),
    "N011": Played(
        {
            "gpu__0__utilization.gpu": 93,
            "gpu__0__power": 99_000,
            "gpu__0__power_limit": 130_000,
            "gpu__0__field.230": 1,
        },
        {0: DOUBTED},
        design="a GPU that works against the driver's word is contested, and a review opens (fold.md 12)",
    ),
    "N013": Played(
        {f"gpu__0__{call}__ret": code for call, code in {"temperature": 3, "power": 999, "sm_clock": 13}.items()}
    ),
    "N014": Played({"gpu__0__memory__ret": NOT_SUPPORTED}),
    "N016": Played({"gpu__0__utilization__ret": NOT_SUPPORTED, "gpu__0__mig_mode": 1}),
    "N018": Played({}, {}, {"count": 2, "gpu__0__pci": "00000000:8C:00.0", "gpu__1__pci": "00000001:04:00.0"}),
    "N019": Played(
        {"count": 3},
        {3: PENDING},
        FOUR,
        design="its function is there, so an owner may have unbound it: pending, later unknown (fold.md 15, 24)",
    ),
    "N021": Played(
        {"count": 2, "gpu__1__uuid": "GPU-c", "gpu__1__pci": "00000000:5E:00.0"},
        {1: DOWN},
        {
            **{"count": 3, "gpu__0__uuid": "GPU-a", "gpu__1__uuid": "GPU-b", "gpu__2__uuid": "GPU-c"},
            **{"gpu__1__pci": "00000000:3B:00.0", "gpu__2__pci": "00000000:5E:00.0"},
        },
        ("0000:3b:00.0",),
    ),
    "N023": Played({"gpu__0__ecc_uncorrected": 0}, {}, {"gpu__0__ecc_uncorrected": 2}),
    "N024": Played({"gpu__0__remap.uncorrectable": 1, "gpu__0__remap.pending": 1}),
    "N027": Played({**IDLE, "gpu__0__pcie_gen": 1}),
    "N029": Played({**IDLE, "gpu__0__pcie_gen": 1}),
    "N030": Played({**IDLE, "gpu__0__sm_clock": 345}),
    "N031": Played({"gpu__0__reasons": "0x4", "gpu__0__power": 698_410}),
    "N033": Played({**SLOW, "gpu__0__reasons": "0x88"}, {0: BRAKED}),
    "N035": Played({**SLOW, "gpu__0__reasons": "0x180"}, {0: BRAKED}),
    "N036": Played({"gpu__0__old_reasons": 0}),
    "N038": Played({"gpu__0__remapped_rows__ret": NOT_SUPPORTED}),
    "N040": Played(
        {f"gpu__0__{call}__ret": NOT_SUPPORTED for call in ("memory", "power", "fields", "serial")},
        {},
        {"count": 1, "gpu__0__pci__ret": NOT_SUPPORTED},
    ),
    "N041": Played(
        {**IDLE, "gpu__0__field.230": 1},
        {0: DOWN},
        events=(made.Event("xid", 62, BUS[0]), made.Event("xid", 45, BUS[0])),
    ),
    "N043": Played({"gpu__0__utilization.gpu": 100, "gpu__0__memory.used": 1 << 20, "gpu__0__power": 92_100}),
    "N044": Played(),
    "N046": Played({"gpu__0__power__ret": "HANG"}, WHOLE),
    "N048": Played({"gpu__0__field.230.ret": NOT_SUPPORTED}),
    "N050": Played({"gpu__0__temperature__ret": NOT_SUPPORTED}),
}
#: No field of the wire has the temperature of the memory; N052 is N002's text with another code.
SAME_AS = {"N052": "N002"}


def test_every_nvml_case_is_played() -> None:
    assert set(PLAYED) | set(SAME_AS) == NVML


def gpu_of(facts: Mapping[str, Any]) -> made.Gpu:
    """A GPU as the collector tells it."""
    known = {name: None for name in made.Gpu.__dataclass_fields__}
    values = {key: value for key, value in facts.items() if key in known}
    if values.get("row_remap") is not None:
        values["row_remap"] = made.RowRemap(**values["row_remap"])
    values["fabric"] = None
    return made.Gpu(**{**known, "name": "H100", "pci_bus_id": None, **values})


class Heard:
    """A node in memory that hears one reading after the other, one a slot."""

    def __init__(self, context: Context | None = None) -> None:
        self.node, self.at = Node(context or Context()), FIRST
        self.waiting: list[made.Interval] = []

    def take(self, interval: made.Interval, times: int = 1) -> None:
        """The same facts for so many slots; what events it has stand in the first."""
        for _ in range(times):
            self.waiting.append(replace(interval, ts=self.at * SLOT_MS + SLOT_MS // 2))
            interval = replace(interval, events=())
            self.at += 1
            if len(self.waiting) == 4:
                self.send()

    def send(self) -> None:
        """What waits goes to the server."""
        if self.waiting:
            self.node.deliver([made.received(made.Batch(tuple(self.waiting), seq=self.at))])
            self.waiting = []

    def verdicts(self, subject: str, first: int, end: int) -> Sequence[Verdict | None]:
        """What it comes to."""
        self.send()
        self.node.settle()
        return self.node.verdicts(subject, first, end)


def triple(verdict: Verdict | None) -> tuple[State, int | None, int, int] | None:
    """A verdict without its reasons."""
    return None if verdict is None else (verdict.state, verdict.nominal, verdict.lower, verdict.upper)


@pytest.mark.parametrize("case_id", sorted(NVML))
def test_a_reading_of_the_driver_comes_to_its_verdict(stub_driver: Any, case_id: str) -> None:
    played = PLAYED[SAME_AS.get(case_id, case_id)]
    heard, collector, memory = Heard(), stub_driver.collector(), None

    def read(
        answers: Mapping[str, Any], times: int, dead: Sequence[str] = (), events: Sequence[made.Event] = ()
    ) -> int:
        nonlocal collector, memory
        stub_driver.answers(**{**played.always, **answers})
        if "HANG" in answers.values():
            collector._timeout_s = 0.3  # it has begun: only the call that hangs takes so long
        elif played.is_restart:
            collector = stub_driver.collector(memory=memory)
        reading = collector.collect(INSTANT)
        memory = reading.memory or memory
        gpus = tuple(map(gpu_of, reading.facts["gpus"]))
        placed = tuple(replace(event, at=heard.at * SLOT_MS + 1_000) for event in events)
        heard.take(
            made.Interval(
                0,
                gpus,
                events=placed,
                sources={**made.OK, "nvml": str(reading.status)},
                nvml_error=reading.facts.get("nvml_error"),
                pci={bus: "dead" if bus in dead else "present" for bus in (*BUS, *dead)},
            ),
            times,
        )
        return len(gpus)

    count = read({}, BAD - FIRST)
    read(played.answers, GOOD - BAD, played.dead, played.events)
    read({}, END - GOOD)
    for index in range(count):
        becomes = played.becomes.get(index, WELL)
        inside = {triple(v) for v in heard.verdicts(f"g{index}", BAD + 2, GOOD - 2)}
        assert inside == {becomes}, index
        after = {triple(v) for v in heard.verdicts(f"g{index}", GOOD + 2, END - 2)}
        assert after == {WELL}, index
    reviews = {event.code for event in heard.node.events if event.kind == "review"}
    assert reviews == ({"RECOVERY_REQUIRED"} if DOUBTED in played.becomes.values() else set())
    drops = ALL[case_id]["expected"]["weight_drop"]
    if not played.design and isinstance(drops, bool):
        assert any(one[1] is not None and one[1] < 100 for one in played.becomes.values()) == drops


# -- ports -----------------------------------------------------------------------------------------------------------

FLAP = ("slot", 50)
DOWN_UNTIL_ACTIVE = ("down", 0)
#: What a port that the contract names comes to; the ports of all other cases are well, or none.
LOWERED = {"I003": DOWN_UNTIL_ACTIVE, "I022": FLAP}
NO_SYSFS = {"I008", "I014", "I024"}  # their input is no tree of files: the agent's own tests play them
NO_SUBJECT = {"I018", "I028", "I030"}  # a software port, a virtual function beside a physical one, none at all
WAITS = "I006"


def ports_of(case_id: str) -> list[tuple[made.Port, ...]]:
    """The ports of each sample as the real collector tells them."""
    known = made.Port.__dataclass_fields__
    return [
        tuple(made.Port(**{key: value for key, value in port.items() if key in known}) for port in line["ports"])
        for line in replay("ib", ALL[case_id]["input"])
        if "ports" in line
    ]


def key_of(port: made.Port) -> str:
    """A port's name without a GUID."""
    return f"{port.device}/{port.port}"


def hear_ports(samples: Sequence[tuple[made.Port, ...]], context: Context) -> Heard:
    """All ports ACTIVE, then the case's samples, the last one for a while, then all ACTIVE again."""
    heard = Heard(context)
    well = tuple(made.Port(port.device, port.port) for port in samples[0])
    gpus = tuple(made.gpu(n) for n in range(8))
    heard.take(made.Interval(0, gpus, well), BAD - FIRST)
    for sample in samples:
        heard.take(made.Interval(0, gpus, sample))
    last = tuple(replace(port, counters=None) for port in samples[-1]) or well
    heard.take(made.Interval(0, gpus, last), GOOD - heard.at)
    heard.take(made.Interval(0, gpus, well), END - GOOD)
    return heard


def test_every_port_case_is_played() -> None:
    assert NO_SYSFS | NO_SUBJECT | set(LOWERED) | {WAITS} <= PORTS


@pytest.mark.parametrize("case_id", sorted(PORTS - NO_SYSFS - NO_SUBJECT - {WAITS}))
def test_a_declared_port_comes_to_what_its_files_say(case_id: str) -> None:
    samples = ports_of(case_id)
    how, weight = LOWERED.get(case_id, ("well", 100))
    parked = case_id == "I026"  # its four ports without a cable are named by nobody
    named = [port for port in samples[0] if not (parked and port.state != "ACTIVE")]
    heard = hear_ports(samples, Context(ports=tuple((key_of(port), None) for port in named)))
    lowered = 0
    for port in named:
        verdicts = heard.verdicts(f"p:{key_of(port)}", BAD + 1, END - 1)
        weights = [-1 if v is None or v.nominal is None else v.nominal for v in verdicts]
        inside, after = weights[1 : GOOD - BAD - 3], weights[GOOD - BAD + 1 :]
        assert set(after) == {100}
        assert set(inside) == {weight if how == "down" else 100}
        lowered += 100 - min(weights)
        if how == "slot":
            assert weights[0] == weight, "the slot of the second sample, in which the counter grew"
    for port in samples[0]:
        if port not in named:
            assert set(heard.verdicts(f"p:{key_of(port)}", BAD, END - 1)) == {None}
    gpu = min(v.nominal for v in heard.verdicts("g0", BAD, END - 1) if v is not None and v.nominal is not None)
    assert gpu == 100 - lowered // 8
    drops = ALL[case_id]["expected"]["weight_drop"]
    assert drops is not False or not lowered


@pytest.mark.parametrize("case_id", sorted(NO_SUBJECT))
def test_what_is_no_port_of_the_node_is_no_subject(case_id: str) -> None:
    """Even ACTIVE for ever, as nobody named it: a virtual function only beside a physical port."""
    samples = ports_of(case_id)
    real = made.Port("mlx5_0", state="ACTIVE", is_vf=False)
    heard = hear_ports([(real, *sample) for sample in samples], Context(ports=((key_of(real), None),)))
    for name in ("rxe0/1", "mlx5_9/1"):
        assert set(heard.verdicts(f"p:{name}", FIRST, END - 1)) == {None}
    assert {v.nominal for v in heard.verdicts("g0", FIRST, END - 1) if v is not None} == {100}


@pytest.mark.parametrize("owns_fabric", [False, True])
def test_a_port_that_waits_counts_only_where_the_provider_runs_the_fabric(owns_fabric: bool) -> None:
    """I006: shown at once, down from the third sample on where it counts."""
    samples = ports_of(WAITS)
    (port,) = samples[0]
    heard = hear_ports(samples, Context(ports=((key_of(port), None),), owns_fabric=owns_fabric))
    verdicts = heard.verdicts(f"p:{key_of(port)}", BAD, END - 1)
    weights = [v and v.nominal for v in verdicts]
    assert weights[:2] == [100, 100]
    assert set(weights[3 : GOOD - BAD - 1]) == ({0} if owns_fabric else {100})
    assert set(weights[GOOD - BAD + 1 :]) == {100}
    codes = {code for v in verdicts[3:10] if v is not None for code in (*v.certain, *v.possible)}
    assert codes == {"IB_PORT_INIT"}
