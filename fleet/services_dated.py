"""Writes of dated rows that the fold reads: expected hardware, assignments, probes.

Each use case is one transaction with its audit entry; a row is never changed but for its end and its withdrawal. What a
row says of hours that are folded already makes them dirty: they are folded again, sealed ones aside.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from fleet.dated import hour_at
from fleet.domain.slots import HOUR_MS
from fleet.models import Cluster, DatedStamp, DeviceAssignment, ExpectedHardware, Node, ProbeTarget
from fleet.models_dated import DatedRow
from fleet.probe import check_address
from fleet.services_incidents import Actor
from fleet.sql import execute
from orgs.services import record

MAX_REASON_CHARS = 500
MAX_GPUS = 4096
MAX_PORTS = 1024
MAX_PROBES = 500  # of an org
LAST_HOUR = 2**31 - 1
_DIRTY = """
with marked as (
update fleet_nodelive l set dirty_hour = least(l.dirty_hour, greatest(%(first)b::int, h.first)),
       dirty_through = greatest(l.dirty_through, least(%(last)b::int, h.last)), attempts = 0
  from (select n.node_id, h.first, h.last from fleet_nodelive n cross join lateral
          (select min(hour) as first, max(hour) as last from fleet_nodehour where node_id = n.node_id) h
         where (%(all)b::boolean or n.node_id = any(%(nodes)b::bigint[])) order by n.node_id for update of n) h
 where l.node_id = h.node_id and h.last >= %(first)b::int and h.first <= %(last)b::int
returning l.node_id, l.dirty_hour, l.dirty_through
), lost as (
select n.id, greatest(%(first)b::int, min(h.hour)), least(%(last)b::int, max(h.hour))
  from fleet_node n join fleet_nodehour h on h.node_id = n.id
 where (%(all)b::boolean or n.id = any(%(nodes)b::bigint[]))
   and not exists (select 1 from fleet_nodelive l where l.node_id = n.id)
 group by n.id having max(h.hour) >= %(first)b::int and min(h.hour) <= %(last)b::int
)
insert into fleet_dirtyspan (node_id, first_hour, last_hour) select * from marked union all select * from lost
on conflict (node_id) do update set first_hour = least(fleet_dirtyspan.first_hour, excluded.first_hour),
   last_hour = greatest(fleet_dirtyspan.last_hour, excluded.last_hour)
"""
_DIRTY_HOURS = """
with marked as (
update fleet_nodelive set dirty_hour = least(dirty_hour, %(first)b::int), attempts = 0,
       dirty_through = greatest(dirty_through, %(last)b::int) where node_id = any(%(nodes)b::bigint[])
)
insert into fleet_dirtyspan (node_id, first_hour, last_hour)
select unnest(%(nodes)b::bigint[]), %(first)b::int, %(last)b::int
on conflict (node_id) do update set first_hour = least(fleet_dirtyspan.first_hour, excluded.first_hour),
   last_hour = greatest(fleet_dirtyspan.last_hour, excluded.last_hour)
"""


class DatedInvalid(ValueError):
    """A dated row that can't be; `field` names what is wrong."""

    def __init__(self, field: str, detail: str):
        super().__init__(detail)
        self.field, self.detail = field, detail


def touch_stamp() -> None:
    """Tell every process that dated rows changed, from the end of this transaction on."""
    DatedStamp.objects.update_or_create(pk=1, defaults={"value": secrets.randbits(62)})


def mark_dirty(node_ids: Collection[int] | None, from_at: datetime, until_at: datetime | None = None) -> None:
    """Have the hours of `[from_at, until_at)` of these nodes (None: all) that are folded already folded again."""
    first = max(0, hour_at(from_at))
    last = LAST_HOUR if until_at is None else (round(until_at.timestamp() * 1000) - 1) // HOUR_MS
    values = {"first": min(first, LAST_HOUR), "last": max(0, last), "all": node_ids is None}
    execute(_DIRTY, {**values, "nodes": sorted(node_ids or ())})


def mark_dirty_hours(node_ids: Collection[int], first_hour: int, last_hour: int) -> None:
    """Have these hours of nodes folded, whether or not they have rows."""
    execute(_DIRTY_HOURS, {"first": first_hour, "last": last_hour, "nodes": sorted(node_ids)})


def check_reason(reason: str, *, is_needed: bool = True) -> str:
    """The reason of a row, stripped. Raises DatedInvalid for none where one is needed, or one that is too long."""
    text = reason.strip()
    if (is_needed and not text) or len(text) > MAX_REASON_CHARS or "\x00" in text:
        raise DatedInvalid("reason", f"Say why, in 1 to {MAX_REASON_CHARS} characters.")
    return text


def check_span(from_at: Any, until_at: Any = None) -> None:
    """Raise DatedInvalid unless these are instants with a zone in this order."""
    for name, at in (("from_at", from_at), ("until_at", until_at)):
        if (at is not None or name == "from_at") and (not isinstance(at, datetime) or at.tzinfo is None):
            raise DatedInvalid(name, "An instant with its offset.")
        if at is not None and not 1990 <= at.year <= 2200:
            raise DatedInvalid(name, "An instant between 1990 and 2200.")
    if until_at is not None and until_at <= from_at:
        raise DatedInvalid("until_at", "The end lies after the beginning.")


def expect_hardware(
    node: Node,
    actor: Actor,
    *,
    gpus: int | None,
    from_at: datetime,
    until_at: datetime | None = None,
    devices: Sequence[str] = (),
    ports: Sequence[dict[str, Any]] | None = None,
    owns_driver: bool = False,
    owns_fabric: bool = False,
    reason: str = "",
) -> ExpectedHardware:
    """Declare what a node should have. Raises DatedInvalid."""
    check_span(from_at, until_at)
    if gpus is not None and (isinstance(gpus, bool) or not isinstance(gpus, int) or not 0 <= gpus <= MAX_GPUS):
        raise DatedInvalid("gpus", f"A number of GPUs, 0 to {MAX_GPUS}, or nothing: as learned.")
    named = [str(one).strip() for one in devices if str(one).strip()]
    if len(set(named)) != len(named) or any(len(one) > 256 or not one.isprintable() for one in named):
        raise DatedInvalid("devices", "UUIDs or bus ids, each once.")
    if gpus is not None and len(named) > gpus:
        raise DatedInvalid("devices", f"{len(named)} devices are named and {gpus} GPUs expected.")
    with transaction.atomic():
        row = ExpectedHardware.objects.create(
            node=node,
            gpus=gpus,
            devices=named,
            ports=None if ports is None else _ports(ports, gpus),
            owns_driver=owns_driver,
            owns_fabric=owns_fabric,
            from_at=from_at,
            until_at=until_at,
            author=actor.name[:254],
            reason=check_reason(reason, is_needed=False),
        )
        after = {"id": row.pk, "gpus": gpus, "ports": None if ports is None else len(ports)}
        _written("hardware.expected", node, actor, {**after, "from": from_at.isoformat()})
        mark_dirty([node.pk], from_at, until_at)
    return row


def expect_cluster(cluster: Cluster, actor: Actor, *, gpus: int, from_at: datetime, reason: str = "") -> int:
    """Declare one number of GPUs for every node of a cluster; how many nodes. Raises DatedInvalid.

    What a node's own declaration says of ports, devices, driver and fabric goes on in the new row.
    """
    check_span(from_at)
    if isinstance(gpus, bool) or not isinstance(gpus, int) or not 0 <= gpus <= MAX_GPUS:
        raise DatedInvalid("gpus", f"A number of GPUs, 0 to {MAX_GPUS}.")
    why = check_reason(reason, is_needed=False)
    with transaction.atomic():
        nodes = list(
            Node.objects.filter(cluster=cluster, merged_into=None, retired_at=None).values_list("pk", flat=True)
        )
        old = {row.node_id: row for row in ExpectedHardware.objects.filter(node_id__in=nodes, withdrawn_at=None)}
        rows = []
        for pk in nodes:
            kept = old.get(pk) or ExpectedHardware(ports=None)
            devices = kept.devices if len(kept.devices) <= gpus else []
            names = {"ports": kept.ports, "owns_driver": kept.owns_driver, "owns_fabric": kept.owns_fabric}
            one = {"node_id": pk, "gpus": gpus, "devices": devices, "from_at": from_at, "author": actor.name[:254]}
            rows.append(ExpectedHardware(**one, **names, reason=why))
        ExpectedHardware.objects.bulk_create(rows)
        touch_stamp()
        after = {"gpus": gpus, "nodes": len(nodes), "from": from_at.isoformat()}
        target = {"target": cluster.name, "after": after, "address": actor.address}
        record("hardware.expected_of_cluster", actor=actor.name, org=actor.org, **target)  # type: ignore[arg-type]
        if nodes:
            mark_dirty(nodes, from_at)
    return len(nodes)


def _ports(ports: Sequence[dict[str, Any]], gpus: int | None) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for port in ports:
        key, gpu, rate = str(port.get("key", "")).strip(), port.get("gpu"), port.get("rate_gbps")
        if not key or len(key) > 256 or not key.isprintable():
            raise DatedInvalid("ports", "Each port has a key: its GUID’s hash, or device/number.")
        if gpu is not None and (not isinstance(gpu, int) or not 0 <= gpu < (MAX_GPUS if gpus is None else gpus)):
            raise DatedInvalid("ports", f"{key}: its GPU is the index of a place.")
        if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < 1e6):
            raise DatedInvalid("ports", f"{key}: a rate in Gbit/s.")
        out.append({"key": key, "gpu": gpu, "rate_gbps": rate})
    if len({port["key"] for port in out}) != len(out) or len(out) > MAX_PORTS:
        raise DatedInvalid("ports", f"At most {MAX_PORTS} ports, each once.")
    return out


def assign_device(node: Node, actor: Actor, *, place: int, device: str, at: datetime, reason: str) -> DeviceAssignment:
    """Say that a healthy device was given to a place at an instant, on whatever machine: what was held ends there.

    Raises DatedInvalid.
    """
    check_span(at)
    if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < MAX_GPUS:
        raise DatedInvalid("place", "The index of a GPU's place.")
    if not device.strip() or len(device) > 256 or not device.isprintable():
        raise DatedInvalid("device", "The UUID of the device.")
    with transaction.atomic():
        row = DeviceAssignment.objects.create(
            node=node, place=place, device=device.strip(), at=at, author=actor.name[:254], reason=check_reason(reason)
        )
        after = {"id": row.pk, "place": place, "device": row.device, "at": at.isoformat()}
        _written("device.assigned", node, actor, after)
        mark_dirty([node.pk], at)
    return row


def add_probe(node: Node, actor: Actor, *, kind: str, address: str, port: int | None, reason: str = "") -> ProbeTarget:
    """Look from now on whether a node can be reached there. Raises DatedInvalid, also where the server forbids it."""
    if kind not in ProbeTarget.Kind.values:
        raise DatedInvalid("kind", "tcp or icmp.")
    if kind == ProbeTarget.Kind.TCP and (isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536):
        raise DatedInvalid("port", "A TCP port, 1 to 65535.")
    problem = check_address(address)
    if problem:
        raise DatedInvalid("address", problem)
    with transaction.atomic():
        DatedStamp.objects.select_for_update().first()  # two at once must not pass the bound together
        if ProbeTarget.objects.filter(withdrawn_at=None, until_at=None).count() >= MAX_PROBES:
            raise DatedInvalid("address", f"At most {MAX_PROBES} probes.")
        row = ProbeTarget.objects.create(
            node=node,
            kind=kind,
            address=address.strip(),
            port=port if kind == ProbeTarget.Kind.TCP else None,
            author=actor.name[:254],
            reason=check_reason(reason, is_needed=False),
        )
        _written("probe.added", node, actor, {"id": row.pk, "target": str(row)})
    return row


def end_probe(row: ProbeTarget, actor: Actor) -> bool:
    """Stop looking; what was seen stays. False if it had ended."""
    with transaction.atomic():
        done = ProbeTarget.objects.filter(pk=row.pk, until_at=None).update(until_at=timezone.now())
        if done:
            _written("probe.ended", row.node, actor, {"id": row.pk, "target": str(row)})
            mark_dirty([row.node_id], timezone.now() - timedelta(hours=1))  # its last failures settle with this
    return bool(done)


def end_expected(row: ExpectedHardware, until_at: datetime, actor: Actor) -> bool:
    """Set the end of a declaration that has none. False if it has one. Raises DatedInvalid."""
    check_span(row.from_at, until_at)
    with transaction.atomic():
        done = ExpectedHardware.objects.filter(pk=row.pk, until_at=None, withdrawn_at=None).update(until_at=until_at)
        if done:
            _written("hardware.ended", row.node, actor, {"id": row.pk, "until": until_at.isoformat()})
            mark_dirty([row.node_id], until_at)
    return bool(done)


def withdraw(row: ExpectedHardware | DeviceAssignment, actor: Actor) -> bool:
    """Take a row back, as if it had never been. False if somebody did before."""
    with transaction.atomic():
        if not set_withdrawn(row, actor):
            return False
        is_hardware = isinstance(row, ExpectedHardware)
        _written("hardware.withdrawn" if is_hardware else "device.withdrawn", row.node, actor, {"id": row.pk})
        if isinstance(row, ExpectedHardware):
            mark_dirty([row.node_id], row.from_at, row.until_at)
        else:
            mark_dirty([row.node_id], row.at)
    return True


def set_withdrawn(row: DatedRow, actor: Actor) -> bool:
    """Mark one row as withdrawn. False if it was."""
    rows = type(row)._default_manager.filter(pk=row.pk, withdrawn_at=None)
    return bool(rows.update(withdrawn_at=timezone.now(), withdrawn_by=actor.name[:254]))


def _written(action: str, node: Node, actor: Actor, after: dict[str, Any]) -> None:
    """The audit entry of a change of a node's rows, and the new stamp."""
    touch_stamp()
    record(action, actor=actor.name, org=actor.org, target=node.name, after=after, address=actor.address)
