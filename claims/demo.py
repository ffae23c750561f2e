"""A simulated claim, complete and labelled: the last hours of one simulated node's month, under sample terms.

Made in an org of its own inside one transaction that is rolled back: nothing stays.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.db import connection, transaction
from django.utils import timezone
from django_tenants.utils import tenant_context

from agent import wire
from claims.domain.contract_load import contract_from_toml
from claims.domain.periods import calendar_month
from claims.errors import PackError
from claims.models import Claim
from claims.pack import make_pack
from claims.services import Actor, add_contract, add_overlay
from claims.services_reports import issue_report
from fleet.agents.services import Wanted, enrol
from fleet.domain.slots import HOUR_MS
from fleet.folding import fold_waiting
from fleet.ingest import receive
from fleet.refolding import refold_dirty
from fleet.simulation import Plan, agent_id_of, truth, uploads
from orgs.keys import KeyInfo
from orgs.models import Org
from orgs.services import create_org

Progress = Callable[[int, int], None]
HOURS = 48
CHUNK = 300
TERMS = """
name = "Sample terms (simulated)"
version = "demo"
kind = "tiers"
counts = ["hardware_failure"]
scope = "node"
zone = "UTC"
pooling = "each"
ambiguous_counts = false
min_duration_s = 0
bridging_s = 0
minute_rule = "slots"
denominator = "existence"
exclusion_mode = "counted_as_up"
clock_start = "measured"
tiers = [["99.9", "10"], ["99", "30"], ["95", "100"]]
fee_charged = "480.00"
currency = "EUR"
cap = "none"
minimum = "none"
min_healthy = 8
provider = "Sample Cloud (simulated)"
customer = "Sample Research (simulated)"
filing_channel = "nowhere: this is a sample"
source = "none: sample terms, nobody owes this"
deadline = { count = 30, unit = "days", after = "period_end" }
units = [{ name = "sim-0001", members = [MEMBERS] }]
"""


def plan_for(now: datetime, hours: int = HOURS) -> Plan:
    """The last hours of the newest month that has been over for a day; a seed with a lost GPU in them.

    Less than a day has a fault of minutes, as the agent's scenario of that name; more has one of hours.
    """
    first = (now - timedelta(days=1, hours=1)).astimezone(UTC).replace(day=1)
    month = f"{first - timedelta(days=1):%Y-%m}"
    end_ms = calendar_month(month).end_ms
    scenario, after_ms = ("month_mixed", 2 * HOUR_MS) if hours >= 24 else ("xid79", HOUR_MS // 6)
    for seed in range(1, 400):
        plan = Plan("demo-claim", 1, end_ms - hours * HOUR_MS, end_ms, seed, scenario)
        faults = [one for one in truth(plan) if one["kind"] == "xid79"]
        inside = [one for one in faults if one["first_ms"] > plan.first_ms and one["end_ms"] < plan.end_ms - after_ms]
        if inside:
            return plan
    raise PackError("No seed has a lost GPU in these hours.")


def make_demo_pack(
    now: datetime, progress: Progress = lambda done, of: None, with_pdf: bool = False, hours: int = HOURS
) -> bytes:
    """The pack of a simulated claim about the last `hours` of a month."""
    connection.set_schema_to_public()  # type: ignore[attr-defined]
    try:
        with transaction.atomic():
            org = create_org(f"demo-claim-{secrets.token_hex(4)}", "Simulated sample")
            try:
                return _in(org, now, progress, with_pdf, hours)
            finally:
                transaction.set_rollback(True)
    finally:
        connection.set_schema_to_public()  # type: ignore[attr-defined]


def _in(org: Org, now: datetime, progress: Progress, with_pdf: bool, hours: int) -> bytes:
    plan = plan_for(now, hours)
    key = KeyInfo(0, "demo", frozenset({"ingest"}), "", None, org.pk, org.slug, org.schema_name)
    with tenant_context(org):
        sign = _enrolled(plan, key)
        for number, (body, sha256) in enumerate(uploads(plan)):
            receive(body, key, {wire.HEADER_SIGNATURE: sign(sha256)})
            if number % CHUNK == CHUNK - 1:
                fold_waiting(now)
                progress(number, plan.batches)
        while fold_waiting(now):
            pass
        while refold_dirty(now):
            pass
        actor = Actor("demo_claim", org)
        members = ", ".join(f'"sim-0001/gpu{index}"' for index in range(8))
        version = add_contract(contract_from_toml(TERMS.replace("MEMBERS", members)), actor)
        start = datetime.fromtimestamp(plan.first_ms / 1000, UTC)
        add_overlay(actor, contract=version.contract, kind="entitlement", resource="sim-0001", starts_at=start)
        month = f"{start:%Y-%m}"
        issue_report(version.contract, month, actor, now=max(now, timezone.now()))  # after the last batch has come
        claim = Claim.objects.first()
        if claim is None:
            raise PackError("The simulated month owes nothing.")
        return make_pack(claim, org, max(now, timezone.now()) + timedelta(hours=1), with_pdf)


def _enrolled(plan: Plan, key: KeyInfo) -> Callable[[str], str]:
    """Enrol a fresh key for the simulated node's agent; what signs its batches by their hash."""
    private = Ed25519PrivateKey.generate()
    (node,) = plan.names
    public = private.public_key().public_bytes_raw()
    enrol(Wanted(agent_id_of(plan, node), public, plan.cluster, node, None, "simulated"), key, None)

    def sign(sha256: str) -> str:
        return base64.b64encode(private.sign(wire.signed_message(bytes.fromhex(sha256)))).decode()

    return sign
