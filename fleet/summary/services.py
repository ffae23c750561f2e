"""What is written for the provider: summary rows, a new customer, retries, deletion."""

from __future__ import annotations

import secrets
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone
from django_tenants.utils import schema_context, tenant_context

from fleet import waiting
from fleet.partitions import ensure_partitions
from fleet.selectors_incidents import open_parties
from fleet.selectors_live import WORDS, is_silent, read_summary, to_ms
from fleet.selectors_reviews import recent_reviews
from fleet.summary.models import Export, OrgSummary
from fleet.summary.selectors import queues
from orgs import invitations
from orgs.errors import OrgInvalid
from orgs.models import ApiKey, Invitation, Membership, Org
from orgs.selectors import keys_expiring
from orgs.services import create_org, delete_org, issue_key, record

MOST_CODES = 10  # of those that ask for a look, kept for the console

_LIVE = """
select l.summary, l.last_sample_at, l.last_received_at, coalesce(l.dropped_total, 0), n.cluster_id
  from fleet_node n join fleet_cluster c on c.id = n.cluster_id and c.removed_at is null
  left join fleet_nodelive l on l.node_id = n.id
"""


def write_summary(org: Org, now: datetime) -> OrgSummary:
    """Write the row of the org that is open now, from its live states and its queue."""
    with connection.cursor() as cursor:
        cursor.execute(_LIVE)
        nodes = cursor.fetchall()
    counts = dict.fromkeys(WORDS, 0)
    silent = gpus = 0
    for summary, last_sample_at, *_ in nodes:
        live = read_summary(summary or "{}", is_silent(to_ms(last_sample_at) if last_sample_at else None, to_ms(now)))
        silent += live.is_silent
        gpus += len(live.gpus)
        for word in WORDS:
            counts[word] += live.count(word)
    queue, asking = queues([org])[0], recent_reviews(now)
    values = {
        "as_of": now,
        "clusters": len({row[4] for row in nodes}),
        "nodes": len(nodes),
        "gpus": gpus,
        **counts,
        "open_incidents": len(open_parties(None)),
        "agents_silent": silent,
        "reviews": sum(one.subjects for one in asking),
        "review_codes": [asdict(one) for one in asking[:MOST_CODES]],
        "last_received_at": max((row[2] for row in nodes if row[2]), default=None),
        "waiting_batches": queue.waiting,
        "oldest_unfolded_seconds": queue.oldest_seconds,
        "failed_batches": queue.failed,
        "dropped_total": sum(row[3] for row in nodes),
        "keys_expiring": keys_expiring(org, now),
    }
    return OrgSummary.objects.update_or_create(org_id=org.pk, defaults=values)[0]


def set_exposure(org_id: int, exposure: dict[str, str], now: datetime) -> None:
    """Keep an org's credits at stake this month (currency → amount as text), as claims computes them."""
    OrgSummary.objects.update_or_create(
        org_id=org_id, defaults={"exposure": exposure}, create_defaults={"exposure": exposure, "as_of": now}
    )


def create_customer(
    slug: str, name: str, email: str, *, cluster: str, actor: str, address: str | None, base_url: str
) -> tuple[Org, ApiKey, str, Invitation]:
    """(org, its first ingest key, that key's token, the invitation of its first owner): all of them, or nothing.

    Raises OrgInvalid → 422 as the parts do.
    """
    told: dict[str, Any] = {"actor": actor, "address": address}
    with schema_context("public"), transaction.atomic():
        org = create_org(slug, name, **told)
        key, token = issue_key(org, f"first key of {slug}"[:120], [ApiKey.Scope.INGEST], cluster=cluster, **told)
        invitation = invitations.invite(org, email, Membership.Role.OWNER, base_url=base_url, **told)
        ensure_partitions(org.schema_name, timezone.now())
    return org, key, token, invitation


def retry_failed(org: Org, *, actor: str, address: str | None = None) -> int:
    """Let the fold try again what it set aside; the number of batches and of nodes' re-folds."""
    with transaction.atomic():
        with tenant_context(org):
            count = waiting.retry_failed()
        record("batches.retried", actor=actor, org=org, target=org.slug, after={"batches": count}, address=address)
    return count


def request_export(org: Org, *, actor: str, address: str | None = None) -> Export:
    """An export that waits for a worker."""
    with schema_context("public"), transaction.atomic():
        export = Export.objects.create(
            org_id=org.pk, org_slug=org.slug, requested_by=actor, file_name=f"{secrets.token_hex(16)}.zip"
        )
        record("org.exported", actor=actor, org=org, target=org.slug, address=address)
    return export


def export_folder() -> Path:
    """Where archives lie; readable by this system's user only."""
    folder = Path(settings.GOODPUT_VAR) / "exports"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def clear_exports(now: datetime) -> int:
    """Give up exports that a worker left behind, remove archives after a week; the number removed."""
    running = Export.objects.filter(state=Export.State.RUNNING, started_at__lt=now - Export.PATIENCE)
    running.update(state=Export.State.FAILED, finished_at=now, error="The worker ended before it was done.")
    old = list(Export.objects.filter(requested_at__lt=now - Export.LIVES))
    for export in old:
        (export_folder() / export.file_name).unlink(missing_ok=True)
        export.delete()
    return len(old)


def delete_customer(org: Org, typed: str, *, actor: str, address: str | None = None) -> None:
    """Delete a suspended org with its schema, for good, after its slug was typed. Raises OrgInvalid → 422.

    Its keys and memberships go with it, exports stay for a week, a tombstone stays for ever.
    """
    if typed != org.slug:
        raise OrgInvalid(f"Type {org.slug} to delete it.", "not_confirmed")
    with schema_context("public"), transaction.atomic():
        locked = Org.objects.select_for_update().get(pk=org.pk)
        if locked.status != Org.Status.SUSPENDED:
            raise OrgInvalid(
                "Suspend the org first: agents and people are then told before anything is gone.", "active"
            )
        revoked = ApiKey.objects.filter(org=locked, revoked_at=None).update(revoked_at=timezone.now())
        record("org.keys_revoked", actor=actor, org=locked, target=org.slug, after={"keys": revoked}, address=address)
        OrgSummary.objects.filter(org_id=org.pk).delete()
        delete_org(locked, actor=actor, address=address)
