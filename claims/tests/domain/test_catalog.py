"""The catalogue: dated, sourced, hedged; what can't be expressed says so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from claims import catalog
from claims.domain.completeness import missing_fields
from claims.domain.periods import calendar_month
from claims.domain.result import Inputs
from claims.errors import CatalogError, NotExpressible

ENTRIES = {entry.id: entry for entry in catalog.load_catalog()}
FOLDER = Path(catalog.__file__).parent
#: Steps as printed in the research data: (below, credit).
STEPS = {
    "aws-ec2-region": [("99.99", "10"), ("99.0", "30"), ("95.0", "100")],
    "aws-ec2-instance": [("99.5", "10"), ("99.0", "30"), ("95.0", "100")],
    "aws-pcs": [("99.9", "10"), ("99.0", "25"), ("95.0", "100")],
    "azure-vm-zones": [("99.99", "10"), ("99.0", "25"), ("95.0", "100")],
    "azure-vm-set": [("99.95", "10"), ("99.0", "25"), ("95.0", "100")],
    "azure-vm-single-premium": [("99.9", "10"), ("99.0", "25"), ("95.0", "100")],
    "google-ce-multi-zone": [("99.99", "10"), ("99.0", "25"), ("95.0", "100")],
    "google-ce-memory-optimised": [("99.95", "10"), ("99.0", "25"), ("95.0", "100")],
    "google-ce-single": [("99.9", "10"), ("99.0", "25"), ("95.0", "100")],
    "nebius-kubernetes": [("99.9", "10"), ("95.0", "25")],
    "digitalocean-cpu-droplet": [("99.99", "100")],
    "ibm-platform": [("99.99", "10"), ("99.9", "25")],
    "genesis-cloud": [("99.0", "10"), ("95.0", "20")],
    "nvidia-dgx-cloud": [("99.0", "10"), ("95.0", "25")],
    "gpcn-vm": [("99.99", "10"), ("99.9", "25"), ("95.0", "100")],
}


@pytest.mark.parametrize("name", sorted(STEPS))
def test_every_entry_with_steps_is_there_with_its_steps(name):
    assert [tuple(str(one) for one in pair) for pair in ENTRIES[name].terms["tiers"]] == STEPS[name]


def test_the_other_shapes_are_there():
    kinds = {entry.contract().kind for entry in ENTRIES.values() if not entry.not_expressible}
    assert kinds == {"tiers", "clock_hour", "outage_table", "pro_rata", "multiplier", "repair_time"}


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=lambda entry: entry.id)
def test_every_entry_asks_a_person_to_confirm_it(entry):
    assert "a person must confirm these terms at the source" in entry.confirm
    assert entry.checked_on == "2026-11-30"
    assert entry.read_at
    assert entry.hides


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=lambda entry: entry.id)
def test_no_entry_is_a_complete_contract(entry):
    if entry.not_expressible:
        with pytest.raises(NotExpressible, match=re.escape(entry.id)):
            entry.contract()
        return
    period = calendar_month("2026-09")
    inputs = Inputs(period, {}, (), None, period.first_slot, period.end_slot)
    assert "zone" in missing_fields(entry.contract(), inputs)


def test_entries_that_cannot_be_expressed_say_so():
    found = {entry.id for entry in ENTRIES.values() if entry.not_expressible}
    assert found == {"aws-pcs", "gpuhub-time-lost", "ibm-platform", "nebius-kubernetes", "nvidia-dgx-cloud"}


def test_connectivity_entries_say_that_a_dead_gpu_is_no_downtime():
    for entry in ENTRIES.values():
        if not entry.not_expressible and entry.terms["counts"] == ["unreachable"]:
            assert any("lost connectivity only" in one for one in entry.hides), entry.id
    assert any("not one lost GPU" in one for one in ENTRIES["ionstream-bare-metal"].hides)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('confidence = "high"', 'confidence = "sure"', "confidence"),
        ('id = "gpuyard-replacement"', 'id = "gpuyard-replacement"\nsmell = "odd"', "smell"),
        ("must confirm", "may look at", "confirm"),
        ('checked_on = "2026-11-30"', 'checked_on = "lately"', "checked_on"),
        ("https://www.gpuyard.com", "http://www.gpuyard.com", "source"),
        ("limit_s = 43200", "limit = 43200", "limit"),
        ("limit_s = 43200", 'limit_s = 43200\nzone = "UTC"', "zone"),
    ],
)
def test_a_damaged_entry_is_refused_with_the_key(old, new, field):
    text = (FOLDER / "gpuyard.toml").read_text()
    assert old in text
    with pytest.raises(CatalogError, match="gpuyard") as caught:
        catalog.read_catalog({"gpuyard.toml": text.replace(old, new, 1)})
    assert caught.value.field == field


def test_the_same_entry_twice_is_refused():
    text = (FOLDER / "gpuyard.toml").read_text()
    with pytest.raises(CatalogError, match="twice"):
        catalog.read_catalog({"a.toml": text, "b.toml": text})
