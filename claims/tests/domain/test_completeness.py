"""Contracts that can't be used, and contracts that don't say enough (contract.md 9)."""

from __future__ import annotations

from dataclasses import fields, replace
from decimal import Decimal

import pytest

from claims.domain.completeness import assess, missing_fields
from claims.domain.contract import KINDS, Contract, Unit
from claims.domain.contract_load import contract_from
from claims.domain.evaluate import evaluate
from claims.domain.facts import Reason, Standing
from claims.domain.result import AutomaticCredit
from claims.domain.rows import Row
from claims.errors import ClaimsError, InputsError
from claims.tests.domain.test_traps import FIRST, TERMS, bad, inputs, line, terms
from claims.words import MISSING_WORDS


def test_unknown_fields_and_missing_ones_are_named():
    for change, field in (({"teirs": []}, "teirs"), ({"scope": "rack"}, "scope"), ({"zone": "Mars"}, "zone")):
        with pytest.raises(ClaimsError) as caught:
            terms(**change)
        assert caught.value.field == field
    for name in ("name", "version", "kind", "counts", "scope"):
        with pytest.raises(ClaimsError) as caught:
            contract_from({key: value for key, value in TERMS.items() if key != name})
        assert (caught.value.code, caught.value.field) == ("contract_missing_key", name)


def test_every_field_that_always_matters_makes_the_contract_incomplete():
    quiet = inputs({"n1": line()})
    for name in ("zone", "clock_start", "pooling", "fee_charged"):
        found = assess(contract_from({key: value for key, value in TERMS.items() if key != name}), quiet)
        assert (found.status, found.missing, found.result) == ("incomplete", (name,), None)


def test_both_readings_of_an_incomplete_contract_are_shown():
    contract = contract_from(
        {key: value for key, value in TERMS.items() if key not in ("denominator", "ambiguous_counts")}
    )
    rows = [Row("entitlement", "n1", FIRST, FIRST + 100_000)]
    maybe = bad(Reason("NODE_LOST", 0, "hardware_failure", "ambiguous", Standing.CERTAIN))
    found = assess(contract, inputs({"n1": line((0, 150, maybe))}, rows=rows, entitled=()))
    assert set(found.missing) == {"ambiguous_counts", "denominator"}
    assert (found.least.claim, found.most.claim) == (Decimal("0.00"), Decimal("1000.00"))


def test_money_of_something_that_the_contract_does_not_cover_is_refused():
    for more in ({"fees": {"n9": Decimal(1)}}, {"automatic": [AutomaticCredit("n9", Decimal(1))]}):
        with pytest.raises(InputsError, match="n9"):
            evaluate(terms(), inputs({"n1": line()}, **more))


def test_whatever_can_be_missing_is_told_in_words():
    says_nothing = {one.name: None for one in fields(Contract) if one.default is None}
    contract = replace(terms(), **says_nothing, counts=("firmware",), units=(Unit("n1", ("n1/gpu0",)),))
    owned = [
        bad(Reason("XID_119", 0, "firmware", "ambiguous", Standing.CERTAIN, owner=owner))
        for owner in ("driver", "fabric")
    ]
    rows = [Row("maintenance", "n1", FIRST, None), Row("ticket", "n1", FIRST, None, pauses=((FIRST, FIRST + 1),))]
    given = inputs(
        {"n1": line((0, 10, owned[0]), (10, 20, owned[1]))}, rows=rows, automatic=[AutomaticCredit("n1", Decimal(1))]
    )
    missing = {name for kind in KINDS for name in missing_fields(replace(contract, kind=kind), given)}
    assert missing == set(MISSING_WORDS)
