"""Rules are data: what they must hold, what is refused at load, and that the scenarios notice when one is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleet.domain.rules import Rules, RulesError, load_rules, read_rules
from fleet.tests.domain import scenarios
from fleet.tests.domain.test_scenarios import MORE, SCENARIOS, differences

GOOD = """
[[reason]]
code = "A"
title = "a"
explanation = "a"
party = "infrastructure"
severity = "down"
weight = 0
lasts = "condition"
ends = ["reset"]
category = "hardware_failure"
sources = ["x"]
"""


def test_the_rule_set_loads_and_its_digest_is_that_of_its_files() -> None:
    rules = load_rules()
    assert len(rules.digest) == 64
    assert read_rules("v", {"a.toml": GOOD}).digest != read_rules("v", {"a.toml": GOOD + "\n"}).digest
    assert rules.xid(79, None) is not None
    assert rules.xid(149, "fatal") is not rules.xid(149, None)
    assert rules.xid(9999, None) is None


def test_the_word_of_a_switch_line_comes_before_the_table() -> None:
    rules = load_rules()
    assert len(rules.by_sxid) == 399

    def code(number: int, word: str | None) -> str | None:
        reason = rules.sxid(number, word)
        return reason.code if reason else None

    assert [code(23001, w) for w in (None, "fatal", "nonfatal")] == ["SXID_FABRIC", "SXID_FABRIC", "SXID_NONFATAL"]
    assert [code(26001, w) for w in (None, "fatal", "nonfatal")] == ["SXID_BY_LINE", "SXID_LINK", "SXID_NONFATAL"]
    assert [code(12028, w) for w in (None, "fatal", "nonfatal")] == ["SXID_ROUTING", "SXID_LINK", "SXID_ROUTING"]
    assert [code(99999, w) for w in (None, "fatal", "nonfatal")] == [None, "SXID_LINK", "SXID_NONFATAL"]


def test_every_reason_says_what_a_reader_needs() -> None:
    for reason in load_rules().reasons.values():
        assert reason.title
        assert reason.explanation
        assert reason.sources
        if reason.lowers and reason.lasts == "condition":
            assert reason.category in ("hardware_failure", "firmware", "network", "degraded")


def test_customers_and_nobodys_reasons_never_lower() -> None:
    assert not [r for r in load_rules().reasons.values() if r.lowers and r.party in ("customer", "none")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("weight = 0", "weight = 101"), "weight"),
        (("weight = 0", "weight = 0\ncolour = 1"), "colour: unknown key"),
        (('sources = ["x"]', "sources = []"), "sources"),
        (('sources = ["x"]', ""), "sources: is missing"),
        (('party = "infrastructure"', 'party = "ambiguous"'), "needs"),
        (('party = "infrastructure"', 'party = "nobody"'), "party"),
        (('ends = ["reset"]', ""), "ends"),
        (('ends = ["reset"]', 'ends = ["reset"]\nneeds = ["luck"]'), "needs"),
        (('ends = ["reset"]', 'ends = ["reset"]\nsupersedes = ["B"]'), "there is no reason B"),
        (('ends = ["reset"]', 'ends = ["reset"]\nsupersedes = ["A"]'), "a cycle"),
        (('ends = ["reset"]', 'ends = ["reset"]\nxid = true'), "xid"),
        (('ends = ["reset"]', 'ends = ["reset"]\nsxids = [true]'), "sxids"),
        (('ends = ["reset"]', 'ends = ["reset"]\nsxids = [7, 7]'), "sxid 7 has two rules"),
    ],
)
def test_a_bad_rule_is_refused_with_file_line_and_key(change: tuple[str, str], message: str) -> None:
    with pytest.raises(RulesError, match=message) as caught:
        read_rules("v", {"bad.toml": GOOD.replace(*change)})
    assert "bad.toml:3" in str(caught.value)


def test_one_code_has_one_rule() -> None:
    with pytest.raises(RulesError, match="twice"):
        read_rules("v", {"a.toml": GOOD, "b.toml": GOOD})


MUTATIONS: list[tuple[str, dict[str, Any], str]] = [
    ("XID_79", {"needs": ()}, "40"),
    ("XID_95", {"weight": 50}, "83"),
    ("XID_95", {"ends": ("boot",)}, "78"),
    ("XID_109", {"needs": ()}, "23"),
    ("XID_94", {"lasts": "note"}, "35"),
    ("XID_13", {"party": "infrastructure", "weight": 0, "lasts": "slot"}, "35"),
    ("XID_48", {"own_slot": ""}, "34"),
    ("HW_THERMAL", {"weight": 75}, "04"),
    ("GPU_MISSING", {"weight": 50}, "09"),
    ("IB_PORT_DOWN", {"weight": 50}, "27"),
    ("RECOVERY_REQUIRED", {"weight": 100}, "72"),
    ("SXID_LINK", {"needs": ()}, "s03"),
    ("SXID_NONFATAL", {"weight": 50}, "s07"),
    ("XID_74", {"symptom_of": ()}, "s09"),
]


@pytest.mark.parametrize(("code", "change", "scenario"), MUTATIONS, ids=[f"{m[0]}-{m[2]}" for m in MUTATIONS])
def test_a_wrong_rule_turns_a_scenario_red(
    code: str, change: dict[str, Any], scenario: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = load_rules()
    reasons = {**rules.reasons, code: replace(rules.reasons[code], **change)}
    wrong = Rules("wrong", rules.digest, reasons)
    chosen = next(s for s in SCENARIOS + MORE if s["id"] == scenario)
    assert differences(chosen) == []
    monkeypatch.setattr(scenarios, "Node", lambda context: _node(context, wrong))
    assert differences(chosen) != []


def _node(context: Any, rules: Rules) -> Any:
    from fleet.tests.domain.harness import Node

    return Node(context, rules)
