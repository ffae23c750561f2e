"""States that older releases wrote: each format since the first release is read, with everything that was open in it.

A release that raises `FORMAT` keeps the file of the format before and adds its own:
`python -m fleet.tests.domain.test_state_formats` writes it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleet.domain import state, state_formats
from fleet.domain.state import Condition, NodeState, OtherFormat, Place, PortState, Subject

DATA = Path(__file__).parent / "data/states"
AT = 1_793_000_000_000
SLOT = AT // 15_000
UUID = "GPU-6f1e5c6a-0b1d-4c3e-9d2a-7e8f90a1b2c3"
BOOT = "4d1f2c3b-5a69-4788-90ab-cdef01234567"
OTHER_BOOT = "0aa17e2d-7c35-4a0e-b51d-6a1b9f0e4c11"
AGENT = "00112233445566778899aabbccddeeff"


def rich() -> NodeState:
    """A state in which everything is open that can be."""
    remap = Condition("XID_64", 0, AT - 90_000, stance="U", seen=2, powered=3, old=True, opened=True)
    pending = Condition("XID_79", 0, AT, False, "P", AT - 15_000, AT, parts=(("1", 2),))
    segments = [("XID_64", "C", AT - 90_000, AT, 0), ("XID_64", "O", SLOT - 1, SLOT, 0)]
    bus = "0000:3b:00.0"
    return NodeState(
        (AT, 1, AGENT, 7, 3, -1),
        SLOT,
        AT,
        BOOT,
        AT - 10**7,
        (BOOT, AT - 10**7, (AT - 10**7,), (), (AT, 10**7), None, 5, 10**7, AT - 10**7, 0, None, AT, None, None),
        {AGENT: AT},
        sources=("ok", "absent", "ok"),
        node=Subject(cause="AGENT_SILENT", conditions=[Condition("NODE_FAULT", 50, AT - 60_000)]),
        places=[
            Place(conditions=[remap, pending], segments=segments, uuid=UUID, bus=bus, ecc=4, width=16, links=0),
            Place(uuid="GPU-other", bus="0000:5e:00.0", has_action=True),
        ],
        ports=[PortState(2, key="mlx5_0/1", active_ms=AT, near=(bus,), last_weight=0, last_code="IB_DOWN")],
        segment_number=1,
        others={
            OTHER_BOOT: (
                OTHER_BOOT,
                AT - 10**8,
                (),
                (),
                None,
                None,
                5,
                10**7,
                AT - 10**8,
                1,
                None,
                AT - 9 * 10**7,
                7,
                None,
            )
        },
    )


def opened(of: NodeState) -> dict[str, list[tuple[str, int, int, bool]]]:
    """Subject → its open conditions."""
    subjects = {"node": of.node, **{p.uuid: p for p in of.places}, **{p.key: p for p in of.ports}}
    return {key: [(c.code, c.weight, c.since, c.confirmed) for c in s.conditions] for key, s in subjects.items()}


def test_there_are_bytes_of_each_format_since_the_first_release() -> None:
    assert {int(file.stem) for file in DATA.glob("*.bin")} == set(range(state_formats.FIRST, state.FORMAT + 1))
    assert set(state_formats.UPGRADES) == set(range(state_formats.FIRST, state.FORMAT))


@pytest.mark.parametrize("file", sorted(DATA.glob("*.bin")), ids=lambda file: f"format {file.stem}")
def test_what_was_open_is_open(file: Path) -> None:
    found = NodeState.from_bytes(file.read_bytes(), is_sealed=True)
    assert opened(found) == opened(rich())
    assert NodeState.from_bytes(found.to_bytes()) == found  # written again in today's format


def test_todays_bytes_are_those_that_are_kept() -> None:
    assert (DATA / f"{state.FORMAT}.bin").read_bytes() == rich().to_bytes()


def test_only_a_sealed_state_is_brought_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = rich().to_bytes()
    monkeypatch.setattr(state, "FORMAT", state.FORMAT + 1)
    monkeypatch.setitem(state_formats.UPGRADES, state.FORMAT - 1, lambda tree: [state.FORMAT, *tree[1:]])
    with pytest.raises(OtherFormat):
        NodeState.from_bytes(raw)
    found = NodeState.from_bytes(raw, is_sealed=True)
    assert opened(found) == opened(rich())
    assert found.to_bytes() != raw


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    (DATA / f"{state.FORMAT}.bin").write_bytes(rich().to_bytes())
    print(os.fspath(DATA))
