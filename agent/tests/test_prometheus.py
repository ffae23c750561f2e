"""A node without this agent, by its exporters: what is served is mapped, what is not served stays unknown."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from agent.clock import SystemClock
from agent.collect.base import ABSENT, ERROR, OK, TIMEOUT
from agent.collect.prom import RemoteClock, Scrape, parse_targets, scraped_collectors
from agent.collect.prom_text import parse
from agent.errors import ConfigError
from agent.tests.exporter import PORT, Exporter

SLOT_MS = 15_000


@pytest.fixture
def exporter():
    server = Exporter()
    yield server
    server.close()


class Reader:
    """The collectors of one scraped node, slot by slot."""

    def __init__(self, *urls):
        self.scrape = Scrape(list(urls))
        self.clock = RemoteClock(SystemClock(), self.scrape)
        self.collectors = scraped_collectors(self.scrape)
        self.at = self.clock.now()

    def read(self):
        self.at = self.at._replace(ts=self.at.ts + SLOT_MS)
        return {collector.source: collector.collect(self.at) for collector in self.collectors}


def test_the_fields_of_dcgm_exporter_are_mapped_and_no_other_is_made_up(exporter):
    reader = Reader(exporter.url)
    readings = reader.read()
    assert {name: one.status for name, one in readings.items()} == {
        "prometheus": OK, "nvml": OK, "ib": ABSENT, "kmsg": ABSENT,
    }  # fmt: skip
    gpu, _ = readings["nvml"].facts["gpus"]
    assert gpu == {
        "uuid": "GPU-08affe7e-7930-ae20-3fc6-4b0edf3ebbf3", "name": "NVIDIA H100 80GB HBM3",
        "pci_bus_id": "0000:3b:00.0", "sm_clock": 1980, "sm_clock_max": 1980, "temperature": 61, "power": 651_316,
        "gpu_utilization": 97, "memory_utilization": 41, "memory_used": 57_000 << 20, "memory_total": 81_559 << 20,
        "throttle_reasons": 0, "throttle_supported": True,
        "row_remap": {"correctable": 0, "uncorrectable": 0, "failed": False},
    }  # fmt: skip
    assert readings["nvml"].batch == {"driver_version": "570.158.01"}
    exporter.gpus[0]["DCGM_FI_DEV_PCIE_REPLAY_COUNTER"] = "5"
    assert reader.read()["nvml"].facts["gpus"][0]["pcie_replays"] == 2


@pytest.mark.parametrize(
    "value", ["9223372036854775794", "2147483632", "NaN", "+Inf", "-1", "1.4073748835532e+14", "", "N/A", "4e99"]
)
def test_blank_and_odd_values_are_left_out_never_zero(exporter, value):
    memory = ("FB_USED", "ECC_DBE_VOL_TOTAL", "ROW_REMAP_FAILURE", "CLOCKS_EVENT_REASONS")
    for metric in ("SM_CLOCK", "GPU_TEMP", "GPU_UTIL", "POWER_USAGE", *memory):
        exporter.gpus[0][f"DCGM_FI_DEV_{metric}"] = value
    gpu = Reader(exporter.url).read()["nvml"].facts["gpus"][0]
    assert not {"sm_clock", "temperature", "gpu_utilization", "power", "memory_used", "ecc_uncorrected"} & set(gpu)
    assert "failed" not in gpu["row_remap"]
    assert ("throttle_supported" in gpu) == ("throttle_reasons" in gpu)


def test_an_xid_is_told_once_and_an_old_one_not_at_all(exporter):
    """The exporter serves the last code for ever; what stands there at the first look may be of any time."""
    exporter.gpus[1]["DCGM_FI_DEV_XID_ERRORS"] = "31"
    reader = Reader(exporter.url)
    assert "events" not in reader.read()["nvml"].facts
    exporter.gpus[0]["DCGM_FI_DEV_XID_ERRORS"] = "79"
    (event,) = reader.read()["nvml"].facts["events"]
    assert event == {"kind": "xid", "code": 79, "at": reader.at.ts, "pci_bus_id": "0000:3b:00.0"}
    assert "events" not in reader.read()["nvml"].facts


def test_counts_of_a_window_are_compared_with_the_window_before(exporter):
    def window(count):
        exporter.extra = (
            'DCGM_EXP_XID_ERRORS_COUNT{gpu="0",UUID="GPU-x",pci_bus_id="00000000:3B:00.0",window_size_in_ms="300000",'
            f'xid="48"}} {count}\n'
        )

    reader = Reader(exporter.url)
    reader.read()
    told = []
    for count in (1, 1, 3, 2, 0, 1):  # it slides: a smaller count is no event
        window(count)
        told.append([(e["code"], e.get("count", 1)) for e in reader.read()["nvml"].facts.get("events", ())])
    assert told == [[(48, 1)], [], [(48, 2)], [], [], [(48, 1)]]


def test_lines_of_mig_instances_tell_only_that_the_gpu_is_there(exporter):
    exporter.gpus = {}
    labels = 'gpu="0",UUID="GPU-m",pci_bus_id="00000000:3B:00.0",GPU_I_PROFILE="3g.40gb",GPU_I_ID="1"'
    exporter.extra = f"DCGM_FI_DEV_GPU_TEMP{{{labels}}} 50\n"
    (gpu,) = Reader(exporter.url).read()["nvml"].facts["gpus"]
    assert gpu == {"uuid": "GPU-m", "pci_bus_id": "0000:3b:00.0"}


def test_ports_and_the_boot_come_from_node_exporter(exporter):
    node = Exporter(0)
    node.extra = PORT.format(state=4, phys=5, downed=2, received=4000)
    reader = Reader(exporter.url, node.url)
    assert reader.read()["ib"].facts["ib_ports"] == [
        {"device": "mlx5_0", "port": 1, "state": "ACTIVE", "phys_state": "LinkUp", "link_rate": 400},
    ]  # fmt: skip
    node.extra = PORT.format(state=1, phys=2, downed=3, received=8000)
    (port,) = reader.read()["ib"].facts["ib_ports"]
    assert port["counters"] == {"link_downed": 1, "port_rcv_data": 1000}
    assert (port["state"], port["phys_state"], port["reasons"]) == ("DOWN", "Polling", ["IB_PORT_DOWN"])
    boot = reader.clock.boot(reader.at)
    assert (boot["boot_at"], len(boot["boot_id"])) == (1_796_000_400_000, 32)
    assert Reader(exporter.url).clock.boot(reader.at) == {}
    node.close()


@pytest.mark.parametrize("trouble", ["refused", "status", "redirect", "html", "empty"])
def test_an_exporter_that_tells_nothing_is_no_health(exporter, trouble):
    reader = Reader(exporter.url)
    assert reader.read()["nvml"].status == OK
    if trouble == "refused":
        exporter.close()
    elif trouble in ("status", "redirect"):
        exporter.status = 500 if trouble == "status" else 302
    else:
        exporter.gpus, exporter.extra = {}, "<html>sign in</html>" if trouble == "html" else ""
    reading = reader.read()["nvml"]
    assert (reading.status, reading.facts["gpus"]) == (ERROR, [])
    assert "/elsewhere" not in exporter.asked


def test_an_exporter_that_hangs_holds_up_no_other_node(exporter, monkeypatch):
    import time

    monkeypatch.setattr("agent.collect.prom.TIMEOUT_S", 0.5)
    sick = [Exporter() for _ in range(3)]
    for one in sick:
        one.hangs = True
    readers = [Reader(one.url) for one in (*sick, exporter)]
    for reader in readers:
        reader.scrape.siblings = [other.scrape for other in readers if other is not reader]
        reader.at = readers[0].at
    begun = time.monotonic()
    states = [reader.read()["nvml"].status for reader in readers]
    assert states == [TIMEOUT, TIMEOUT, TIMEOUT, OK]
    assert time.monotonic() - begun < 3.5  # each alone would be waited for, one after the other
    for one in sick:
        one.close()


def test_addresses():
    assert parse_targets("http://gpu-01:9400, http://gpu-01:9100/metrics,https://gpu-02/x") == {
        "gpu-01": ["http://gpu-01:9400/metrics", "http://gpu-01:9100/metrics"], "gpu-02": ["https://gpu-02/x"],
    }  # fmt: skip
    for text in ("", " , ", "gpu-01:9400", "file:///etc/passwd", "ftp://gpu-01"):
        with pytest.raises(ConfigError):
            parse_targets(text)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('a{b="c"} 1', [("a", {"b": "c"}, 1.0)]),
        ('a{b="c", d="e",} 1 1796000400000', [("a", {"b": "c", "d": "e"}, 1.0)]),
        (r'a{b="x\"y\\z\nw"} 2', [("a", {"b": 'x"y\\z\nw'}, 2.0)]),
        ("a 1e3", [("a", {}, 1000.0)]),
        ('a{b="}"} 1 # {trace_id="x"} 1', []),  # told apart or not at all
        ('a{b="c} 1', []), ('a{b=c} 1', []), ('a{b="c",b="d"} 1', []), ("a", []), ("a{} x", []), ("# a 1", []),
        ("", []), ("a NaN", []),
    ],
)  # fmt: skip
def test_the_text_format(line, found):
    assert [tuple(sample) for sample in parse(line)] == found


def test_no_text_makes_the_reader_fail():
    import random

    rng = random.Random(7)
    text = Exporter.text(type("Fake", (), {"gpus": {0: {"DCGM_FI_DEV_GPU_TEMP": "61"}}, "extra": ""}))
    for _ in range(300):
        broken = list(text)
        for _ in range(rng.randint(1, 12)):
            broken[rng.randrange(len(broken))] = chr(rng.choice([0, 10, 34, 44, 92, 123, 125, 200, 0x202E, 0x1F600]))
        list(parse("".join(broken)))
    assert list(parse('a{b="' + "\\" * 8000)) == []


def test_the_command_prints_a_labelled_batch_without_clocks_of_this_machine(exporter, tmp_path):
    flags = ["--source", "prometheus", "--scrape", exporter.url, "--node-id", "gpu-01", "--state-dir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "agent", "once", "--dry-run", *flags],
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    batch = json.loads(done.stdout)
    assert batch["agent_version"].endswith("+prometheus")
    assert not {"boot_id", "boot_at", "last_shutdown", "hw_id"} & set(batch)
    (interval,) = batch["intervals"]
    assert interval["sources"] == {"prometheus": "ok", "nvml": "ok", "ib": "absent", "kmsg": "absent"}
    assert not {"mono", "boottime"} & set(interval)
    for canary in (b"canary-pod", b"team-secret", b"train"):
        assert canary not in done.stdout
