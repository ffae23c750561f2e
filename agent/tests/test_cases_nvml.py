"""The NVML cases of the field: each report is played by the stand-in driver and read by the real collector.

The reports are console text of other tools, so each case says which answers of the driver stand for it. Weight and end
are in fleet/tests/test_field_readings.py; here the facts are tested.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from agent.collect.base import BLIND, ERROR, OK, TIMEOUT
from agent.collect.pci import PciCollector
from agent.replay import replay
from agent.tests.stub_driver import INSTANT

CASES = [json.loads(line) for line in (Path(__file__).parent / "data/field-cases.jsonl").read_text().splitlines()]
IDS = {case["id"] for case in CASES if case["kind"] == "b.nvml"}
COUNT = 32
LOST, RESET_REQUIRED, NOT_SUPPORTED, UNKNOWN, MISMATCH, NOT_LOADED = 15, 16, 3, 999, 18, 9
TESTED = set()


def case(*ids):
    """Marks a test with the cases that it plays."""
    TESTED.update(ids)
    return pytest.mark.parametrize("case_id", ids)


def by_bus(reading):
    return {gpu.get("pci_bus_id"): gpu for gpu in reading.facts["gpus"]}


@case("N001", "N002", "N052")
def test_one_gpu_without_a_handle_leaves_the_others(stub_driver, case_id):
    code = LOST if case_id == "N001" else UNKNOWN
    stub_driver.answers(count=4, gpu__1__pci="00000000:C1:00.0")
    collector = stub_driver.collector()
    assert "0000:c1:00.0" in by_bus(collector.collect(INSTANT))
    stub_driver.answers(count=4, gpu__1__pci="00000000:C1:00.0", gpu__1__handle__ret=code)
    reading = collector.collect(INSTANT)
    assert reading.status == OK
    assert len(reading.facts["gpus"]) == 3
    assert "0000:c1:00.0" not in by_bus(reading)
    assert reading.memory["seen"]["0000:c1:00.0"]  # the place is remembered: identity by UUID, never by text


@case("N004")
def test_an_impossible_bus_id_is_left_out(stub_driver, case_id):
    gpu = stub_driver.read(count=1, gpu__0__pci="000:BA:80.0").facts["gpus"][0]
    assert gpu.get("pci_bus_id") is None
    assert gpu["uuid"]


@case("N005")
def test_a_container_that_lost_its_devices_is_blind(stub_driver, case_id):
    stub_driver.answers(count=2)
    stub_driver.pci = {"0000:10:00.0": "present", "0000:11:00.0": "present"}
    seen = stub_driver.collector().collect(INSTANT).memory
    stub_driver.answers(init__ret=UNKNOWN)
    reading = stub_driver.collector(memory=seen).collect(INSTANT)
    assert (reading.status, reading.facts["gpus"], reading.facts["nvml_error"]) == (BLIND, [], UNKNOWN)


@case("N006")
def test_a_library_of_another_driver_is_an_error_of_the_source(stub_driver, case_id):
    stub_driver.pci = {"0000:10:00.0": "present"}
    reading = stub_driver.read(init__ret=MISMATCH)
    assert (reading.status, reading.facts["nvml_error"]) == (ERROR, MISMATCH)


@case("N008")
def test_a_reload_at_start_is_told_and_seen_through(stub_driver, case_id):
    stub_driver.pci = {"0000:10:00.0": "present"}
    stub_driver.answers(init__ret=NOT_LOADED)
    collector = stub_driver.collector(memory={"seen": {"0000:10:00.0": "GPU-x"}})
    reading = collector.collect(INSTANT)
    assert (reading.status, reading.facts["nvml_error"]) == (ERROR, NOT_LOADED)
    stub_driver.answers()
    assert len(collector.collect(INSTANT).facts["gpus"]) == 8


@case("N010")
def test_a_uuid_served_from_a_cache_is_no_life_sign(stub_driver, case_id):
    reading = stub_driver.read(count=2, gpu__0__remapped_rows__ret=LOST, gpu__0__utilization__ret=RESET_REQUIRED)
    assert [gpu["uuid"][-2:] for gpu in reading.facts["gpus"]] == ["01"]
    (recorded, _) = [next(c for c in CASES if c["id"] == "N010")["input"], None]
    (sample,) = list(replay("nvml", recorded))
    assert (sample["gpus"], sample["nvml_error"]) == ([], LOST)


@case("N011")
def test_a_wedged_gpu_that_looks_busy_shows_its_recovery_action(stub_driver, case_id):
    answers = {"gpu__0__utilization.gpu": 93, "gpu__0__memory.used": 1 << 20, "gpu__0__field.230": 1}
    gpu = stub_driver.read(gpu__0__pci="00000000:CC:00.0", **answers).facts["gpus"][0]
    assert (gpu["pci_bus_id"], gpu["recovery_action"]) == ("0000:cc:00.0", 1)
    old = stub_driver.read(**{"gpu__0__field.230.ret": NOT_SUPPORTED}).facts["gpus"][0]
    assert "recovery_action" not in old


@case("N013", "N050")
def test_six_kinds_of_no_value_are_never_zero(stub_driver, case_id):
    codes = {"temperature": NOT_SUPPORTED, "power": UNKNOWN, "ecc_corrected": 4, "sm_clock": 13, "pcie_gen": 25}
    gpu = stub_driver.read(**{f"gpu__0__{call}__ret": code for call, code in codes.items()}).facts["gpus"][0]
    assert not set(codes) & set(gpu)
    assert gpu["uuid"]


@case("N014")
def test_a_gpu_without_a_memory_figure_is_there(stub_driver, case_id):
    gpu = stub_driver.read(count=1, gpu__0__memory__ret=NOT_SUPPORTED, gpu__0__pci="0000000F:01:00.0").facts["gpus"][0]
    assert gpu["pci_bus_id"] == "000f:01:00.0"
    assert not {"memory_total", "memory_used"} & set(gpu)
    zero = stub_driver.read(count=1, **{"gpu__0__memory.total": 0, "gpu__0__memory.used": 0}).facts["gpus"][0]
    assert "memory_total" not in zero


@case("N016")
def test_utilisation_with_mig_is_left_out(stub_driver, case_id):
    gpu = stub_driver.read(gpu__0__utilization__ret=NOT_SUPPORTED, gpu__0__mig_mode=1).facts["gpus"][0]
    assert gpu["mig_mode"] is True
    assert "gpu_utilization" not in gpu


@case("N018")
def test_the_domain_is_part_of_the_key(stub_driver, case_id):
    reading = stub_driver.read(count=2, gpu__0__pci="00000000:8C:00.0", gpu__1__pci="00000001:04:00.0")
    assert set(by_bus(reading)) == {"0000:8c:00.0", "0001:04:00.0"}


@case("N019")
def test_a_gpu_that_nvml_does_not_list_stands_in_the_pci_facts(stub_driver, tmp_path, case_id):
    root = tmp_path / "sys/bus/pci/devices"
    for bus in ("0000:16:00.0", "0000:38:00.0", "0000:82:00.0", "0000:ac:00.0"):
        (root / bus).mkdir(parents=True)
        (root / bus / "vendor").write_text("0x10de\n")
        (root / bus / "class").write_text("0x030200\n")
        (root / bus / "config").write_bytes(b"\xde\x10\xb9\x26")
    pci = PciCollector(tmp_path / "sys").collect(INSTANT)
    assert pci.facts["pci"] == dict.fromkeys(
        ("0000:16:00.0", "0000:38:00.0", "0000:82:00.0", "0000:ac:00.0"), "present"
    )
    assert len(stub_driver.read(count=3).facts["gpus"]) == 3


@case("N021")
def test_gpus_are_known_by_uuid_not_by_index(stub_driver, case_id):
    first = stub_driver.read(
        count=3,
        gpu__0__uuid="GPU-a",
        gpu__1__uuid="GPU-b",
        gpu__2__uuid="GPU-c",
        gpu__1__pci="00000000:3B:00.0",
        gpu__2__pci="00000000:5E:00.0",
    )
    second = stub_driver.read(count=2, gpu__0__uuid="GPU-a", gpu__1__uuid="GPU-c", gpu__1__pci="00000000:5E:00.0")
    before, after = ({g["uuid"]: g["pci_bus_id"] for g in r.facts["gpus"]} for r in (first, second))
    assert set(before) - set(after) == {"GPU-b"}
    assert before["GPU-c"] == after["GPU-c"] == "0000:5e:00.0"


@case("N023")
def test_volatile_ecc_is_told_as_it_stands(stub_driver, case_id):
    stub_driver.answers(gpu__0__ecc_uncorrected=2)
    collector = stub_driver.collector()
    assert collector.collect(INSTANT).facts["gpus"][0]["ecc_uncorrected"] == 2
    stub_driver.answers(gpu__0__ecc_uncorrected=0)
    assert collector.collect(INSTANT).facts["gpus"][0]["ecc_uncorrected"] == 0


@case("N024")
def test_a_pending_remap_is_told_apart_from_a_failed_one(stub_driver, case_id):
    rows = {"gpu__0__remap.uncorrectable": 1, "gpu__0__remap.pending": 1}
    gpu = stub_driver.read(**rows).facts["gpus"][0]
    assert gpu["row_remap"] == {"correctable": 0, "uncorrectable": 1, "pending": True, "failed": False}


@case("N027", "N029")
def test_a_slow_link_at_idle_comes_with_what_is_needed_to_excuse_it(stub_driver, case_id):
    gpu = stub_driver.read(
        gpu__0__pcie_gen=1, gpu__0__reasons=1, **{"gpu__0__utilization.gpu": 0, "gpu__0__power": 9_600}
    ).facts["gpus"][0]
    assert (gpu["pcie_gen"], gpu["pcie_gen_max"], gpu["gpu_utilization"], gpu["power"]) == (1, 5, 0, 9_600)


@case("N030", "N031", "N033", "N035")
def test_clock_reasons_travel_as_the_mask_that_the_driver_gave(stub_driver, case_id):
    mask = {"N030": 0x1, "N031": 0x4, "N033": 0x88, "N035": 0x180}[case_id]
    gpu = stub_driver.read(gpu__0__reasons=hex(mask)).facts["gpus"][0]
    assert (gpu["throttle_reasons"], gpu["throttle_supported"]) == (mask, True)
    high = stub_driver.read(gpu__0__reasons=hex(1 << 63 | mask)).facts["gpus"][0]
    assert high["throttle_reasons"] == 1 << 63 | mask


@case("N036")
def test_a_missing_symbol_costs_one_field_at_most(stub_driver, case_id):
    stub_driver.use("old")
    gpu = stub_driver.read(gpu__0__old_reasons=4).facts["gpus"][0]
    assert gpu["throttle_reasons"] == 4


@case("N038")
def test_a_call_that_writes_to_the_kernel_log_is_made_once(stub_driver, case_id):
    stub_driver.answers(count=1, gpu__0__remapped_rows__ret=NOT_SUPPORTED)
    collector = stub_driver.collector()
    for _ in range(4):
        collector.collect(INSTANT)
    assert stub_driver.calls().count("gpu.0.remapped_rows") == 1
    line = next(c for c in CASES if c["id"] == "N038")["input"]
    assert not [found for found in replay("kmsg", line) if "event" in found]


@case("N040")
def test_a_gpu_without_a_bus_id_is_there_by_its_uuid(stub_driver, case_id):
    calls = ("pci", "memory", "power", "temperature", "utilization", "fields", "remapped_rows", "serial")
    reading = stub_driver.read(count=1, **{f"gpu__0__{call}__ret": NOT_SUPPORTED for call in calls})
    (gpu,) = reading.facts["gpus"]
    assert gpu["uuid"]
    assert "pci_bus_id" not in gpu


@case("N041")
def test_both_xids_are_told_not_the_last_one(case_id):
    record = "4,%d,%d,c;NVRM: Xid (PCI:0000:4e:00): %s"
    text = "\n".join([record % (1, 10, "62, 2026da96"), record % (2, 20, "45, pid=4242472, name=app, Ch 00000008")])
    assert [line["event"]["code"] for line in replay("kmsg", text) if "event" in line] == [62, 45]


@case("N043")
def test_a_ghost_load_comes_with_the_memory_that_unmasks_it(stub_driver, case_id):
    gpu = stub_driver.read(**{"gpu__0__utilization.gpu": 100, "gpu__0__memory.used": 1 << 20}).facts["gpus"][0]
    assert (gpu["gpu_utilization"], gpu["memory_used"]) == (100, 1 << 20)


@case("N044")
def test_the_agent_lets_go_of_the_driver_for_a_reset(stub_driver, case_id):
    collector = stub_driver.collector()
    collector.collect(INSTANT)
    process = collector._child._process
    collector.release(time.monotonic() + 0.1)
    assert process.poll() is not None  # nobody holds the device any more
    time.sleep(0.15)
    assert collector.collect(INSTANT).status == OK


@case("N046")
def test_a_call_that_never_returns_is_a_timeout(stub_driver, case_id):
    collector = stub_driver.collector(timeout_s=0.3)
    collector.collect(INSTANT)
    stub_driver.answers(gpu__0__power__ret="HANG")
    assert [collector.collect(INSTANT).status for _ in range(2)] == [TIMEOUT, TIMEOUT]


@case("N048")
def test_each_field_value_has_a_return_code_of_its_own(stub_driver, case_id):
    gpu = stub_driver.read(**{"gpu__0__field.230.ret": NOT_SUPPORTED}).facts["gpus"][0]
    assert "recovery_action" not in gpu
    assert gpu["power"]
    recorded = '{"call": "nvmlDeviceGetUUID", "ret": 0, "value": "GPU-x"}\n'
    recorded += next(c for c in CASES if c["id"] == "N048")["input"]
    (sample,) = list(replay("nvml", recorded))
    assert "recovery_action" not in sample["gpus"][0]


def test_every_nvml_case_is_played():
    assert len(IDS) == COUNT
    assert TESTED == IDS
