"""All field cases of kinds a to d by id: which test plays each, or by which decision of ours it is judged otherwise."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from agent.tests import test_cases_ib, test_cases_kmsg, test_cases_nvml

ROOT = Path(__file__).parents[2]
CASES = [json.loads(line) for line in (Path(__file__).parent / "data/field-cases.jsonl").read_text().splitlines()]
OURS = [case for case in CASES if case["kind"][:2] in ("a.", "b.", "c.", "d.")]
COUNT = 141
SERVER = "fleet/tests/test_field_cases.py"
AGENT = "agent/tests/test_cases_agent.py"
PLAYED_BY = {  # cases that no list of inputs plays: the test that does
    "D001": ("agent/tests/test_outbox.py", "test_a_full_disk_goes_on_in_memory_says_so_and_comes_back"),
    "D002": ("agent/tests/test_outbox.py", "test_a_damaged_file_is_set_aside_and_what_can_be_read_is_delivered"),
    "D004": ("agent/tests/test_sender.py", "test_an_outcome_that_the_disk_does_not_take_is_not_sent_for_ever"),
    "D006": (AGENT, "test_a_refused_batch_is_neither_resent_for_ever_nor_dropped"),
    "D007": (AGENT, "test_samples_carry_clocks_that_no_step_can_move"),
    "D009": (SERVER, "test_a_constant_skew_of_27_hours_is_taken_out"),
    "D010": (AGENT, "test_an_event_of_the_backlog_is_placed_with_the_time_that_the_machine_slept"),
    "D012": (SERVER, "test_two_machines_cloned_from_one_image_are_two_nodes"),
    "D014": (AGENT, "test_the_log_is_read_without_pause"),
    "D016": (SERVER, "test_no_restart_of_an_agent_ends_a_condition_and_none_holds_it"),
    "D018": (SERVER, "test_an_event_without_a_device_is_nobodys"),
    "D020": (AGENT, "test_a_new_boot_tells_when_the_one_before_was_last_alive"),
    "D022": (AGENT, "test_backlog_arrives_with_its_own_times"),
    "D024": (SERVER, "test_four_witnesses_of_one_loss_are_one_interval"),
    "D026": (AGENT, "test_records_of_an_older_format_are_not_deleted"),
    "I008": ("agent/tests/test_cases_ib.py", "test_rates_in_every_spelling"),
    "I014": ("agent/tests/test_cases_ib.py", "test_driver_lines_of_network_cards_are_no_events"),
    "I024": ("agent/tests/test_cases_ib.py", "test_driver_lines_of_network_cards_are_no_events"),
}
OVERRULED = {"D006", "I024"}  # the design judges them otherwise; docs/agent.md says how
FROM_LISTS = (
    {case["id"] for case in test_cases_kmsg.KMSG}
    | test_cases_nvml.TESTED
    | (set(test_cases_ib.IB) - test_cases_ib.NO_TREE)
)


def test_the_list_is_whole():
    assert len(OURS) == COUNT
    assert not FROM_LISTS & set(PLAYED_BY)
    assert FROM_LISTS | set(PLAYED_BY) == {case["id"] for case in OURS}


@pytest.mark.parametrize("case_id", [case["id"] for case in OURS])
def test_each_case_is_played(case_id):
    """A list plays its cases by their ids; any other is named in the docstring or the arguments of its test."""
    if case_id in FROM_LISTS:
        return
    file, name = PLAYED_BY[case_id]
    (function,) = (
        node
        for node in ast.parse((ROOT / file).read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name == name
    )
    assert case_id in ast.unparse(function)


def test_what_the_design_overrules_is_decided_in_words():
    text = (ROOT / "docs/agent.md").read_text()
    decisions = text[text.index("## Cases decided otherwise") :]
    for case_id in OVERRULED:
        assert f"**{case_id}**" in decisions
