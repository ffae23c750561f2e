"""Everything that reads the fleet for a page or the API: clusters, nodes, GPUs, their sums of a period, what is wrong.

One reading (`get_fleet`) feeds the page, its CSV and JSON and `GET /v1/fleet`: the same numbers stand everywhere.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from operator import add
from typing import Any

from django.db import connection

from fleet.attention import Trouble, troubles_of
from fleet.day_sums import DAY_HOURS
from fleet.domain.slots import first_slot as first_hour_slot
from fleet.domain.slots import slot_of
from fleet.fleet_json import as_json
from fleet.hour_sums import Sums, total
from fleet.models import Cluster
from fleet.neighbours import with_neighbours
from fleet.reading import AnyPeriod, ClusterRows, Filter, Fleet, NodeRow, Period, PlaceRow
from fleet.selectors_days import closed_sums
from fleet.selectors_hours import (
    Bounds,
    NodeHours,
    Window,
    add_up,
    hourly_stretches,
    hours_per_stretch,
    load_bodies,
    load_figures,
    load_first_bodies,
    node_stretches,
    node_sums,
    read_hour,
    read_places,
)
from fleet.selectors_incidents import open_parties_of_cluster, per_party
from fleet.selectors_live import MARKS, WORDS, is_silent, read_summary, to_ms
from fleet.selectors_plain import UNNAMED, read_plain
from fleet.strip_drawing import draw, in_words

__all__ = ["Filter", "Fleet", "Period", "fleet_summary", "get_fleet"]

NODES_ON_PAGE = 48  # over all clusters
NODES_OF_CLUSTER = 64  # per page of one cluster
LEAST_PER_CLUSTER = 4
WELL_ON_PAGE = 8  # of a cluster: so many rows are filled up with nodes of which there is nothing to say
CLUSTERS_ON_PAGE = 12
TEN_MINUTES = 40  # slots
LEAST_DAYS = 4  # a window with fewer whole days is added up at once


_NODES = """
select n.id, n.name, n.cluster_id, n.first_seen_at, l.last_sample_at, coalesce(l.agent_version, ''),
       coalesce(l.dropped_total, 0), l.summary, n.label
  from fleet_node n join fleet_cluster c on c.id = n.cluster_id and c.removed_at is null
  left join fleet_nodelive l on l.node_id = n.id
 where n.merged_into_id is null and (%(only)s::bigint[] is not null
       or coalesce(greatest(n.retired_at, c.retired_at) < coalesce(l.last_sample_at, 'epoch'), true))
   and (%(only)s::bigint[] is null or n.id = any(%(only)s))
   and n.cluster_id = any(%(clusters)s) and n.id > %(after)s
 order by n.id limit %(most)s
"""
MOST_NODES_LISTED = 500  # in one answer of the API; far below the next
MANY_NODES = 4000  # from so many on, nodes that are well are read by number only


def get_fleet(
    now: datetime,
    period: AnyPeriod = Period.DAY,
    wanted: Filter | None = None,
    *,
    strips: bool = True,
    within: str | Collection[str] | None = None,
    is_brief: bool = False,
) -> Fleet:
    """The fleet of the current org. `strips`: whether the shown nodes get theirs drawn; `is_brief`: nobody asks for
    the GPUs of nodes that are well.

    `within` names the clusters that the asker may see (nothing: all): nothing of another enters any number.
    """
    wanted = wanted or Filter()
    window = period.window(now)
    clusters = visible_clusters(within, open_parties=open_parties_of_cluster())
    everything = with_neighbours(
        read_nodes(now, window, clusters, may_be_brief=is_brief or (strips and not wanted.search)), now
    )
    by_cluster: dict[int, list[NodeRow]] = defaultdict(list)
    for row in everything:
        by_cluster[row.cluster_id].append(row)
    blocks = _order_clusters(clusters, by_cluster)
    if wanted.cluster:
        blocks = [cluster for cluster in blocks if cluster.name == wanted.cluster]
    share = NODES_OF_CLUSTER if wanted.cluster else max(LEAST_PER_CLUSTER, NODES_ON_PAGE // max(1, len(blocks)))
    shown: list[ClusterRows] = []
    more: list[ClusterRows] = []
    for cluster in blocks:
        block = _block(cluster, by_cluster[cluster.pk], wanted, share)
        if wanted.is_narrow and not block.matching:
            continue
        is_over = wanted.page is not None and len(shown) >= CLUSTERS_ON_PAGE
        (more if is_over else shown).append(replace(block, nodes=()) if is_over else block)
    drawn_from = drawn_from_slot(everything, window)
    if strips:
        listed = _in_full([row for block in shown for row in block.nodes], now, window, clusters)
        drawn = {row.id: row for row in with_strips(listed, period, window, drawn_from, wanted.opened)}
        shown = [replace(block, nodes=tuple(drawn[row.id] for row in block.nodes)) for block in shown]
    troubles = tuple(sorted((t for row in everything for t in row.troubles), key=Trouble.order))
    parties = [party for cluster in clusters.values() for party in cluster.open_parties]  # type: ignore[attr-defined]
    counts = {word: sum(row.now.count(word) for row in everything) for word in WORDS}
    return Fleet(
        as_of_ms=to_ms(now),
        period=period,
        window=window,
        drawn_from=drawn_from,
        filter=wanted,
        clusters=tuple(shown),
        more_clusters=tuple(more),
        troubles=troubles,
        sums=total(row.sums for row in everything),
        counts=counts,
        marks=tuple(
            (mark, count)
            for mark in MARKS
            if (count := sum(mark in gpu.marks for row in everything for gpu in row.now.gpus))
        ),
        node_count=len(everything),
        cluster_count=len(clusters),
        silent=sum(row.now.is_silent for row in everything),
        dropped_total=sum(row.dropped_total for row in everything),
        simulated=tuple((cluster.pk, cluster.name) for cluster in clusters.values() if cluster.is_simulated),
        has_real=any(not row.is_simulated for row in everything),
        matching=sum(block.matching for block in (*shown, *more)),
        parties=per_party(parties),
        open_count=len(parties),
    )


def visible_clusters(within: str | Collection[str] | None, **more: Any) -> dict[int, Cluster]:
    """The clusters that somebody may see, by id; `within` names them (nothing: all), `more` is annotated to each."""
    visible = Cluster.objects.filter(removed_at=None).annotate(**more)
    if within:
        visible = visible.filter(name__in=[within] if isinstance(within, str) else within)
    return {cluster.pk: cluster for cluster in visible}


def read_nodes(
    now: datetime,
    window: Window,
    clusters: dict[int, Cluster],
    only: Sequence[int] | None = None,
    *,
    after: int = 0,
    most: int | None = None,
    may_be_brief: bool = False,
) -> list[NodeRow]:
    """Every node of these clusters with its figures, by id; those with the ids `only`; or `most` after the id `after`.

    `may_be_brief`: of a large fleet's nodes that are wholly well the GPUs are counted and not named (selectors_plain).
    """
    with connection.cursor() as cursor:
        cursor.execute(
            _NODES,
            {"only": None if only is None else list(only), "clusters": list(clusters), "after": after, "most": most},
        )
        nodes = cursor.fetchall()
    added = added_up(window) if only is None and most is None else add_up(window, [row[0] for row in nodes])
    new = {
        node_id: added[node_id].first_hour
        for node_id, _, _, first_seen_at, *_ in nodes
        if node_id in added and slot_of(to_ms(first_seen_at)) >= window.first_slot
    }
    firsts = load_first_bodies(new) if new else {}
    now_ms = to_ms(now)
    is_brief = may_be_brief and len(nodes) >= MANY_NODES
    found = []
    for node_id, name, cluster_id, first_seen_at, last_sample_at, agent_version, dropped, summary, label in nodes:
        last_ms = to_ms(last_sample_at) if last_sample_at else None
        silent = is_silent(last_ms, now_ms)
        live = (read_plain(summary) if is_brief and summary and not silent else None) or read_summary(
            summary or "{}", silent
        )
        first_slot = max(window.first_slot, slot_of(to_ms(first_seen_at)))
        if node_id in firsts:
            first_slot = first_hour_slot(new[node_id]) + read_hour(firsts[node_id]).known_from
        elif last_ms is not None and slot_of(last_ms) < window.first_slot:
            first_slot = window.first_slot  # its past came late and lies before the period: known, and silent since
        is_over = live.is_silent or window.now_slot < slot_of(now_ms)
        end_slot = window.now_slot if is_over else slot_of(last_ms or 0)
        bounds = Bounds(first_slot, max(first_slot, end_slot), len(live.gpus), is_over)
        cluster = clusters[cluster_id]
        found.append(
            NodeRow(
                id=node_id,
                name=name,
                label=label,
                cluster_id=cluster_id,
                cluster=cluster.name,
                is_simulated=cluster.is_simulated,
                now=live,
                last_sample_ms=last_ms,
                bounds=bounds,
                sums=node_sums(added.get(node_id), bounds),
                agent_version=agent_version,
                dropped_total=dropped,
                troubles=troubles_of(node_id, name, cluster.name, live, last_ms),
            )
        )
    return found


def _in_full(rows: list[NodeRow], now: datetime, window: Window, clusters: dict[int, Cluster]) -> list[NodeRow]:
    """The same nodes with their GPUs named, those read again that were not."""
    brief = [row.id for row in rows if UNNAMED in row.now.gpus]
    again = {row.id: row for row in read_nodes(now, window, clusters, brief)} if brief else {}
    return [again.get(row.id, row) for row in rows]


def list_fleet_nodes(
    now: datetime, period: AnyPeriod, within: str | Collection[str] | None, after: int, size: int
) -> tuple[list[NodeRow], int | None]:
    """(a page of nodes by id with their figures over the period, the id after which the next one begins or None)."""
    rows = read_nodes(now, period.window(now), visible_clusters(within), after=after, most=size + 1)
    return (rows[:size], rows[size - 1].id) if len(rows) > size else (rows, None)


def added_up(window: Window) -> dict[int, NodeHours]:
    """Every node's rows of the window, added up; of a long one the days that are over come from `closed_sums`."""
    first_day = -(-window.first_hour // DAY_HOURS)
    if window.last_hour // DAY_HOURS - first_day < LEAST_DAYS:
        return add_up(window)
    end_hour, closed = closed_sums(first_day, window.last_hour // DAY_HOURS)
    head = add_up(Window(window.first_hour, first_day * DAY_HOURS - 1, window.now_slot))
    tail = add_up(Window(end_hour, window.last_hour, window.now_slot))
    for part in (head, tail):
        for node, more in part.items():
            have = closed.get(node)
            closed[node] = NodeHours(*map(min, have[:1], more[:1]), *map(add, have[1:], more[1:])) if have else more
    return closed


def drawn_from_slot(rows: list[NodeRow], window: Window) -> int:
    """Where strips begin: a fleet younger than the window fills them from its first evidence on, by ten minutes."""
    first = min((row.bounds.first_slot for row in rows), default=window.first_slot)
    return max(window.first_slot, min(first, window.now_slot - TEN_MINUTES) // TEN_MINUTES * TEN_MINUTES)


def _is_short(period: AnyPeriod) -> bool:
    """Whether strips are drawn by the slot."""
    return period.hours <= Period.DAY.hours


def with_strips(
    nodes: list[NodeRow],
    period: AnyPeriod,
    window: Window,
    drawn_from: int,
    opened: int | None,
    bodies: Mapping[int, Mapping[int, bytes]] | None = None,
) -> list[NodeRow]:
    """These nodes with their strips: a day by the slot, longer periods by the hour. The opened one with its GPUs'.

    `bodies`: node → hour → body of those that are drawn by the slot or opened, where they are read already.
    """
    if bodies is None:
        by_slot = [row.id for row in nodes if _is_short(period) or row.id == opened]
        bodies = load_bodies(window, by_slot) if by_slot else {}
    now_slot = window.now_slot
    figures = load_figures(window, [row.id for row in nodes]) if not _is_short(period) else {}
    out = []
    for row in nodes:
        rows = bodies.get(row.id, {})
        if _is_short(period):
            strip = draw(node_stretches(rows, row.bounds), drawn_from, now_slot, *row.bounds.drawn)
        else:
            hours = hourly_stretches(figures.get(row.id, ()), row.bounds, hours_per_stretch(window))
            strip = draw(hours, drawn_from, now_slot, *row.bounds.drawn)
            strip = replace(strip, words=f"GPU time {in_words(spent_of(row.sums))}")
        places = _places(row, rows, drawn_from, now_slot) if row.id == opened else ()
        out.append(replace(row, strip=strip, places=places))
    return out


def _places(row: NodeRow, rows: Mapping[int, bytes], drawn_from: int, now_slot: int) -> tuple[PlaceRow, ...]:
    """The GPUs' places of a node over the window."""
    read = read_places(rows, row.bounds, [gpu.place for gpu in row.now.gpus])
    return tuple(
        PlaceRow(gpu, sums, draw(stretches, drawn_from, now_slot, *row.bounds.drawn))
        for gpu in row.now.gpus
        for stretches, sums in [read[gpu.place]]
    )


def spent_of(sums: Sums) -> dict[str, int]:
    """GPU-seconds per word."""
    spent = {"down": sums.down, "degraded": sums.degraded, "held": sums.held, "unknown": sums.unknown}
    return {**spent, "available": sums.all - sum(spent.values())}


def _order_clusters(clusters: dict[int, Cluster], by_cluster: dict[int, list[NodeRow]]) -> list[Cluster]:
    """Worst first: by the worst node, then by what was lost, then by name."""

    def key(cluster: Cluster) -> tuple[Any, ...]:
        rows = by_cluster.get(cluster.pk, [])
        worst = min((WORDS.index(row.now.word) for row in rows), default=len(WORDS))
        return worst, -sum(row.sums.lost_ws for row in rows), natural(cluster.name)

    return sorted(clusters.values(), key=key)


def worst_first(row: NodeRow) -> tuple[Any, ...]:
    """Order of nodes: the state now and how many GPUs are in it, whether something is open, what was lost, the name."""
    word = row.now.word
    lost = (-row.sums.lost_ws, -row.sums.unknown)
    return (
        WORDS.index(word),
        -row.now.count(word) if word != "available" else 0,
        not row.troubles,
        *lost,
        natural(row.name),
    )


def natural(name: str) -> list[tuple[int, int, str]]:
    """A sort key in which gpu-9 comes before gpu-10."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def _block(cluster: Cluster, rows: list[NodeRow], wanted: Filter, share: int) -> ClusterRows:
    """A cluster with the page of its matching nodes."""
    matching = sorted((row for row in rows if _matches(row, wanted)), key=worst_first)
    pages = max(1, -(-len(matching) // share))
    page = min(max(1, wanted.page or 1), pages) if wanted.cluster else 1
    shown = matching if wanted.page is None else matching[(page - 1) * share : page * share]
    if wanted.page is not None and not wanted.is_narrow:
        shown = shown[: max(WELL_ON_PAGE, sum(not row.is_well for row in shown))]
        shown += [row for row in matching[len(shown) :] if row.id == wanted.opened]  # a link to an open row holds
    listed = {row.id for row in shown}
    models = sorted({row.now.model for row in rows if row.now.model})
    return ClusterRows(
        id=cluster.pk,
        name=cluster.name,
        label=cluster.label,
        is_simulated=cluster.is_simulated,
        node_count=len(rows),
        gpu_count=sum(len(row.now.gpus) for row in rows),
        models=", ".join(models[:3]),
        sums=total(row.sums for row in rows),
        matching=len(matching),
        nodes=tuple(shown),
        page=page,
        pages=pages,
        domains=len({row.now.domain for row in rows} - {""}),
        is_rest_well=all(row.is_well for row in matching if row.id not in listed),
    )


def _matches(row: NodeRow, wanted: Filter) -> bool:
    if wanted.state and not row.now.count(wanted.state):
        return False
    text = wanted.search.strip().lower()
    names = f"{row.name}\0{row.label}".lower()
    return not text or text in names or any(text in gpu.uuid.lower() for gpu in row.now.gpus)


def fleet_summary(
    now: datetime, period: Period = Period.DAY, within: str | Collection[str] | None = None
) -> dict[str, Any]:
    """The whole fleet as JSON-ready data, for `GET /v1/fleet`: the same numbers as the page, in integers.

    Of more than `MOST_NODES_LISTED` nodes only the clusters' figures: the nodes are read by pages.
    """
    fleet = get_fleet(now, period, Filter(page=None), strips=False, within=within, is_brief=True)
    return as_json(fleet, MOST_NODES_LISTED)
