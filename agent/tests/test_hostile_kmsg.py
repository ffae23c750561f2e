"""A11, A12: what a process can write into the kernel log, or make the driver print there, is no evidence."""

from __future__ import annotations

import json

import pytest

from agent import wire
from agent.collect.kmsg_parse import parse_event
from agent.collect.kmsg_read import LARGEST_BUFFER
from agent.replay import replay

XID = "NVRM: Xid (PCI:0000:3b:00): {}"
REAL = XID.format("79, pid=4242, name=job, GPU has fallen off the bus.")
# `echo LINE > /dev/kmsg`: the kernel sets the facility to user (1) whatever the writer asks for but kern (0), so the
# prefix of a forged line is facility * 8 + level with a facility of 1 to 23.
FORGED_PREFIXES = [facility * 8 + level for facility in (1, 3, 4, 16, 23) for level in (0, 3, 7)]


def read(*records):
    """(events, everything that the readers said of these records of one boot)."""
    lines = list(replay("kmsg", "\n".join(("BOOT one", *records))))
    return [line["event"] for line in lines if "event" in line], json.dumps(lines)


@pytest.mark.parametrize("prefix", FORGED_PREFIXES)
def test_a11_a_line_that_userspace_wrote_is_no_event(prefix):
    kernels, forged = f"4,1,1000000,-;{REAL}", f"{prefix},2,2000000,-;{REAL}"
    assert len(read(kernels)[0]) == 1, "the same line of the kernel is an event"
    (event,), _ = read(kernels, forged)
    assert (event["mono"], event.get("count", 1)) == (1000, 1), "the kernel's own alone; the other is not counted to it"


@pytest.mark.parametrize(
    "line",
    ["nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
     "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", "nvidia 0000:3b:00.0: reset done",
     "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86",
     "nvidia-nvlink: Unregistered Nvlink Core, major device 511"],
)  # fmt: skip
def test_a11_no_kind_of_event_can_be_forged(line):
    assert read(f"4,1,1000000,-;{line}")[0], "the kernel's own line is one"
    assert read(f"12,1,1000000,-;{line}")[0] == []


def test_a11_a_process_named_like_a_line_makes_no_second_event():
    """The driver prints the name as it is; an event is tied to the line's own start and end."""
    for name in (
        REAL,
        "x, GPU recovery action changed from 0x0 (None) to 0x0 (None)",
        "NVRM: Xid (PCI:0000:99:00): 48",
    ):
        (event,), said = read("4,1,1000000,-;" + XID.format(f"43, pid=4242, name={name}, Ch 00000008"))
        assert (event["code"], event["pci_bus_id"]) == (43, "0000:3b:00.0")
        assert "0000:99" not in said
    (event,), _ = read("4,1,1000000,-;" + XID.format(
        "154, pid=1, name=GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None), "
        "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    ))  # fmt: skip
    assert event["action"] == 2, "the driver's own words stand at the end"


def test_a11_a_continuation_line_is_not_looked_at():
    events, _ = read("6,1,1000000,-;usb 1-1: new device", f" SUBSYSTEM=usb {REAL}", " DEVICE=+usb:1-1")
    assert events == []


@pytest.mark.parametrize(
    "name", ["\x1b[2J\x1b]0;owned\x07", "a\\x0aNVRM: Xid (PCI:0000:99:00): 79", "‮gnp.exe", "\x00", "café" * 50],
)  # fmt: skip
def test_a12_control_characters_of_a_name_leave_nothing(name):
    record = "4,1,1000000,-;" + XID.format(f"43, pid=4242, name={name}, Ch 00000008")
    event = parse_event(record.partition(";")[2])
    if event is None:
        return  # not the driver's grammar any more
    (found,), said = read(record) if "\x00" not in name else ((event,), json.dumps(event))
    assert set(found) <= {"kind", "code", "pci_bus_id", "at", "mono", "backlog", "count", "boot_id"}
    assert name not in said
    assert json.dumps(name)[1:-1] not in said


def test_a12_a_line_of_a_megabyte_is_one_event_and_small():
    events, said = read("4,1,1000000,-;" + XID.format(f"43, pid=4242, name={'A' * (1 << 20)}, Ch 00000008"))
    assert len(events) <= 1
    assert len(said) < 2000
    assert LARGEST_BUFFER <= 1 << 20, "what one read may cost in memory"


def test_a12_bytes_that_are_no_utf8_stop_no_reading(tmp_path):
    from pathlib import Path

    from agent.collect.kmsg import KmsgCollector
    from agent.replay import ReplayClock

    file = tmp_path / "kmsg"
    broken = b"4,1,1000000,-;" + XID.format("43, pid=1, name=").encode() + b"\xff\xfe\x80, Ch 00000008\n"
    file.write_bytes(broken + f"4,2,2000000,-;{REAL}\n".encode())
    clock = ReplayClock(2_000_000)
    collector = KmsgCollector(Path(file), clock, start=False)
    try:
        events = collector.collect(clock.now()).facts["events"]
    finally:
        collector.close()
    assert [event["code"] for event in events][-1] == 79


def test_a12_a_flood_of_lines_is_bounded_per_sample():
    records = [f"4,{n},{n * 1000},-;" + XID.format(f"{n % 90 + 1}, pid={n}, name=x") for n in range(1, 3000)]
    lines = list(replay("kmsg", "\n".join(("BOOT one", *records))))
    events = [line["event"] for line in lines if "event" in line]
    assert sum(event.get("count", 1) for event in events) == 2999, "counted, not dropped"
    assert all(0 < event["code"] <= 90 for event in events)
    assert wire.MAX_EVENTS < 2999
