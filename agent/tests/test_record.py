"""What `record` writes, `replay` reads: the same events, ports and GPUs come out, and nothing that names anybody."""

from __future__ import annotations

import json

import pytest

from agent.cli import main
from agent.clock import Instant
from agent.collect.ib import IbCollector
from agent.collect.nvml import Child, NvmlCollector
from agent.errors import UsageError
from agent.record import record_ib, record_kmsg, record_nvml
from agent.replay import build_tree, replay
from agent.tests.stub_driver import INSTANT

SYSFS = """\
readlink /sys/class/infiniband/mlx5_0/device -> ../../../devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0
readlink /sys/class/infiniband/mlx5_1/device -> ../../../devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.1
readlink /sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.1/physfn -> ../0000:17:00.0
readlink /sys/bus/pci/devices/0000:18:00.0 -> ../../../devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:18:00.0
readlink /sys/bus/pci/devices/0000:1f:00.0 -> ../../../devices/pci0000:1e/0000:1e:01.0/0000:1f:00.0
/sys/bus/pci/devices/0000:18:00.0/vendor:0x10de
/sys/bus/pci/devices/0000:18:00.0/class:0x030200
/sys/bus/pci/devices/0000:1f:00.0/vendor:0x8086
/sys/bus/pci/devices/0000:1f:00.0/class:0x030200
/sys/class/infiniband/mlx5_0/node_guid:b83f:d203:00ca:7e11
/sys/class/infiniband/mlx5_0/device/net/ibp23s0/ifindex:5
/sys/class/net/ibp23s0/carrier_changes:3
/sys/class/infiniband/mlx5_0/ports/1/state:4: ACTIVE
/sys/class/infiniband/mlx5_0/ports/1/phys_state:5: LinkUp
/sys/class/infiniband/mlx5_0/ports/1/rate:400 Gb/sec (4X NDR)
/sys/class/infiniband/mlx5_0/ports/1/link_layer:Ethernet
/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed:255
/sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data:1000
/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_wait:N/A (no PMA)
/sys/class/infiniband/mlx5_0/ports/1/counters/VL15_dropped!EINVAL
/sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence:7
/sys/class/infiniband/mlx5_1/ports/1/state:1: DOWN
/sys/class/infiniband/mlx5_1/ports/1/link_layer:InfiniBand
"""


def ports_of(root, change):
    """The real collector's ports of two samples, with `change` between them, as `replay` shows them."""
    collector = IbCollector(root / "sys", lambda _kind, value: value)
    out = []
    for number in range(2):
        if number:
            change()
        at = Instant(15_000 * number, 15_000 * number, 15_000 * number, "replay", 0)
        out.append(collector.collect(at).facts["ib_ports"])
    return out


def test_a_recorded_sysfs_gives_the_same_ports(tmp_path, monkeypatch):
    def change():
        build_tree(tmp_path, ["/sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data:1500",
                              "/sys/class/net/ibp23s0/carrier_changes:4"])  # fmt: skip

    build_tree(tmp_path, SYSFS.splitlines())
    monkeypatch.setattr("agent.record.time.sleep", lambda _s: change())
    recording = "\n".join(record_ib(tmp_path / "sys", 2)) + "\n"
    build_tree(tmp_path, SYSFS.splitlines())
    direct = ports_of(tmp_path, change)
    replayed = [line["ports"] for line in replay("ib", recording) if "ports" in line]
    for sample in (*direct, *replayed):
        for port in sample:
            port.pop("guid_hash", None)
    assert replayed == direct
    assert direct[1][0]["counters"]["port_rcv_data"] == 500
    assert direct[1][0]["counters"]["carrier_changes"] == 1
    assert direct[0][0]["near"] == ["0000:18:00.0"]
    assert direct[0][1]["is_vf"]
    assert "b83f" not in recording
    assert "ibp23s0" not in recording


KMSG = """\
6,100,1000000,-;Linux version 6.8.0 (builder@host)
6,101,2000000,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.124.06  Thu Feb 20 10:10:10 UTC 2025
4,102,3000000,-;NVRM: Xid (PCI:0000:3b:00): 43, pid=4242, name=canary-process, Ch 00000008
12,103,3500000,-;NVRM: Xid (PCI:0000:3b:00): 79, canary-forged
6,104,3600000,-;canary-job[4242]: segfault at 0 ip 0 sp 0 error 4 in libnvidia-ml.so
2,105,4000000,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.
"""


def test_a_recorded_kernel_log_gives_the_same_events(tmp_path):
    (tmp_path / "kmsg").write_text(KMSG)
    recording = "\n".join(record_kmsg(tmp_path / "kmsg"))
    assert "canary" not in recording
    assert "4242" not in recording

    def events(text):
        return [
            {k: v for k, v in line["event"].items() if k != "at"} for line in replay("kmsg", text) if "event" in line
        ]

    assert events(recording) == events(KMSG)
    assert [event.get("code") for event in events(recording)] == [None, 43, 79]


def test_a_gap_in_the_kernel_log_is_as_wide_in_its_recording(monkeypatch):
    from agent.replay import _scripted

    lines = [
        "READ -> 6,7,10,-;usb 1-1: new device",
        "READ -> 4,8,20,-;NVRM: Xid (PCI:0000:3b:00): 43, pid=1, name=a, Ch 8",
        "READ -> 6,9,30,-;usb 1-2: canary",
        "READ -> errno=EPIPE",
        "READ -> 6,21,40,-;usb 1-3: canary",
        "READ -> 6,22,50,-;usb",
        "READ -> 4,23,60,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=a, Ch 8",
    ]
    monkeypatch.setattr("agent.record.open_source", lambda _path: _scripted(lines))
    recording = "\n".join(record_kmsg("/dev/kmsg"))

    def outcome(text):
        found = list(replay("kmsg", text))
        return [line["event"]["code"] for line in found if "event" in line], [x["gap"] for x in found if "gap" in x]

    assert (
        outcome(recording) == outcome("\n".join(lines)) == ([43, 31], [{"after_seq": 9, "before_seq": 21, "lost": 11}])
    )
    assert "canary" not in recording


def test_recorded_nvml_gives_the_same_gpus(stub_driver, monkeypatch):
    monkeypatch.setattr("agent.record.time.sleep", lambda _s: None)
    stub_driver.answers(
        gpu__2__handle__ret=15, gpu__3__remapped_rows__ret=16, gpu__5__uuid="GPU-canary", gpu__5__serial="canary-1"
    )
    child, again = Child(), Child()
    collector = NvmlCollector(5.0, lambda _kind, value: value, start=lambda: again)
    try:
        recording = "\n".join(record_nvml(lambda: child.ask(5.0), 2))
        direct = [collector.collect(INSTANT) for _ in range(2)]
    finally:
        child.end()
        collector.close()
    assert "canary" not in recording
    assert "GPU-canary" in {gpu["uuid"] for gpu in direct[0].facts["gpus"]}
    replayed = list(replay("nvml", recording))
    assert [line["status"] for line in replayed] == [reading.status for reading in direct] == ["ok", "ok"]
    assert [line["driver_version"] for line in replayed] == [reading.batch["driver_version"] for reading in direct]
    named = ("uuid", "serial_hash", "fabric")
    for line, reading in zip(replayed, direct, strict=True):
        plain = [{k: v for k, v in gpu.items() if k not in named} for gpu in reading.facts["gpus"]]
        assert [{k: v for k, v in gpu.items() if k not in named} for gpu in line["gpus"]] == plain
        assert [set(gpu) for gpu in line["gpus"]] == [set(gpu) for gpu in reading.facts["gpus"]]


def test_a_driver_that_hangs_is_a_timeout_in_its_recording_too():
    text = "\n".join(record_nvml(lambda: None, 1))
    assert [line["status"] for line in replay("nvml", text)] == ["timeout"]
    text = '{"t": 0, "call": "nvmlDeviceGetPowerUsage", "ret": "HANG"}'
    assert [line["status"] for line in replay("nvml", text)] == ["timeout"]


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "1",
        "nvidia-smi",
        '{"call": 5}',
        '{"call": "nvmlDeviceGetFieldValues", "values": [{"ret": 0}]}',
        '{"call": "nvmlDeviceGetUUID", "ret": 0, "value": "a"}\n'
        '{"call": "nvmlDeviceGetMemoryInfo", "ret": 0, "value": 5}',
        '{"call": "nvmlDeviceGetUUID", "index": "x", "ret": 0}',
    ],
)
def test_what_is_no_recording_is_told_as_such(text):
    with pytest.raises(UsageError):
        list(replay("nvml", text))


def test_the_command_records_every_kind(tmp_path, stub_driver, capsys):
    (tmp_path / "kmsg").write_text(KMSG)
    build_tree(tmp_path, SYSFS.splitlines())
    flags = ["--sysfs", str(tmp_path / "sys"), "--kmsg", str(tmp_path / "kmsg"), "--every", "0", "--samples", "2"]
    for kind in ("kmsg", "ib", "nvml"):
        assert main(["record", "--kind", kind, *flags]) == 0
        recording = capsys.readouterr().out
        (tmp_path / kind).write_text(recording)
        assert main(["replay", "--kind", kind, str(tmp_path / kind)]) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert lines
    assert [len(line["gpus"]) for line in lines] == [8, 8]
