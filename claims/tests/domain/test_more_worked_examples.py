"""Worked examples of ours: shapes, bounds and orders that the given eighteen hardly use; and what no example can be."""

from __future__ import annotations

import copy
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from claims.domain.completeness import assess
from claims.domain.worked import figures, main, read_example
from claims.errors import ClaimsError

DATA = Path(__file__).parent / "data" / "more-worked-examples.json"
EXAMPLES: list[dict[str, Any]] = json.loads(DATA.read_text())["examples"]
VARIANTS = [pytest.param(one, v, id=f"{one['id']}-{v['name']}") for one in EXAMPLES for v in one["variants"]]
WRONG: list[tuple[tuple[Any, ...], Any, str]] = [
    (("period",), None, "period: must be a map"),
    (("period", "zone"), None, "period.zone: must be a text"),
    (("timeline",), "x", "timeline: must be an array"),
    (("timeline", 0, "from_slot"), "1.5", "timeline[0].from_slot: '1.5' is no whole number"),
    (("timeline", 0, "to_slot"), "-1", "from_slot 100 comes after to_slot -1"),
    (("timeline", 0, "state"), "broken", "timeline[0].state: 'broken' is none of"),
    (("timeline", 0, "state"), "weight 101", "timeline[0].state: 'weight 101' is none of"),
    (("timeline", 0, "reasons", 0, "party"), "us", "reasons[0].party: 'us' is none of"),
    (("timeline", 0, "reasons", 0, "weight"), "200", "reasons[0].weight: must be from 0 to 100"),
    (("overlays",), [{"kind": "ticket"}], "overlays[0].resource: is missing"),
    (
        ("overlays",),
        [{"kind": "ticket", "resource": "n1", "opened_slot": "1", "pauses": [["3"]]}],
        "pauses[0]: must be",
    ),
    (("contract",), None, "contract: must be a map"),
    (("contract", "events"), {"fault": "2026-09-02T00:00:00Z"}, "events.replaced: is missing"),
    (("contract", "fees"), {"n1": "many"}, "fees.n1: 'many' is no amount"),
    (("contract", "automatic_credits"), [{"unit": "n1"}], "automatic_credits[0].amount: None is no amount"),
    (("contract", "entitlement"), [{"resource": "n1", "from_slot": "5", "to_slot": "x"}], "to_slot: 'x' is no whole"),
]


@pytest.mark.parametrize(("example", "variant"), VARIANTS)
def test_every_number_of_the_variant(example, variant):
    found = figures(assess(*read_example(example, variant)))
    for key, wanted in example["expected"][variant["name"]].items():
        value = found[key]
        same = value == wanted if wanted.isalpha() or "_" in wanted else Fraction(value) == Fraction(wanted)
        assert same, f"{key}: {value} is not {wanted}"


def test_each_names_its_rulings_and_the_ids_are_their_own():
    assert len({one["id"] for one in EXAMPLES}) == len(EXAMPLES) >= 25
    assert [one["id"] for one in EXAMPLES if not one["rulings"]] == []


@pytest.mark.parametrize(("way", "value", "message"), WRONG, ids=[one[2] for one in WRONG])
def test_what_is_no_example_is_refused_with_the_way_to_it(way, value, message):
    example = copy.deepcopy(EXAMPLES[0])
    at = example
    for step in way[:-1]:
        at = at[step]
    at[way[-1]] = value
    with pytest.raises(ClaimsError) as caught:
        read_example(example)
    assert message in str(caught.value)


def test_a_variant_whose_contract_is_no_map_is_refused():
    with pytest.raises(ClaimsError, match="contract: must be a map"):
        read_example(EXAMPLES[0], {"name": "odd", "contract": 5})


def test_the_command_says_what_it_refused(tmp_path, capsys):
    file = tmp_path / "examples.json"
    file.write_text(json.dumps({"examples": [EXAMPLES[0], {**EXAMPLES[1], "period": 7}]}))
    assert main([str(file)]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["status"] for line in lines[-2:]] == ["ok", "inputs_invalid"]
    assert main([str(file), EXAMPLES[0]["id"]]) == 0


@pytest.mark.parametrize("text", ["", "{", "{}"])
def test_a_file_that_holds_none_is_told_without_a_trace(tmp_path, capsys, text):
    file = tmp_path / "examples.json"
    file.write_text(text)
    assert main([str(file)]) == 2
    assert "can be read" in capsys.readouterr().err
