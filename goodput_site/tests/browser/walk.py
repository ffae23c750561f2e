"""The data of the walk through all pages: bad days of `month_mixed`, a claim, a fault of several nodes, alert channels.

In orgs of its own, so that no other test of a browser meets it; made once per run, when a page first needs it.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest

DAYS, NODES = 1, 3
DATA = """
import json
from datetime import UTC, datetime, timedelta
from django.utils import timezone
from django_tenants.utils import tenant_context
from claims.demo import TERMS, plan_for
from claims.domain.contract_load import contract_from_toml
from claims.models import Claim
from claims.services import Actor as ClaimActor, add_contract, add_overlay
from claims.services_reports import issue_report
from fleet.alerts.delivery import deliver_to
from fleet.alerts.outbox import tell_of_incident
from fleet.alerts.services import change_channel, create_channel, send_test
from fleet.alerts.tasks import prepare
from fleet.cluster_incidents import group_waiting
from fleet.folding import fold_waiting
from fleet.ingest import receive
from fleet.models import Incident, IncidentNote, Node, NodeLive
from fleet.refolding import refold_dirty
from fleet.services_comparisons import ask_for_comparison, work_on_comparison
from fleet.services_incidents import Actor
from fleet.simulation import uploads
from orgs.keys import KeyInfo
from orgs.models import Org

org, now = Org.objects.get(slug="walk"), timezone.now()
ids = {"org": org.pk}
with tenant_context(org):
    plan = plan_for(now)
    key = KeyInfo(0, "demo", frozenset({"ingest"}), "", None, org.pk, org.slug, org.schema_name)
    for body, _ in uploads(plan):
        receive(body, key, {})
    while fold_waiting(now):
        pass
    while refold_dirty(now):
        pass
    who = ClaimActor("test", org)
    members = ", ".join(f'"sim-0001/gpu{index}"' for index in range(8))
    terms = contract_from_toml(TERMS.replace("MEMBERS", members))
    contract = add_contract(terms, who, cluster="demo-claim").contract
    reach = TERMS.replace('["hardware_failure"]', '["unreachable"]').replace("Sample terms", "Reach")
    unmeasured = add_contract(contract_from_toml(reach.replace("MEMBERS", members)), who, cluster="demo-claim").contract
    start = datetime.fromtimestamp(plan.first_ms / 1000, UTC)
    add_overlay(who, contract=contract, kind="entitlement", resource="sim-0001", starts_at=start)
    report = issue_report(contract, f"{start:%Y-%m}", who, now=timezone.now())  # after the last batch has come
    ids |= {"contract": contract.pk, "month": f"{start:%Y-%m}", "report": report.pk, "claim": Claim.objects.first().pk}
    ids["unmeasured"] = unmeasured.pk

    nodes = list(Node.objects.filter(cluster__name="demo").order_by("name"))
    slot = int(now.timestamp()) // 15
    made = []
    for number, node in enumerate(nodes):  # one fault of three nodes, two of them still in it
        part = {"subject": "g3", "first_slot": slot - 90 + number, "end_slot": slot, "bad_slots": 80, "lost": 8000,
                "weight": 0, "codes": {"GPU_MISSING": [slot - 90, slot - 1, 0]}, "settled": None}
        one = Incident.objects.create(
            node=node, cluster_id=node.cluster_id, scope="gpu", code="GPU_MISSING", party="infrastructure", weight=0,
            first_slot=slot - 90 + number, end_slot=slot, is_open=number > 0, lost_gpu_seconds=1200, parts=[part])
        IncidentNote.objects.create(incident=one, author="ada@alpha.example", text="Asked the provider.")
        made.append(one)
        tell_of_incident(one, "opened")
    while group_waiting():
        pass
    live = NodeLive.objects.get(node=nodes[1])
    for subject in live.summary["subjects"]:
        if subject["subject"] == "g3":
            subject.update(nominal=0, lower=0, upper=0, certain=["GPU_MISSING"], state="observed", conditions=[{
                "code": "GPU_MISSING", "party": "infrastructure", "since_ms": (slot - 90) * 15000, "weight": 0,
                "certain": True}])
    live.save(update_fields=["summary"])
    NodeLive.objects.filter(node__in=nodes).update(last_sample_at=now + timedelta(hours=2))
    real = Incident.objects.filter(part_of=None, nodes_together=1, cluster__name="demo-claim", scope="gpu").first()
    ids |= {"node": nodes[1].pk, "head": made[0].pk, "member": made[1].pk, "open_incident": made[1].pk,
            "incident": real.pk, "fault_node": real.node_id, "fault_gpu": int(real.parts[0]["subject"][1:]),
            "fault_at": f"{datetime.fromtimestamp(real.first_slot * 15, UTC):%Y-%m-%dT%H:%M:%SZ}"}

    actor = Actor("owner@local.example", org)
    compared = ask_for_comparison(actor, code="GPU_MISSING", changes={"weight": 50})
    last: int | None = 0
    while last is not None:
        last = work_on_comparison(compared.pk, last)
    ids |= {"comparison": compared.pk}
    more = {"least_severity": "info", "hold_seconds": 0}
    hook, _ = create_channel({"kind": "webhook", "name": "our hook", "url": "http://127.0.0.1:1/x", **more}, actor)
    mail, _ = create_channel({"kind": "email", "name": "on call", "recipients": ["ops@local.example"], **more}, actor)
    change_channel(mail.pk, {"is_enabled": False}, actor)
    send_test(hook.pk, actor)
    for channel in prepare(org):
        deliver_to(org, channel)
    ids |= {"channel": hook.pk, "off_channel": mail.pk}
print("IDS " + json.dumps(ids))
"""


@pytest.fixture(scope="session")
def ids(server: Any) -> dict[str, Any]:
    """The walk's data: bad days, a claim, a fault of several nodes, channels; and what the paths name of them."""
    for slug in ("walk", "walk-fresh", "walk-fifty"):
        server.manage("create_org", slug)
    seed = seed_of_bad_days()
    more = ("--cluster", "demo", "--seed", str(seed))
    server.manage("simulate", "--org", "walk", "--nodes", str(NODES), "--days", str(DAYS), *more)
    server.simulate("walk-fifty", nodes=50, minutes=3)
    printed = server.manage("shell", "-c", DATA)
    found: dict[str, Any] = json.loads(re.search(r"IDS (.*)", printed)[1])  # type: ignore[index]
    return found


def seed_of_bad_days() -> int:
    """The first seed with which `month_mixed` has three kinds of faults on these days."""
    from fleet.simulation import Plan, truth

    end = int(datetime.now(UTC).timestamp() * 1000) // 60_000 * 60_000
    for seed in range(1, 400):
        plan = Plan("demo", NODES, end - DAYS * 86_400_000, end, seed)
        if len({fault["kind"] for fault in truth(plan)}) >= 3:
            return seed
    raise AssertionError("no bad days")


@pytest.fixture(scope="package")
def sessions(server: Any, chromium: Any, ids: dict[str, Any]) -> dict[str, Any]:
    """Who looks → the cookies of somebody who is signed in."""
    flags = {"owner": ("--owner-of", "walk"), "provider": ("--provider",)}
    found: dict[str, Any] = {"nobody": None}
    for who, words in flags.items():
        email = f"walk-{who}@local.example"
        if who == "owner":
            for slug in ("walk-fresh", "walk-fifty"):
                server.manage("create_user", "--email", email, "--owner-of", slug)
        said = server.manage("create_user", "--email", email, "--base-url", server.url, *words)
        context = chromium.new_context()
        page = context.new_page()
        page.goto(re.search(r"link: (\S+)", said)[1])  # type: ignore[index]
        page.get_by_role("button", name="Enter").click()
        page.wait_for_load_state()
        found[who] = context.storage_state()
        context.close()
    return found
