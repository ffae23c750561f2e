"""Writes of enrolment: an installation brings its key, a person accepts or revokes one. Audited like keys."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django_tenants.utils import schema_context

from agent.wire import fingerprint
from fleet.agents.errors import EnrolmentRefused
from fleet.agents.models import AgentKey
from fleet.sql import execute
from orgs.keys import KeyInfo
from orgs.models import ApiKey, Org
from orgs.services import MAX_NAME_CHARS, issue_key, record, revoke_key

MOST_KEYS = 200_000  # of an org: a leaked token must not fill the disk


@dataclass(frozen=True)
class Wanted:
    """What an installation says of itself; the signature was checked."""

    agent_id: str
    public_key: bytes
    cluster: str
    node: str
    hw_id: str | None
    agent_version: str


@dataclass(frozen=True)
class Enrolled:
    """The key's row and, with a token that may only enrol, the node's own ingest token: shown once."""

    row: AgentKey
    token: str | None
    is_new: bool


def enrol(wanted: Wanted, key: KeyInfo, address: str | None) -> Enrolled:
    """Enrol an installation's key in the current org; the same key again changes nothing but what it says of itself.

    With a token that may only enrol the node gets an ingest key of its own, in place of the one it had.
    Raises EnrolmentRefused → 403 `agent_waiting`, `agent_revoked` (no own key then), 409 `too_many_agents`.
    """
    org = Org.objects.get(pk=key.org_id)
    is_bootstrap = "ingest" not in key.scopes
    with transaction.atomic():
        with connection.cursor() as cursor:  # two first keys of one identity at once: one of them waits
            cursor.execute(
                "select pg_advisory_xact_lock(hashtextextended(current_schema() || %s, 7))", [wanted.agent_id]
            )
        row, is_new = _row(wanted, key, is_bootstrap, address)
        if is_new:
            record("agent.enrolled", actor=_actor(key), org=org, target=_target(row), after=_said(row), address=address)
        token = None
        if is_bootstrap and row.state == AgentKey.State.ACTIVE:
            token = _own_key(org, row, key, address)
    if is_bootstrap and row.state == AgentKey.State.WAITING:
        raise EnrolmentRefused(
            "Another key is enrolled for this installation. An admin must accept this one under Settings, Agents.",
            "agent_waiting",
        )
    if is_bootstrap and row.state == AgentKey.State.REVOKED:
        raise EnrolmentRefused("This installation's key was revoked.", "agent_revoked")
    return Enrolled(row, token, is_new)


def _row(wanted: Wanted, key: KeyInfo, is_bootstrap: bool, address: str | None) -> tuple[AgentKey, bool]:
    known = {bytes(row.public_key): row for row in AgentKey.objects.filter(agent_id=wanted.agent_id)}
    row = known.get(wanted.public_key)
    said = {
        "cluster": wanted.cluster,
        "node": wanted.node,
        "hw_id": wanted.hw_id,
        "agent_version": wanted.agent_version,
    }
    if row is not None:
        if any(getattr(row, name) != value for name, value in said.items()):
            AgentKey.objects.filter(pk=row.pk).update(**said)
            row.refresh_from_db()
        return row, False
    if AgentKey.objects.count() >= MOST_KEYS:
        raise EnrolmentRefused(f"An org has at most {MOST_KEYS} enrolled keys.", "too_many_agents", 409)
    row = AgentKey.objects.create(
        agent_id=wanted.agent_id,
        public_key=wanted.public_key,
        state=AgentKey.State.WAITING if known else AgentKey.State.ACTIVE,
        enrolled_with=key.prefix,
        is_bootstrap=is_bootstrap,
        address=address,
        enrolled_at=database_now(),
        **said,
    )
    return row, True


def database_now() -> datetime:
    """The instant by the clock, and in the units, by which batches are received."""
    ((now,),) = execute("select date_trunc('milliseconds', clock_timestamp())", [])
    assert isinstance(now, datetime)
    return now


def _own_key(org: Org, row: AgentKey, key: KeyInfo, address: str | None) -> str:
    """A fresh ingest token for the node; the keys that this installation had before on this node end."""
    mine = AgentKey.objects.filter(public_key=row.public_key, node=row.node, ingest_key_id__isnull=False)
    before = [found for found in mine.values_list("ingest_key_id", flat=True) if found is not None]
    _revoke_keys(org, before, _actor(key), address)
    made, token = issue_key(
        org,
        f"node {row.node}"[:MAX_NAME_CHARS],
        [ApiKey.Scope.INGEST],
        actor=_actor(key),
        cluster=row.cluster,
        node=row.node,
        address=address,
    )
    mine.update(ingest_key_id=None)
    AgentKey.objects.filter(pk=row.pk).update(ingest_key_id=made.pk, is_bootstrap=True)
    return token


def _revoke_keys(org: Org, ids: list[int], actor: str, address: str | None) -> None:
    with schema_context("public"):
        found = list(ApiKey.objects.select_related("org").filter(org=org, pk__in=ids))
    for key in found:
        revoke_key(key, actor=actor, address=address)


def revoke(row: AgentKey, org: Org, *, actor: str, address: str | None = None) -> None:
    """End a key: what comes from now on is marked, and the node's own ingest key stops within 30 seconds."""
    _change(row, org, AgentKey.State.REVOKED, "agent.revoked", actor, address)


def accept(row: AgentKey, org: Org, *, actor: str, address: str | None = None) -> None:
    """Take a waiting or revoked key as one of this installation."""
    _change(row, org, AgentKey.State.ACTIVE, "agent.accepted", actor, address)


def _change(row: AgentKey, org: Org, state: str, action: str, actor: str, address: str | None) -> None:
    with transaction.atomic():
        # Not beside a fold: it would judge what comes after this instant by the key as it still was.
        execute("select pg_advisory_xact_lock(hashtext(current_schema() || '.agent_keys'))", [])
        now = AgentKey.objects.select_for_update().get(pk=row.pk)
        if now.state == state:
            return
        before = now.state
        AgentKey.objects.filter(pk=row.pk).update(
            state=state, changed_at=database_now(), changed_by=actor, ingest_key_id=None
        )
        record(
            action, actor=actor, org=org, target=_target(now), before={"state": before}, after={"state": state},
            address=address,
        )  # fmt: skip
        if now.ingest_key_id is not None:
            _revoke_keys(org, [now.ingest_key_id], actor, address)


def _actor(key: KeyInfo) -> str:
    return f"key {key.prefix}"


def _target(row: AgentKey) -> str:
    return f"{row.node} ({row.agent_id[:12]})"


def _said(row: AgentKey) -> dict[str, Any]:
    return {"key": fingerprint(bytes(row.public_key)), "state": row.state, "cluster": row.cluster, "node": row.node}
