"""The review of the weights, row by row: what the rule set must say of each code that was disputed."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.domain.rules import Reason, load_rules

RULES = load_rules().reasons
HARD_ENDS = ("action_none", "reset", "boot", "replaced")
OLD_ENDS = ("reset", "boot", "replaced", "powered")

#: (sentence of the review, codes, what the rule set says of each).
REVIEW: list[tuple[str, list[str], dict[str, Any]]] = [
    (
        "48: zero only with a recovery action, 95/140, or the GPU missing; else like 94",
        ["XID_48"],
        {
            "weight": 0,
            "lasts": "condition",
            "needs": ("action", "missing", "xid:95", "xid:140"),
            "own_slot": "XID_48_CONTAINED",
        },
    ),
    ("48's own slot is like 94", ["XID_48_CONTAINED"], {"weight": 0, "lasts": "slot", "category": "none"}),
    (
        "54: 50, and only with clocks below base or an action",
        ["XID_54"],
        {"weight": 50, "needs": ("clocks", "action")},
    ),
    ("61: 100 and review", ["XID_61"], {"weight": 100, "review": True, "lasts": "note"}),
    (
        "64 and remap failure: 0 until reset",
        ["XID_64"],
        {"weight": 0, "lasts": "condition", "needs": (), "ends": HARD_ENDS},
    ),
    ("then 100 with rma_due: a flag is no loss of capacity", ["RMA_DUE"], {"weight": 100, "lasts": "note"}),
    ("PCIe replays: 100 and watch", ["PCIE_REPLAYS"], {"weight": 100, "lasts": "hidden"}),
    (
        "74: pending, 0 with an action, 50 with inactive links, a symptom of a peer's 79",
        ["XID_74"],
        {"weight": 0, "needs": ("action", "links"), "party": "infrastructure"},
    ),
    (
        "79: 0, pending until NVML or PCI says lost",
        ["XID_79"],
        {"weight": 0, "needs": ("missing",), "lasts": "condition"},
    ),
    ("94: its own slot, category none", ["XID_94"], {"weight": 0, "lasts": "slot", "category": "none"}),
    ("95 and 140 hold until they end", ["XID_95", "XID_140"], {"weight": 0, "lasts": "condition", "needs": ()}),
    (
        "need an action",
        [f"XID_{n}" for n in (109, 136, 143, 151, 155, 156, 158, 166, 167, 168, 169, 172, 173, 175)],
        {"needs": ("action",), "lasts": "condition", "ends": HARD_ENDS, "ends_without_action": OLD_ENDS},
    ),
    (
        "119 and 120: an action, or NVML errors in two samples",
        ["XID_119", "XID_120"],
        {"needs": ("action", "nvml_errors")},
    ),
    (
        "46, 109, 119, 120 are firmware, infrastructure's only where the provider owns the driver",
        ["XID_46", "XID_109", "XID_119", "XID_120"],
        {"category": "firmware", "owner": "driver"},
    ),
    (
        "144 to 150: 100 and review",
        [f"XID_{n}" for n in range(144, 151)],
        {"weight": 100, "review": True, "lasts": "note", "line": ""},
    ),
    (
        "144 to 150: unless the line says Fatal",
        [f"XID_{n}F" for n in range(144, 151)],
        {"weight": 0, "lasts": "condition", "line": "fatal"},
    ),
    ("... or an action follows", ["RECOVERY_REQUIRED"], {"weight": 0, "lasts": "condition", "needs": ()}),
    ("drain counts half", ["RECOVERY_DRAIN"], {"weight": 50}),
    (
        "throttling: loss in proportion to the throttled share",
        ["HW_THERMAL", "HW_POWER_BRAKE", "HW_SLOWDOWN"],
        {"weight": 50, "lasts": "share", "persistence_samples": 2},
    ),
    ("0x8 with 0x40 or 0x80 is one reason", ["HW_THERMAL", "HW_POWER_BRAKE"], {"supersedes": ("HW_SLOWDOWN",)}),
    ("software's slowdown takes a quarter at most", ["SW_THERMAL"], {"weight": 75, "lasts": "share"}),
    ("PCIe width 75", ["PCIE_WIDTH"], {"weight": 75, "lasts": "sample", "ends": ("sample",)}),
    ("NVLink against the SKU's link count", ["NVLINK_INACTIVE"], {"weight": 50, "lasts": "sample"}),
    (
        "all links of all GPUs: the fabric manager, ambiguous",
        ["NVLINK_FABRIC"],
        {"party": "ambiguous", "needs": ("owner",), "owner": "driver"},
    ),
    ("port flap: its own slot at 50", ["IB_PORT_FLAP"], {"weight": 50, "lasts": "slot"}),
    ("Disabled is administrative", ["IB_PORT_DISABLED"], {"weight": 100, "party": "none"}),
    (
        "INIT over 30 s only where the provider owns the fabric",
        ["IB_PORT_INIT"],
        {"needs": ("owner",), "owner": "fabric", "persistence_samples": 3},
    ),
    (
        "retired pages, corrected ECC and temperature are watched only",
        ["RETIRED_PAGES", "ECC_CORRECTED", "TEMPERATURE", "ROW_REMAP_PENDING"],
        {"weight": 100, "lasts": "hidden"},
    ),
    (
        "idle, application clocks, sync boost, power cap never lower",
        ["GPU_IDLE", "APPLICATION_CLOCKS", "SYNC_BOOST", "SW_POWER_CAP", "DISPLAY_CLOCK"],
        {"weight": 100, "lasts": "hidden"},
    ),
    ("a customer-made cap is ambiguous", ["POWER_LIMIT", "APPLICATION_CLOCKS"], {"weight": 100, "party": "ambiguous"}),
    ("symptoms never open their own incident", ["XID_45", "XID_171"], {"weight": 100, "lasts": "note"}),
    ("154 overrules, it is no reason itself", ["XID_154"], {"lasts": "hidden"}),
    (
        "an unknown Xid: weight 100, review",
        ["XID_UNKNOWN", "SXID_UNKNOWN"],
        {"weight": 100, "review": True, "party": "ambiguous"},
    ),
    (
        "a program's own faults are the customer's",
        ["XID_13", "XID_31", "XID_43", "XID_69"],
        {"party": "customer", "weight": 100},
    ),
    ("what connectivity contracts count", ["NODE_UNREACHABLE"], {"weight": 100, "category": "unreachable"}),
    ("a missing GPU is lost", ["GPU_MISSING"], {"weight": 0, "severity": "lost"}),
    (
        "a node's death is ambiguous by itself",
        ["NODE_LOST"],
        {"weight": 0, "party": "ambiguous", "needs": ("witness",)},
    ),
]
CASES = [(sentence, code, wanted) for sentence, codes, wanted in REVIEW for code in codes]


@pytest.mark.parametrize(("sentence", "code", "wanted"), CASES, ids=[f"{c[1]}: {c[0]}" for c in CASES])
def test_the_rule_set_says_what_the_review_says(sentence: str, code: str, wanted: dict[str, Any]) -> None:
    reason = RULES[code]
    assert {key: getattr(reason, key) for key in wanted} == wanted, sentence


def test_what_lowers_names_whose_it_is_and_what_ends_it() -> None:
    wrong: list[Reason] = []
    for reason in RULES.values():
        if reason.lowers and reason.lasts in ("condition", "sample") and not reason.ends:
            wrong.append(reason)
        if reason.party == "ambiguous" and reason.weight < 100 and not reason.needs:
            wrong.append(reason)
    assert wrong == []
