"""Rules are data: what they must hold, what is refused at load, and that the scenarios notice when one is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleet.domain.rules import Rules, RulesError, load_rules, read_rules
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
action = "a"
"""


def test_an_xid_without_a_rule_has_that_of_the_unknown_ones_under_its_number() -> None:
    rules = load_rules()
    unknown = rules.of("XID_9999")
    assert unknown is not None
    assert (unknown.code, unknown.title, unknown.weight, unknown.review) == ("XID_9999", "Unknown Xid 9999", 100, True)
    assert rules.of("XID_95") is rules.reasons["XID_95"]
    assert rules.of("NO_SUCH") is None


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
    assert dict(rules.reasons["SXID_FABRIC"].switch_codes)[10003] == "Host unhandled interrupt"
    assert all(name for reason in rules.reasons.values() for _, name in reason.switch_codes)

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
        assert reason.action
        assert reason.sources
        if reason.lowers and reason.lasts == "condition":
            assert reason.category in ("hardware_failure", "firmware", "network", "degraded")


def test_customers_and_nobodys_reasons_never_lower() -> None:
    assert not [r for r in load_rules().reasons.values() if r.lowers and r.party in ("customer", "none")]


END = 'ends = ["reset"]'


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("weight = 0", "weight = 101"), "bad.toml:8: A: weight: must be an integer from 0 to 100"),
        (("weight = 0", "weight = -1"), "bad.toml:8: A: weight: must be an integer from 0 to 100"),
        (("weight = 0", "weight = true"), "bad.toml:8: A: weight: must be an integer from 0 to 100"),
        (("weight = 0", "weight = 50.0"), "bad.toml:8: A: weight: must be an integer from 0 to 100"),
        (("weight = 0", "weight = 0\ncolour = 1"), "bad.toml:9: A: colour: unknown key"),
        (('sources = ["x"]', "sources = []"), "bad.toml:12: A: sources: is missing"),
        (('sources = ["x"]', ""), "bad.toml:3: A: sources: is missing"),
        (('sources = ["x"]', 'sources = [""]'), "bad.toml:12: A: sources: must be a list of texts"),
        (('party = "infrastructure"', 'party = "ambiguous"'), "bad.toml:3: A: needs: an ambiguous reason below 100"),
        (('party = "infrastructure"', 'party = "nobody"'), "bad.toml:6: A: party: must be one of"),
        (('category = "hardware_failure"', 'category = "luck"'), "bad.toml:11: A: category: must be one of"),
        ((END, ""), "bad.toml:3: A: ends: a condition must say what ends it"),
        ((END, 'ends = ["time"]'), "bad.toml:10: A: ends: must be one of"),
        ((END, END + '\nneeds = ["luck"]'), "bad.toml:11: A: needs: must be one of"),
        ((END, END + '\nneeds = ["xid:"]'), "bad.toml:11: A: needs: must be one of"),
        ((END, END + '\nsupersedes = ["B"]'), "bad.toml:3: supersedes/symptom_of: there is no reason B"),
        ((END, END + '\nsymptom_of = ["B"]'), "bad.toml:3: supersedes/symptom_of: there is no reason B"),
        ((END, END + '\nown_slot = "B"'), "bad.toml:3: own_slot: there is no reason B"),
        ((END, END + '\nsupersedes = ["A"]'), "bad.toml:3: supersedes: a cycle: A -> A"),
        ((END, END + "\nxid = true"), "bad.toml:11: A: xid: must be an integer"),
        ((END, END + "\nsxids = [true]"), "bad.toml:11: A: sxids: must be a list of codes"),
        ((END, END + '\nsxids = [7]\nsxid_names = ["a", "b"]'), "bad.toml:12: A: sxid_names: must name each code"),
        ((END, END + "\nsxids = [7, 7]"), "bad.toml:3: sxid 7 has two rules"),
        ((END, "ends = ["), "bad.toml:11: "),
        (('title = "a"', 'title = "  "'), "bad.toml:4: A: title: must be a text"),
        (('sources = ["x"]', 'sources = [" "]'), "bad.toml:12: A: sources: must be a list of texts"),
        (('sources = ["x"]', 'sources = ["x", "x"]'), "bad.toml:12: A: sources: says something twice"),
        (('code = "A"', 'code = "<b>"'), "bad.toml:3: <b>: code: must be letters"),
        ((END, 'ends = ["reset", "reset"]'), "bad.toml:10: A: ends: says something twice"),
        ((END, END + '\nneeds = ["xid:²"]'), "bad.toml:11: A: needs: must be one of"),
        ((END, END + '\nneeds = ["xid:99"]'), "bad.toml:3: needs: there is no rule for Xid 99"),
        ((END, END + '\nneeds = ["owner"]'), "bad.toml:3: A: owner: must say of what"),
        ((END, END + '\nowner = "bank"'), "bad.toml:11: A: owner: must be one of driver, fabric"),
        ((END, END + '\nline = "loud"'), "bad.toml:11: A: line: must be one of fatal, nonfatal"),
        ((END, END + "\npersistence_samples = 0"), "bad.toml:11: A: persistence_samples: must be an integer from 1"),
        ((END, END + '\nown_slot = "A"'), "bad.toml:3: own_slot: A does not last a slot"),
        (("weight = 0", "'weight' = 101"), "bad.toml:8: A: weight: must be an integer from 0 to 100"),
        (("weight = 0", "weight = 0\nweight = 1"), "bad.toml:9: "),
        (("weight = 0", "weight: 0"), "bad.toml:8: "),
        (("weight = 0", "weight = 0\nneeds = " + "[" * 100_000), "bad.toml:1: lists or tables lie too deep"),
        (('title = "a"', f'title = "{"a" * 2**20}"'), "bad.toml:1: 1048778 bytes are too many"),
        (("[[reason]]", "[reason]"), "bad.toml:1: a rule file holds"),
        (("[[reason]]", "[[rule]]"), "bad.toml:1: a rule file holds"),
    ],
)
def test_a_bad_rule_is_refused_with_file_line_and_key(change: tuple[str, str], message: str) -> None:
    assert change[0] in GOOD
    with pytest.raises(RulesError) as caught:
        read_rules("v", {"bad.toml": GOOD.replace(*change)})
    assert str(caught.value).startswith(message)


def test_a_file_that_is_no_utf8_is_refused_with_its_line() -> None:
    with pytest.raises(RulesError, match=r"^bad.toml:4: byte 0xe9 is no UTF-8$"):
        read_rules("v", {"bad.toml": GOOD.replace('title = "a"', 'title = "é"').encode("latin-1")})


@pytest.mark.parametrize("reading", ["mask = 12", 'counters = ["c", "b"]'])
def test_two_rules_of_one_bit_or_counter_are_refused(reading: str) -> None:
    other = GOOD.replace('code = "A"', 'code = "B"')
    files = {"a.toml": GOOD + 'mask = 8\ncounters = ["a", "b"]\n', "b.toml": other + reading}
    with pytest.raises(RulesError, match=r"^b.toml:3: (mask: 0x8|counters: b) has two rules"):
        read_rules("v", files)


def test_a_long_chain_of_supersedes_is_no_cycle() -> None:
    links = [GOOD.replace('code = "A"', f'code = "A{n}"') + f'supersedes = ["A{n + 1}"]\n' for n in range(2000)]
    rules = read_rules("v", {"a.toml": "".join(links) + GOOD.replace('code = "A"', 'code = "A2000"')})
    assert len(rules.reasons) == 2001


def test_a_cycle_over_two_files_is_refused_with_the_way_it_goes() -> None:
    other = GOOD.replace('code = "A"', 'code = "B"') + 'supersedes = ["A"]\n'
    with pytest.raises(RulesError, match=r"a.toml:3: supersedes: a cycle: A -> B -> A"):
        read_rules("v", {"a.toml": GOOD + 'supersedes = ["B"]\n', "b.toml": other})


@pytest.mark.parametrize("version", ["", ".", "..", "/", "2026-11-30/", "../rules", "2026-11", "2031-01-01"])
def test_a_rule_set_that_is_not_here_is_refused(version: str) -> None:
    with pytest.raises(RulesError, match="there is no rule set"):
        load_rules(version)


def test_a_rule_set_without_rules_is_refused() -> None:
    with pytest.raises(RulesError, match="holds no rules"):
        read_rules("v", {})


def test_one_code_has_one_rule() -> None:
    with pytest.raises(RulesError, match="twice"):
        read_rules("v", {"a.toml": GOOD, "b.toml": GOOD})


MUTATIONS: list[tuple[str, dict[str, Any], str]] = [
    ("XID_79", {"needs": ()}, "40"),
    ("XID_95", {"weight": 50}, "83"),
    ("XID_95", {"ends_without_action": ("boot",)}, "78"),
    ("XID_95", {"ends": ("boot",)}, "e07"),
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
def test_a_wrong_rule_turns_a_scenario_red(code: str, change: dict[str, Any], scenario: str) -> None:
    rules = load_rules()
    wrong = Rules("wrong", rules.digest, {**rules.reasons, code: replace(rules.reasons[code], **change)})
    chosen = next(s for s in SCENARIOS + MORE if s["id"] == scenario)
    assert differences(chosen) == []
    assert differences(chosen, wrong) != []


def _mentions(scenario: dict[str, Any], code: str) -> bool:
    return any(code in (*row[6], *row[7]) for rows in scenario["expected"].values() for row in rows)


SHOWN = {
    code: [scenario for scenario in SCENARIOS + MORE if _mentions(scenario, code)]
    for code, reason in sorted(load_rules().reasons.items())
    if reason.lowers
}


def test_enough_rules_that_lower_stand_in_scenarios() -> None:
    assert sum(bool(found) for found in SHOWN.values()) >= 20


@pytest.mark.parametrize("code", [code for code, found in SHOWN.items() if found])
@pytest.mark.parametrize("change", [{"weight": 37}, {"party": "customer"}], ids=["weight", "party"])
def test_a_scenario_notices_another_weight_or_party_of_every_rule_that_it_shows(
    code: str, change: dict[str, Any]
) -> None:
    rules = load_rules()
    if rules.reasons[code].lasts == "witness":
        change = {"weight": 37} if "weight" in change else change
    wrong = Rules("wrong", rules.digest, {**rules.reasons, code: replace(rules.reasons[code], **change)})
    assert any(differences(scenario, wrong) for scenario in SHOWN[code])
