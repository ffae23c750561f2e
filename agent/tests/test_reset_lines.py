"""Which kernel lines say that a GPU was reset."""

from __future__ import annotations

import pytest

from agent.replay import replay


def events(message, prefix="4"):
    record = f"{prefix},700,90000000,c;{message}"
    return [line["event"] for line in replay("kmsg", record) if "event" in line]


@pytest.mark.parametrize("driver", ["nvidia", "vfio-pci", "nvgrace-gpu-vfio-pci", "pci"])
def test_the_pci_core_tells_of_a_reset_under_the_name_of_whoever_holds_the_device(driver):
    (event,) = events(f"{driver} 0000:3b:00.0: reset done")
    assert (event["kind"], event["pci_bus_id"]) == ("gpu_reset", "0000:3b:00.0")


@pytest.mark.parametrize(
    "message",
    [
        "vfio-pci 0000:3b:00.0: resetting",  # its beginning
        "mlx5_core 0000:3b:00.0: reset done",  # another kind of device
        "nvidia 0000:3b:00.0: reset done, not really",
        "x nvidia 0000:3b:00.0: reset done",
        "GPU reset executed: GPU-455d8f70-2051-db6c-0430-ffc457bff834, success: true",  # a script's, by `logger`
    ],
)
def test_other_lines_tell_of_none(message):
    assert events(message) == []


def test_userspace_cannot_tell_of_a_reset():
    assert events("nvidia 0000:3b:00.0: reset done", prefix="11") == []
