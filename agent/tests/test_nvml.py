"""GPUs through the real ctypes path of nvidia-ml-py, against a stand-in for the driver's library."""

from __future__ import annotations

import time

import pytest

from agent.collect.base import ABSENT, BLIND, LOST, OK, TIMEOUT
from agent.collect.nvml import NvmlCollector
from agent.tests.stub_driver import INSTANT

NOT_SUPPORTED, GPU_IS_LOST, RESET_REQUIRED, UNKNOWN = 3, 15, 16, 999


def test_a_healthy_gpu_has_every_field_of_the_contract(stub_driver):
    reading = stub_driver.read(gpu__0__fabric__state=3, gpu__0__fabric__cluster=7)
    assert reading.status == OK
    assert len(reading.facts["gpus"]) == 8
    gpu = reading.facts["gpus"][0]
    assert gpu["pci_bus_id"] == "0000:10:00.0"
    assert (gpu["memory_total"], gpu["memory_used"]) == (85_520_809_984, 60_000_000_000)
    assert (gpu["gpu_utilization"], gpu["memory_utilization"]) == (97, 41)
    assert gpu["throttle_supported"] is True
    assert gpu["recovery_action"] == 0
    assert gpu["serial_hash"] == "hash-gpu-serial"
    assert gpu["fabric"]["state"] == 3
    assert reading.batch == {"driver_version": "570.158.01"}


@pytest.mark.parametrize(
    ("call", "keys"),
    [
        ("memory", ["memory_total", "memory_used"]),
        ("utilization", ["gpu_utilization", "memory_utilization"]),
        ("temperature", ["temperature"]),
        ("ecc_corrected", ["ecc_corrected"]),
        ("ecc_uncorrected", ["ecc_uncorrected"]),
        ("pcie_gen", ["pcie_gen"]),
        ("power", ["power"]),
        ("remapped_rows", ["row_remap"]),
        ("mig_mode", ["mig_mode"]),
        ("fields", ["recovery_action", "throttle_time"]),
        ("pci", ["pci_bus_id"]),
        ("name", ["name"]),
    ],
)
def test_unsupported_is_left_out_and_never_zero(stub_driver, call, keys):
    reading = stub_driver.read(**{f"gpu__0__{call}__ret": NOT_SUPPORTED})
    gpu, other = reading.facts["gpus"][:2]
    assert not set(keys) & set(gpu)
    assert reading.status == OK
    assert set(keys) - {"throttle_time"} <= set(other)


def test_unsupported_throttle_reasons_say_so(stub_driver):
    gpu = stub_driver.read(gpu__0__reasons__ret=NOT_SUPPORTED).facts["gpus"][0]
    assert gpu["throttle_supported"] is False
    assert "throttle_reasons" not in gpu


def test_a_call_that_is_not_supported_is_not_made_again(stub_driver):
    stub_driver.answers(gpu__0__remapped_rows__ret=NOT_SUPPORTED)
    collector = stub_driver.collector()
    for _ in range(3):
        collector.collect(INSTANT)
    assert stub_driver.calls().count("gpu.0.remapped_rows") == 1
    assert stub_driver.calls().count("gpu.1.remapped_rows") == 3


def test_throttle_time_and_replays_are_growth_since_the_previous_sample(stub_driver):
    collector = stub_driver.collector()
    stub_driver.answers(**{"gpu__0__field.270": 5_000_000_000, "gpu__0__pcie_replays": 10})
    first = collector.collect(INSTANT).facts["gpus"][0]
    assert "throttle_time" not in first
    assert "pcie_replays" not in first
    stub_driver.answers(**{"gpu__0__field.270": 12_500_000_000, "gpu__0__pcie_replays": 13})
    second = collector.collect(INSTANT).facts["gpus"][0]
    assert second["throttle_time"]["hw_thermal"] == 7_500
    assert second["pcie_replays"] == 3
    stub_driver.answers(**{"gpu__0__field.270": 1_000_000_000, "gpu__0__pcie_replays": 1})
    third = collector.collect(INSTANT).facts["gpus"][0]
    assert third["throttle_time"]["hw_thermal"] == 1_000
    assert third["pcie_replays"] == 1


def test_a_hung_driver_is_a_timeout_and_starts_no_second_child(stub_driver):
    collector = stub_driver.collector(timeout_s=0.3)
    assert collector.collect(INSTANT).status == OK
    stub_driver.answers(gpu__3__power__ret="HANG")
    pids = set()
    for _ in range(3):
        before = time.monotonic()
        reading = collector.collect(INSTANT)
        assert reading.status == TIMEOUT
        assert reading.facts["gpus"] == []
        assert time.monotonic() - before < 20
        pids.add(collector._child.pid)
    assert len(pids) == 1


def test_a_child_that_dies_is_replaced(stub_driver):
    collector = stub_driver.collector()
    collector.collect(INSTANT)
    collector._child._process.kill()
    collector._child._process.wait()
    assert collector.collect(INSTANT).status == OK


def test_a_lost_gpu_does_not_hide_the_others(stub_driver):
    reading = stub_driver.read(gpu__2__handle__ret=GPU_IS_LOST, gpu__5__utilization__ret=GPU_IS_LOST)
    assert reading.status == OK
    assert {gpu["uuid"][-2:] for gpu in reading.facts["gpus"]} == {"00", "01", "03", "04", "06", "07"}


def test_reset_required_is_told_as_recovery_action(stub_driver):
    gpu = stub_driver.read(**{"gpu__0__power__ret": RESET_REQUIRED, "gpu__0__field.230.ret": 3}).facts["gpus"][0]
    assert gpu["recovery_action"] == 1


def test_all_gpus_gone_while_pci_answers_is_blind_and_dead_there_is_lost(stub_driver):
    stub_driver.answers(count=2)
    collector = stub_driver.collector()
    stub_driver.pci = {"0000:10:00.0": "present", "0000:11:00.0": "present"}
    memory = collector.collect(INSTANT).memory
    stub_driver.answers(init__ret=UNKNOWN)
    again = stub_driver.collector(memory=memory)
    reading = again.collect(INSTANT)
    assert (reading.status, reading.facts["nvml_error"]) == (BLIND, UNKNOWN)
    stub_driver.pci = {"0000:10:00.0": "dead", "0000:11:00.0": "absent"}
    assert again.collect(INSTANT).status == LOST


def test_no_library_and_no_gpu_is_absent(monkeypatch):
    collector = NvmlCollector(5.0, lambda kind, text: text)
    try:
        reading = collector.collect(INSTANT)
        assert (reading.status, reading.facts["gpus"]) == (ABSENT, [])
    finally:
        collector.close()


def test_a_release_window_lets_go_of_the_driver_and_comes_back(stub_driver):
    collector = stub_driver.collector()
    collector.collect(INSTANT)
    collector.release(time.monotonic() + 0.2)
    assert collector._child is None
    assert collector.collect(INSTANT).status == BLIND
    time.sleep(0.25)
    assert collector.collect(INSTANT).status == OK


def test_an_event_of_a_mig_instance_carries_its_compute_slices(stub_driver, tmp_path):
    from agent.collect.kmsg import KmsgCollector
    from agent.replay import ReplayClock

    mig = {"gpu__0__mig.count": 7, "gpu__0__mig.0.instance": 1, "gpu__0__mig.0.slices": 4}
    mig.update({"gpu__0__mig.3.instance": 5, "gpu__0__mig.3.slices": 3})
    stub_driver.answers(gpu__0__mig_mode=1, **mig)
    nvml = stub_driver.collector()
    nvml.collect(INSTANT)
    lines = [f"4,{n},{n},c;NVRM: Xid (PCI:0000:10:00 GPU-I:0{n}): 94, Contained: SM" for n in (1, 5, 6)]
    (tmp_path / "kmsg").write_text("\n".join(lines) + "\n")
    kmsg = KmsgCollector(tmp_path / "kmsg", ReplayClock(10), start=False, slices=nvml.slices)
    events = kmsg.collect(INSTANT).facts["events"]
    assert [(e["instance"], e.get("slices")) for e in events] == [("1", 4), ("5", 3), ("6", None)]
    kmsg.close()


def test_a_driver_before_535_answers_under_the_old_name(stub_driver):
    stub_driver.use("old")
    gpu = stub_driver.read(gpu__0__old_reasons=0x48).facts["gpus"][0]
    assert gpu["throttle_reasons"] == 0x48
