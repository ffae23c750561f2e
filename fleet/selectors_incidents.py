"""Reads of incidents for pages: the list with its filters, each with its hardware as it was when the fault began."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Exists, OuterRef, Q, QuerySet, Sum

from fleet.domain.slots import SLOT_MS, hour_of_slot, slot_of
from fleet.models import Incident, NodeLive
from fleet.node_events import devices_at
from fleet.selectors_live import action_of, reason_of, title_of, to_ms

ON_PAGE = 50
MOST_IN_DOWNLOAD = 10_000
STATES = ("open", "resolved", "all")
PARTIES = ("infrastructure", "ambiguous")
MOST_DAYS = 400
DAY_SLOTS = 5760


@dataclass(frozen=True)
class Wanted:
    """What of the incidents is asked for; `first_slot` and `end_slot` take what overlaps. `page` None = all."""

    state: str = "all"
    party: str = ""
    cluster: str = ""
    node: str = ""
    code: str = ""
    first_slot: int | None = None
    end_slot: int | None = None
    page: int | None = 1

    @property
    def is_narrow(self) -> bool:
        """Whether it leaves anything out besides by paging."""
        return bool(self.state != "all" or self.party or self.cluster or self.node or self.code or self.first_slot)


@dataclass(frozen=True)
class Affected:
    """A part of the hardware that an incident touched: `index` None for what is no GPU; `device` is its UUID."""

    subject: str
    kind: str
    index: int | None
    device: str
    bus_id: str

    @property
    def label(self) -> str:
        """`GPU 3`, `port …`, `the node`."""
        if self.kind == "gpu":
            return f"GPU {self.index}"
        return f"port {self.device}" if self.kind == "port" else "the node"

    @property
    def short(self) -> str:
        """Enough of the UUID to tell GPUs of an org apart."""
        return self.device.removeprefix("GPU-")[:8] if self.kind == "gpu" else ""


@dataclass(frozen=True)
class IncidentLine:
    """An incident as pages and downloads show it; instants in ms, `lost_ws` weight × GPU-seconds.

    `members` are the other nodes' incidents of a cluster-wide one: state, extent and loss are those of all together.
    """

    row: Incident
    affected: tuple[Affected, ...]
    also: tuple[str, ...]
    as_of_ms: int
    members: tuple[Incident, ...] = ()

    @property
    def rows(self) -> tuple[Incident, ...]:
        """Everything that it is made of."""
        return (self.row, *self.members)

    @property
    def scope(self) -> str:
        """`gpu`, `port`, `node` or `cluster`."""
        return "cluster" if self.members else self.row.scope

    @property
    def is_open(self) -> bool:
        """Whether it goes on on any node."""
        return any(one.is_open for one in self.rows)

    @property
    def weight(self) -> int:
        """The least nominal weight anywhere in it."""
        return min(one.weight for one in self.rows)

    @property
    def lost_gpu_seconds(self) -> int:
        """GPU-seconds lost on all its nodes."""
        return sum(one.lost_gpu_seconds for one in self.rows)

    @property
    def title(self) -> str:
        """The reason that leads, in words."""
        return title_of(self.row.code)

    @property
    def where(self) -> str:
        """`GPU 6 of gpu-017`, `GPU 0, 1 of …`, `8 GPUs of …`, the node alone, or `3 nodes of …`."""
        if self.members:
            return f"{self.row.nodes_together} nodes of {self.row.cluster.name}"
        gpus = [one.index for one in self.affected if one.kind == "gpu"]
        ports = [one for one in self.affected if one.kind == "port"]
        name = self.row.node.name
        if gpus and len(gpus) <= 4:
            return f"GPU {', '.join(str(index) for index in gpus)} of {name}"
        if gpus:
            return f"{len(gpus)} GPUs of {name}"
        if ports:
            return f"{len(ports)} port{'s' if len(ports) > 1 else ''} of {name}"
        return name

    @property
    def explanation(self) -> str:
        """What the leading reason means."""
        reason = reason_of(self.row.code)
        return reason.explanation if reason else "No rule knows this code; it lowers nothing."

    @property
    def action(self) -> str:
        """The next step."""
        return action_of(self.row.code)

    @property
    def word(self) -> str:
        """down, degraded or (nothing lowered yet) possible."""
        weight = self.weight
        return "down" if weight == 0 else "degraded" if weight < 100 else "possible"

    @property
    def css(self) -> str:
        """The glyph's class."""
        return "mark" if self.word == "possible" else self.word

    @property
    def since_ms(self) -> int:
        """Beginning of the first bad slot."""
        return min(one.first_slot for one in self.rows) * SLOT_MS

    @property
    def end_ms(self) -> int | None:
        """End of the last bad slot; None while it is open."""
        return None if self.is_open else max(one.end_slot for one in self.rows) * SLOT_MS

    @property
    def lasted_s(self) -> float:
        """Seconds from its beginning to its end, or to now."""
        return ((self.end_ms or self.as_of_ms) - self.since_ms) / 1000

    @property
    def lost_ws(self) -> int:
        """Weight × GPU-seconds lost."""
        return 100 * self.lost_gpu_seconds


@dataclass(frozen=True)
class IncidentPage:
    """One page of the list. `open_count` and `parties` are of everything that the asker may see and that is open."""

    as_of_ms: int
    wanted: Wanted
    lines: tuple[IncidentLine, ...]
    matching: int
    page: int
    pages: int
    open_count: int
    parties: tuple[tuple[str, int], ...]
    clusters: tuple[str, ...]
    lost_ws: int


def visible_incidents(within: Collection[str] | None) -> QuerySet[Incident]:
    """The incidents of the clusters that somebody may see (nothing: of all), with node and cluster."""
    return _visible(Incident.objects.select_related("node", "cluster"), within)


def _visible(found: QuerySet[Incident], within: Collection[str] | None) -> QuerySet[Incident]:
    found = found.filter(cluster__removed_at=None)
    return found.filter(cluster__name__in=within) if within else found


def open_faults() -> QuerySet[Incident]:
    """One row of each fault that goes on: a cluster-wide one counts once, and is open while it is on any node."""
    still_open = Incident.objects.filter(is_open=True, withdrawn_at=None)
    earlier = Q(pk=OuterRef("part_of")) | Q(part_of=OuterRef("part_of"), pk__lt=OuterRef("pk"))
    return still_open.filter(~Exists(still_open.filter(earlier)))


def open_parties(within: Collection[str] | None) -> list[str]:
    """The party of each open incident of the clusters that somebody may see (nothing: of all)."""
    return list(_visible(open_faults(), within).values_list("party", flat=True))


def open_parties_of_cluster() -> ArraySubquery:
    """The party of each open incident, as an annotation of a cluster: a page counts them without another query."""
    return ArraySubquery(open_faults().filter(cluster=OuterRef("pk")).values("party"))


def per_party(parties: Collection[str]) -> tuple[tuple[str, int], ...]:
    """(party, how many) of what is there, in the order of PARTIES."""
    return tuple((party, count) for party in PARTIES if (count := sum(one == party for one in parties)))


def list_page(now: datetime, wanted: Wanted, within: Collection[str] | None) -> IncidentPage:
    """Open ones first, then the newest. A withdrawn one stands among the resolved: somebody wrote about it.

    A cluster-wide incident is one line; who asks for a node gets that node's own.
    """
    everything = visible_incidents(within)
    goes_on = Exists(Incident.objects.filter(part_of=OuterRef("pk"), is_open=True, withdrawn_at=None))
    found = _filtered(everything.annotate(goes_on=Q(is_open=True) | goes_on), wanted)
    if not wanted.node:
        found = found.filter(part_of=None)
    matching = found.count()
    pages = max(1, -(-matching // ON_PAGE))
    page = min(max(1, wanted.page or 1), pages)
    ordered = found.order_by("-goes_on", "-first_slot", "-pk")
    rows = ordered[:MOST_IN_DOWNLOAD] if wanted.page is None else ordered[(page - 1) * ON_PAGE : page * ON_PAGE]
    parties = open_parties(within)
    lost = found.aggregate(lost=Sum("lost_gpu_seconds"))["lost"] or 0
    if not wanted.node:
        members = Incident.objects.filter(part_of__in=found.values("pk"), withdrawn_at=None)
        lost += members.aggregate(lost=Sum("lost_gpu_seconds"))["lost"] or 0
    return IncidentPage(
        as_of_ms=to_ms(now),
        wanted=wanted,
        lines=lines_of(now, rows, whole=not wanted.node),
        matching=matching,
        page=page,
        pages=pages,
        open_count=len(parties),
        parties=per_party(parties),
        clusters=tuple(sorted(set(everything.values_list("cluster__name", flat=True)))),
        lost_ws=100 * lost,
    )


def of_node(now: datetime, node_id: int, first_slot: int) -> tuple[IncidentLine, ...]:
    """A node's incidents that reach into the time from `first_slot` on, open ones first."""
    found = Incident.objects.select_related("node", "cluster").filter(node_id=node_id, withdrawn_at=None)
    found = found.filter(Q(end_slot__gt=first_slot) | Q(is_open=True))
    return lines_of(now, found.order_by("-is_open", "-first_slot")[:ON_PAGE], whole=False)


def _filtered(found: Any, wanted: Wanted) -> Any:
    if wanted.state == "open":
        found = found.filter(goes_on=True, withdrawn_at=None)
    elif wanted.state == "resolved":
        found = found.filter(goes_on=False)
    for name, value in (("party", wanted.party), ("node__name", wanted.node), ("cluster__name", wanted.cluster)):
        if value:
            found = found.filter(**{name: value})
    if wanted.code:  # any reason in it, not only the one that leads
        found = found.filter(Q(code=wanted.code) | Q(parts__contains=[{"codes": {wanted.code: []}}]))
    if wanted.first_slot is not None:
        found = found.filter(Q(end_slot__gt=wanted.first_slot) | Q(goes_on=True))
    if wanted.end_slot is not None:
        found = found.filter(first_slot__lt=wanted.end_slot)
    return found


def lines_of(now: datetime, rows: Iterable[Incident], *, whole: bool = True) -> tuple[IncidentLine, ...]:
    """Incidents with their hardware, as it sat there in the hour in which the fault began.

    `whole`: a cluster-wide one with the shares of its other nodes; else each is its own node's.
    """
    incidents = list(rows)
    members = _members_of([one.pk for one in incidents if whole and one.nodes_together > 1])
    then = devices_at((one.node_id, hour_of_slot(one.first_slot)) for one in incidents)
    missing = {one.node_id for one in incidents if (one.node_id, hour_of_slot(one.first_slot)) not in then}
    today = _devices_now(missing)
    out = []
    for one in incidents:
        devices = then.get((one.node_id, hour_of_slot(one.first_slot))) or today.get(one.node_id, {})
        affected = tuple(sorted((affected_of(part, devices) for part in one.parts), key=_order))
        codes = {code for part in one.parts for code in part["codes"]} - {one.code}
        titles = sorted({title_of(code) for code in codes})  # one that only says more than another is left out
        also = tuple(title for title in titles if not title.startswith(tuple(f"{other}," for other in titles)))
        out.append(IncidentLine(one, affected, also, to_ms(now), tuple(members.get(one.pk, ()))))
    return tuple(out)


def _members_of(heads: Collection[int]) -> dict[int, list[Incident]]:
    """Head → the other incidents of its fault, in order of time."""
    found: dict[int, list[Incident]] = {}
    if heads:
        rows = Incident.objects.select_related("node", "cluster").filter(part_of__in=heads, withdrawn_at=None)
        for one in rows.order_by("first_slot", "pk"):
            found.setdefault(one.part_of_id or 0, []).append(one)
    return found


def affected_of(part: Mapping[str, Any], devices: Mapping[str, tuple[str, str]]) -> Affected:
    """What a part of an incident touched."""
    subject = part["subject"]
    device, bus_id = devices.get(subject, ("", ""))
    if subject.startswith("g"):
        return Affected(subject, "gpu", int(subject[1:]), device, bus_id)
    if subject.startswith("p:"):
        return Affected(subject, "port", None, subject[2:], "")
    return Affected(subject, "node", None, "", "")


def _order(one: Affected) -> tuple[bool, int, str]:
    return one.kind != "gpu", one.index or 0, one.subject


def _devices_now(node_ids: Collection[int]) -> dict[int, dict[str, tuple[str, str]]]:
    """node → subject → (UUID, bus id) as they are now."""
    if not node_ids:
        return {}
    found = NodeLive.objects.filter(node_id__in=node_ids).values_list("node_id", "summary")
    return {
        node_id: {s["subject"]: (s.get("device", ""), s.get("bus_id", "")) for s in summary.get("subjects", ())}
        for node_id, summary in found
    }


def day_slots(day: datetime) -> tuple[int, int]:
    """The slots of a UTC day, half-open."""
    first = slot_of(to_ms(day))
    return first, first + DAY_SLOTS
