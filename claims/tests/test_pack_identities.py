"""Packs of nodes that were renamed, merged, retired or replaced: server and verifier take the same history."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from claims import demo
from claims.models import Claim
from claims.pack import make_pack
from claims.services import Actor
from claims.services_reports import draft_report, issue_report
from claims.tests.conftest import NOW
from claims.tests.months import fill
from claims.verify.checks import FAIL, PASS, check_pack
from claims.verify.pack_file import read_pack
from fleet.models import Node, NodeLive
from fleet.refolding import refold_dirty
from fleet.services_incidents import Actor as Person
from fleet.services_nodes import merge_nodes, set_label, set_retired

pytestmark = pytest.mark.django_db


def test_the_pack_of_a_merged_and_renamed_node_folds_from_both_identities(
    monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Any
) -> None:
    """The contract names the node as it was called; its batches are the survivor's since."""
    settings.GOODPUT_VAR = tmp_path
    add = demo.add_contract

    def after_a_merger(terms: Any, actor: Actor) -> Any:
        node = Node.objects.get(name="sim-0001")
        into = Node.objects.create(cluster=node.cluster, identity="hw:new", name="sim-new")
        NodeLive.objects.create(node=into)
        person = Person(actor.name, actor.org)
        merge_nodes(node, into, person)
        while refold_dirty(NOW):
            pass
        set_label(into, "Rack 7, top", person)
        set_retired(into, True, person)
        return add(terms, actor)

    monkeypatch.setattr(demo, "add_contract", after_a_merger)
    files = read_pack(io.BytesIO(demo.make_demo_pack(NOW, hours=2)))
    months = json.loads(files["inputs.json"])["node_months"]
    assert {one["node"] for one in months} == {"sim-0001"}
    found = {one.check: one for one in check_pack(files)}
    assert [one for one in found.values() if one.verdict == FAIL] == []
    assert found["fold"].verdict == PASS


def test_a_contract_that_names_both_identities_is_owed_for_one_machine(contract: Any) -> None:
    old = Node.objects.get(name="gpu-017")
    other = fill("gpu-018")
    whole = draft_report(contract, "2026-10", NOW).inputs["node_months"]
    Node.objects.filter(pk=other.pk).update(merged_into=old)
    assert draft_report(contract, "2026-10", NOW).inputs["node_months"] == whole
    Node.objects.filter(pk=other.pk).update(merged_into=None)
    Node.objects.filter(pk=old.pk).update(merged_into=other)
    (*_, last) = draft_report(contract, "2026-10", NOW).inputs["node_months"]
    assert (last["node"], last["id"]) == ("gpu-017", str(other.pk))


def test_of_two_nodes_of_one_name_the_first_seen_is_the_older_whatever_their_ids(
    contract: Any, actor: Actor, settings: Any, tmp_path: Any
) -> None:
    settings.GOODPUT_VAR = tmp_path
    newer = Node.objects.get(name="gpu-017")
    older = fill("gpu-before")
    Node.objects.filter(pk=older.pk).update(name="gpu-017", first_seen_at=newer.first_seen_at - timedelta(days=9))
    assert older.pk > newer.pk
    issue_report(contract, "2026-10", actor, now=NOW)
    body = make_pack(Claim.objects.get(), actor.org, datetime(2026, 11, 9, 9, tzinfo=UTC))
    found = {one.check: one for one in check_pack(read_pack(io.BytesIO(body)), only=("result", "amount"))}
    assert {one.verdict for one in found.values()} == {PASS}, found
