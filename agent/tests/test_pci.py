"""The PCI witness: present, dead, absent, across restarts; a GPU that its owner unbound."""

from __future__ import annotations

import pytest

from agent.collect.base import ABSENT, OK
from agent.collect.pci import PciCollector
from agent.tests.stub_driver import INSTANT

BUSES = ("0000:3b:00.0", "0000:5e:00.0")


@pytest.fixture
def bus(tmp_path):
    driver = tmp_path / "bus/pci/drivers/nvidia"
    driver.mkdir(parents=True)
    for name, vendor, kind in [
        (BUSES[0], "0x10de", "0x030200"),
        (BUSES[1], "0x10de", "0x030200"),
        ("0000:05:00.0", "0x10de", "0x068000"),  # an NVSwitch
        ("0000:3b:00.1", "0x10de", "0x040300"),  # the audio function of a GPU
        ("0000:00:1f.0", "0x8086", "0x060100"),
    ]:
        device = tmp_path / "bus/pci/devices" / name
        device.mkdir(parents=True)
        (device / "vendor").write_text(vendor + "\n")
        (device / "class").write_text(kind + "\n")
        (device / "config").write_bytes(b"\xde\x10\x30\x23" + b"\0" * 60)
        (device / "driver").symlink_to(driver)
    return tmp_path


def test_functions_of_interest_are_present(bus):
    reading = PciCollector(bus).collect(INSTANT)
    assert reading.status == OK
    assert reading.facts["pci"] == {"0000:05:00.0": "present", BUSES[0]: "present", BUSES[1]: "present"}
    assert "events" not in reading.facts


def test_all_ones_is_dead_and_a_vanished_function_absent_even_after_a_restart(bus):
    collector = PciCollector(bus)
    memory = collector.collect(INSTANT).memory
    (bus / "bus/pci/devices" / BUSES[0] / "config").write_bytes(b"\xff" * 64)
    (bus / "bus/pci/devices" / BUSES[1]).rename(bus / "gone")
    again = PciCollector(bus)
    again.restore(memory)
    for witness in (collector, again):
        pci = witness.collect(INSTANT).facts["pci"]
        assert (pci[BUSES[0]], pci[BUSES[1]]) == ("dead", "absent")
    (bus / "gone").rename(bus / "bus/pci/devices" / BUSES[1])
    assert again.collect(INSTANT).facts["pci"][BUSES[1]] == "present"


def test_a_gpu_that_left_the_driver_alone_was_unbound_by_its_owner(bus):
    collector = PciCollector(bus)
    collector.collect(INSTANT)
    (bus / "bus/pci/devices" / BUSES[0] / "driver").unlink()
    (event,) = collector.collect(INSTANT).facts["events"]
    assert (event["kind"], event["pci_bus_id"]) == ("driver_unbind", BUSES[0])
    assert "events" not in collector.collect(INSTANT).facts


def test_a_driver_that_left_altogether_was_not_unbound(bus):
    collector = PciCollector(bus)
    collector.collect(INSTANT)
    for device in (bus / "bus/pci/devices").iterdir():
        (device / "driver").unlink()
    assert "events" not in collector.collect(INSTANT).facts


def test_a_machine_without_pci_has_no_such_source(tmp_path):
    assert PciCollector(tmp_path).collect(INSTANT).status == ABSENT


def links(reading):
    return {link.pop("pci_bus_id"): link for link in reading.facts.get("pci_links", [])}


def test_links_and_errors_are_read_without_the_driver(bus):
    device = bus / "bus/pci/devices" / BUSES[0]
    (device / "current_link_speed").write_text("32.0 GT/s PCIe\n")
    (device / "current_link_width").write_text("16\n")
    (device / "aer_dev_fatal").write_text("DLP 0\nTLP 0\nTOTAL_ERR_FATAL 0\n")
    (device / "aer_dev_nonfatal").write_text("DLP 1\nTOTAL_ERR_NONFATAL 1\n")
    (device / "aer_dev_correctable").write_text("RxErr 7\nBadTLP 2\nTOTAL_ERR_COR 9\n")
    collector = PciCollector(bus)
    assert links(collector.collect(INSTANT)) == {BUSES[0]: {"speed": 32_000, "width": 16}}  # no growth is known yet
    (device / "current_link_speed").write_text("2.5 GT/s PCIe\n")
    (device / "current_link_width").write_text("8\n")
    (device / "aer_dev_correctable").write_text("RxErr 10\nBadTLP 2\nTOTAL_ERR_COR 12\n")
    assert links(collector.collect(INSTANT)) == {
        BUSES[0]: {"speed": 2500, "width": 8, "aer_fatal": 0, "aer_nonfatal": 0, "aer_correctable": 3}
    }
    (device / "aer_dev_correctable").write_text("TOTAL_ERR_COR 2\n")  # the device was removed and found anew
    assert links(collector.collect(INSTANT))[BUSES[0]]["aer_correctable"] == 2


@pytest.mark.parametrize(("speed", "width"), [("Unknown", "63"), ("Unknown speed", "0"), ("", ""), ("x GT/s", "-1")])
def test_a_link_that_tells_nothing_is_left_out(bus, speed, width):
    device = bus / "bus/pci/devices" / BUSES[0]
    (device / "current_link_speed").write_text(speed + "\n")
    (device / "current_link_width").write_text(width + "\n")
    (device / "aer_dev_fatal").write_text("TOTAL_ERR_FATAL many\n")
    assert "pci_links" not in PciCollector(bus).collect(INSTANT).facts


def test_a_dead_function_has_no_link(bus):
    device = bus / "bus/pci/devices" / BUSES[0]
    (device / "current_link_speed").write_text("16.0 GT/s PCIe\n")
    (device / "config").write_bytes(b"\xff" * 64)
    assert "pci_links" not in PciCollector(bus).collect(INSTANT).facts


def test_links_keep_to_the_contract(bus):
    from agent import wire
    from agent.collect.base import build_interval

    (bus / "bus/pci/devices" / BUSES[0] / "current_link_width").write_text("16\n")
    interval = build_interval(INSTANT, [PciCollector(bus).collect(INSTANT)])
    assert wire.ordered(interval, "INTERVAL")["pci_links"] == [{"pci_bus_id": BUSES[0], "width": 16}]
