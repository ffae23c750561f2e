"""The kernel log cases of the field, through the real reader: a file in place of /dev/kmsg, or scripted read() calls.

Here the facts are tested; class, weight, incidents and end of each case are in fleet/tests/test_field_verdicts.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.collect.base import ABSENT, public_xids
from agent.replay import replay

CASES = [json.loads(line) for line in (Path(__file__).parent / "data/field-cases.jsonl").read_text().splitlines()]
KMSG = [case for case in CASES if case["kind"].startswith("a.")] + [c for c in CASES if c["id"] == "D027"]
COUNT = 73  # a case that is lost from the list must not go unnoticed
OWN_EVENTS = {  # events without an Xid number that the wire knows beyond what a case lists
    "A032": ["bus_lost"],
    "A033": ["bus_lost", "driver_load"],
}
# A078: two lines of one code and GPU, Fatal and Nonfatal, are two events on the wire (they differ in severity); the
# case counts the worse one only, which the server's lowest-weight rule does.
KEPT_APART = {"A078": 1}


def outcome(text):
    lines = list(replay("kmsg", text))
    return (
        [line["event"] for line in lines if "event" in line],
        [line["gap"] for line in lines if "gap" in line],
        [line for line in lines if "source" in line],
        json.dumps(lines),
    )


def test_all_kernel_log_cases_are_here():
    assert len([case for case in CASES if case["kind"].startswith("a.")]) == COUNT


@pytest.mark.parametrize("case", KMSG, ids=[case["id"] for case in KMSG])
def test_case(case):
    events, gaps, sources, everything = outcome(case["input"])
    expected = case["expected"]
    _same_xids(events, expected, KEPT_APART.get(case["id"], 0))
    assert [e["kind"] for e in events if e["kind"] not in ("xid", "sxid")] == OWN_EVENTS.get(case["id"], [])
    sxids = [{"sxid": e["code"], "pci": e["pci_bus_id"]} for e in events if e["kind"] == "sxid"]
    wanted = [{"sxid": s["sxid"], "pci": s["pci"]} for s in expected.get("sxid", []) if isinstance(s, dict)]
    assert sxids == wanted
    for event, want in zip([e for e in events if e["kind"] == "sxid"], expected.get("sxid", []), strict=False):
        if "severity" in want:
            assert event["severity"] == want["severity"].lower().replace("-", "")
    if "gap" in expected:
        assert gaps == [expected["gap"]]
        assert sources[0]["status"] == "lost"
    if "agent_state" in expected and "unavailable" in expected["agent_state"]:
        assert sources[0]["status"] == ABSENT
    for secret in expected.get("must_not_emit", []):
        assert secret not in everything
    for event in events:
        assert set(event) <= {
            "kind", "code", "pci_bus_id", "at", "mono", "backlog", "severity", "action", "unit", "link", "instance",
            "slices", "count", "boot_id",
        }  # fmt: skip


def _same_xids(events, expected, more=0):
    """Codes and places in order of first appearance, and as many lines of each as the case counts."""
    found, wanted = {}, {}
    for event in (e for e in events if e["kind"] == "xid"):
        key = (event["code"], event.get("pci_bus_id"))
        found[key] = found.get(key, 0) + event.get("count", 1)
    for want in expected["events"]:
        key = (want["xid"], want["pci"])
        wanted[key] = wanted.get(key, 0) + want.get("lines", 1)
    assert list(found) == list(wanted)
    assert sum(found.values()) == sum(wanted.values()) + more
    assert more or found == wanted
    by_key = {}
    for event in (e for e in events if e["kind"] == "xid"):
        by_key.setdefault((event["code"], event.get("pci_bus_id")), []).append(event)
    for want in expected["events"]:
        key = (want["xid"], want["pci"])
        event = by_key[key][0]
        (xid,) = public_xids([event])
        assert xid["reason"] == want["reason"]
        if "action" in want:
            assert event["action"] == int(want["action"], 16)
        if "severity_text" in want:
            assert event["severity"] == want["severity_text"].lower()
        if "link" in want:
            assert event["link"] == want["link"]
        if "gpu_instance" in want:
            assert event["instance"] == str(want["gpu_instance"])


def test_restart_repeats_nothing():
    case = next(c for c in CASES if c["id"] == "F013")
    events, *_ = outcome(case["input"])
    assert [event["code"] for event in events] == [43, 62]


def test_a_new_boot_begins_again_at_any_sequence():
    record = "4,%d,1000000,c;NVRM: Xid (PCI:0000:3b:00): 43, pid=4242466, name=app, Ch 00000008"
    events, gaps, *_ = outcome(f"BOOT one\n{record % 500}\nBOOT two\n{record % 100}")
    assert len(events) == 2
    assert gaps == []
