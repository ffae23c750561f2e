"""The InfiniBand cases of the field: each is written out as a sysfs and read by the real collector."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.replay import replay

CASES = [json.loads(line) for line in (Path(__file__).parent / "data/field-cases.jsonl").read_text().splitlines()]
IB = {case["id"]: case for case in CASES if case["kind"] == "c.ib"}
COUNT = 20
NO_TREE = {"I008", "I014", "I024"}  # their input is no sysfs: tests of their own below
VIRTUAL = {"I018"}
NAMED = {
    "state": "state",
    "phys": "phys_state",
    "rate_gbps": "link_rate",
    "link_layer": "link_layer",
}


def samples(text):
    lines = list(replay("ib", text))
    ports = [{f"{p['device']}/{p['port']}": p for p in line["ports"]} for line in lines if "ports" in line]
    return ports, [line["status"] for line in lines if "status" in line]


def test_all_infiniband_cases_are_here():
    assert len(IB) == COUNT


@pytest.mark.parametrize("case", [c for i, c in IB.items() if i not in NO_TREE], ids=lambda case: case["id"])
def test_case(case):
    ports, states = samples(case["input"])
    last = ports[-1]
    wanted = case["expected"]["ports"]
    if not wanted:
        assert last == {}
        assert states == ["absent"]
        return
    if "active" in wanted:
        found = [port["state"] for port in last.values()]
        assert (found.count("ACTIVE"), found.count("DOWN")) == (wanted["active"], wanted["down"])
        assert not any("reasons" in port for port in last.values())
        return
    for key, want in wanted.items():
        if case["id"] in VIRTUAL:
            assert key not in last
            continue
        if want == "VF: ignored":
            assert ports[0][key]["is_vf"] is True
            assert key not in last
            continue
        port = last[key]
        for name, value in want.items():
            if name in NAMED:
                assert port[NAMED[name]] == value
            elif name == "counters":
                assert value is None
                assert "counters" not in port
            elif name == "link_downed_delta":
                assert "link_downed" not in port.get("counters", {})
                assert port["pegged"] == ["link_downed"]
            elif name == "flaps":
                assert port["counters"]["link_downed"] == value
            elif name == "tx_gbps":
                assert port["counters"]["port_xmit_data"] * 4 * 8 / 1e9 == value
            elif name == "link_downed":
                assert "pegged" not in port  # a first sample has no growth yet, and the value is no maximum
            else:
                assert name in ("width", "gen", "expected")  # not on the wire: the rate says it, or the server's


def test_rates_in_every_spelling():
    case = IB["I008"]
    rates = case["input"].splitlines()
    text = "".join(f"/sys/class/infiniband/mlx5_{n}/ports/1/rate:{rate}\n" for n, rate in enumerate(rates))
    (ports,), _states = samples(text)
    assert [ports[f"mlx5_{n}/1"]["link_rate"] for n in range(len(rates))] == case["expected"]["ports"]["gbps"]


def test_a_port_whose_counters_fail_is_not_asked_again(tmp_path, monkeypatch):
    import os

    from agent.collect.ib import IbCollector
    from agent.replay import build_tree
    from agent.tests.stub_driver import INSTANT

    build_tree(
        tmp_path,
        [
            "/sys/class/infiniband/mlx5_9/ports/1/state:4: ACTIVE",
            "/sys/class/infiniband/mlx5_9/ports/1/counters/link_downed!EINVAL",
            "/sys/class/infiniband/mlx5_9/ports/1/counters/symbol_error:0",
        ],
    )
    opened = []
    real_open = os.open
    monkeypatch.setattr(os, "open", lambda path, *a, **k: opened.append(str(path)) or real_open(path, *a, **k))
    collector = IbCollector(tmp_path / "sys", lambda kind, text: text)
    for _ in range(3):
        collector.collect(INSTANT)
    assert sum(path.endswith("counters/link_downed") for path in opened) == 1
    assert sum(path.endswith("counters/symbol_error") for path in opened) == 3


@pytest.mark.parametrize("name", ["I014", "I024"])
def test_driver_lines_of_network_cards_are_no_events(name):
    """I024 wants a netdev's down time: the wire has the port's state and carrier counters for it, no text event."""
    lines = list(replay("kmsg", IB[name]["input"]))
    assert [line for line in lines if "event" in line] == []
    for secret in IB[name]["expected"].get("must_not_emit", []):
        assert secret not in json.dumps(lines)


@pytest.mark.parametrize(
    ("before", "now", "grown"),
    [
        ("18446744073709551600", "10", 26),  # 64 bits wrap
        ("5000", "10", 10),  # reset: counted from zero since
        ("10", "10", 0),
    ],
)
def test_growth_of_wide_counters(before, now, grown):
    line = "/sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data:%s\n"
    ports, _ = samples(line % before + "# +15s\n" + line % now)
    assert ports[-1]["mlx5_0/1"]["counters"] == {"port_rcv_data": grown}


def test_reason_only_for_a_port_that_was_ever_active():
    state = "/sys/class/infiniband/mlx5_0/ports/1/state:%s\n"
    down, active = state % "1: DOWN", state % "4: ACTIVE"
    ports, _ = samples(down + "# +15s\n" + active + "# +15s\n" + down)
    assert [p["mlx5_0/1"].get("reasons") for p in ports] == [None, None, ["IB_PORT_DOWN"]]


def test_ports_are_near_the_gpus_below_the_same_switch(tmp_path):
    from agent.collect.ib import IbCollector
    from agent.tests.stub_driver import INSTANT

    host = tmp_path / "sys/devices/pci0000:10"
    for number, (bridge, leaf) in enumerate([("0000:11:00.0", "0000:12:00.0"), ("0000:11:01.0", "0000:13:00.0")]):
        device = host / "0000:10:01.0" / bridge / leaf
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x10de\n")
        (device / "class").write_text("0x030200\n")
        link = tmp_path / "sys/bus/pci/devices" / leaf
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(device)
        nic = host / "0000:10:01.0" / bridge / f"0000:2{number}:00.0"
        port = nic / f"infiniband/mlx5_{number}/ports/1"
        port.mkdir(parents=True)
        (port / "state").write_text("4: ACTIVE\n")
        (port.parent.parent / "device").symlink_to(nic)
        link = tmp_path / f"sys/class/infiniband/mlx5_{number}"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(port.parent.parent)
    ports = IbCollector(tmp_path / "sys", lambda kind, text: text).collect(INSTANT).facts["ib_ports"]
    assert [(p["pci_bus_id"], p["near"]) for p in ports] == [
        ("0000:20:00.0", ["0000:12:00.0"]),
        ("0000:21:00.0", ["0000:13:00.0"]),
    ]


def test_no_path_of_a_recording_leads_out_of_its_folder():
    from agent.errors import UsageError

    with pytest.raises(UsageError):
        list(replay("ib", "/sys/../../etc/x:1"))
    with pytest.raises(UsageError):
        list(replay("ib", "readlink /sys/class/infiniband/a -> ../../../../../../../../etc"))


def test_a_device_whose_files_hang_is_a_timeout_and_comes_back(tmp_path):
    """Opening a FIFO that nobody writes to blocks as a read of a sick adapter does."""
    import os
    import threading

    from agent.collect.ib import IbCollector
    from agent.replay import build_tree
    from agent.tests.stub_driver import INSTANT

    counter = "/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed"
    build_tree(tmp_path, ["/sys/class/infiniband/mlx5_0/ports/1/state:4: ACTIVE", f"{counter}:1"])
    collector = IbCollector(tmp_path / "sys", lambda kind, text: text, timeout_s=0.2)
    assert collector.collect(INSTANT).status == "ok"
    path = tmp_path / counter[1:]
    path.unlink()
    os.mkfifo(path)
    before = threading.active_count()
    assert [collector.collect(INSTANT).status for _ in range(3)] == ["timeout"] * 3
    assert threading.active_count() == before + 1  # one reader hangs, and no second is begun
    with open(path, "w") as writer:
        writer.write("3\n")
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.daemon and "run" in thread.name:
            thread.join(10)
    path.unlink()
    path.write_text("3\n")
    reading = collector.collect(INSTANT)
    assert reading.status == "ok"
    assert reading.facts["ib_ports"][0]["counters"] == {"link_downed": 2}  # the flaps of the meantime are not lost
