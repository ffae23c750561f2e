"""The bars of 90 days and long periods: their sums are those of the rows, from the cache as without it."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.bodies import load_row
from fleet.day_sums import sum_days
from fleet.domain.slots import HOUR_MS, SLOT_S, first_slot
from fleet.domain.verdicts import State, Verdict
from fleet.hour_sums import Sums
from fleet.models import Cluster, Node, NodeDay, NodeHour, SummedDay
from fleet.node_rows import write_hours
from fleet.reading import Period
from fleet.selectors import added_up, get_fleet, read_nodes, visible_clusters
from fleet.selectors_days import DAYS, HEIGHT, MOST_LISTED, Bar, Days, get_days
from fleet.selectors_hours import HourFigures, add_up, hourly_stretches, load_bodies, load_figures, read_places
from fleet.selectors_live import to_ms
from fleet.tests.test_pages import fill, text_of
from fleet.tests.test_pages_incidents import happen
from orgs.models import Membership, User

pytestmark = pytest.mark.django_db


def live_through(org: Any, days: int, down_s: int = 3600) -> int:
    """A node with a row each hour of the last `days` days, one of its eight GPUs down for `down_s` in each; its id."""
    fill(org, nodes=1, minutes=3)
    now_hour = to_ms(timezone.now()) // HOUR_MS
    with tenant_context(org):
        node = Node.objects.order_by("-pk")[0]
        body = NodeHour.objects.filter(node=node).values_list("body", flat=True)[0]
        NodeHour.objects.filter(node=node).delete()
        full = 8 * 3600
        NodeHour.objects.bulk_create(
            NodeHour(
                node=node,
                hour=hour,
                body=body,
                gpus=8,
                observed_s=full,
                down_s=down_s,
                nominal_sum=100 * (full - down_s),
                lower_sum=100 * (full - down_s),
                upper_sum=100 * (full - down_s),
                rules="x",
            )
            for hour in range(now_hour - days * 24, now_hour)
        )
        return node.pk


def test_a_strangers_days_are_not_found(beta: Any, ada: Any, client_of: Any, lan: Any) -> None:
    node_id = live_through(beta, 2)
    for path in ("?part=days", f"nodes/{node_id}/?part=days"):
        assert client_of(None).get(f"/o/beta/{path}").status_code == 302
        assert client_of(ada).get(f"/o/beta/{path}").status_code == 404
    assert client_of(ada).get(f"/o/alpha/nodes/{node_id}/?part=days").status_code == 404


def test_whoever_may_see_one_cluster_sees_its_days_only(alpha: Any, client_of: Any, lan: Any) -> None:
    node_id = live_through(alpha, 3)
    with tenant_context(alpha):
        Cluster.objects.update(name="not-for-cleo")
    happen(alpha)
    fill(alpha, cluster="open-to-cleo", nodes=1, minutes=30)  # a slot less at the turn of an hour is under 1 %
    cleo = User.objects.create_user("cleo@alpha.example")
    Membership.objects.create(user=cleo, org=alpha, role=Membership.Role.VIEWER, clusters=["open-to-cleo"])
    page = client_of(cleo).get("/o/alpha/?part=days").content.decode()
    assert "No loss and no incident on any of these days." in page
    assert client_of(cleo).get(f"/o/alpha/nodes/{node_id}/?part=days").status_code == 404


def test_before_anything_is_counted_pages_say_so(alpha: Any, ada: Any, client_of: Any) -> None:
    """The first minute of an installation: the nodes are there, no hour of theirs is."""
    fill(alpha, nodes=1, minutes=3)
    with tenant_context(alpha):
        node_id = Node.objects.order_by("-pk")[0].pk
        NodeHour.objects.all().delete()
    client = client_of(ada)
    for path in ("/o/alpha/", f"/o/alpha/nodes/{node_id}/"):
        page = text_of(client.get(path))
        assert "nothing counted yet" in page
        assert "– to –" not in page
        assert "– %" not in page
        assert "No loss" not in text_of(client.get(f"{path}?part=days"))


def test_what_lies_before_a_nodes_first_sample_is_not_unknown(alpha: Any) -> None:
    """However late in its first hour a node appears, that hour counts from its first evidence on."""
    fill(alpha, nodes=1, minutes=timezone.now().minute + 25)  # it appears in the second half of the hour before
    with tenant_context(alpha):
        node = Node.objects.get()
        rows = list(NodeHour.objects.order_by("hour"))
        assert rows[0].unknown_s > 0  # the row itself can't tell what came before
        sums = get_days(timezone.now(), {node.pk: rows[0].gpus}, node.pk).sums
        whole = get_fleet(timezone.now(), Period.DAY).sums
    assert sums.unknown < 60 * rows[0].gpus
    assert sums.known == whole.known


def test_each_day_is_the_sum_of_its_rows_before_and_after_it_is_summed(alpha: Any) -> None:
    node_id = live_through(alpha, 10, down_s=360)
    now = timezone.now()
    with tenant_context(alpha):
        clusters = list(Cluster.objects.values_list("pk", flat=True))
        for is_summed in (False, True):
            if is_summed:
                while sum_days(now):
                    pass
                assert SummedDay.objects.count() >= 9
            days = get_days(now, {node_id: 8}, clusters=clusters)
            assert len(days.bars) == DAYS
            whole = [bar for bar in days.bars if bar.sums.known == 24 * 8 * 3600]
            assert len(whole) == (9 if now.hour else 10)  # in the first hour of a day the ten days are all whole
            assert {bar.sums.down for bar in whole} == {24 * 360}
            assert days.sums.known == 10 * 24 * 8 * 3600
            assert days.sums.unknown == 0
        assert get_days(now, {node_id: 8}, node_id).sums == days.sums


def test_a_long_window_adds_up_to_the_same_as_at_once(alpha: Any) -> None:
    live_through(alpha, 12)
    with tenant_context(alpha):
        window = Period.MONTH.window(timezone.now())
        first = added_up(window)
        while sum_days(timezone.now()):
            pass
        assert NodeDay.objects.exists()
        assert first == added_up(window) == add_up(window)
        assert get_fleet(timezone.now(), Period.MONTH).sums.down == 12 * 24 * 3600


def test_late_facts_bring_the_sum_of_their_day_up_to_date(alpha: Any) -> None:
    node_id = live_through(alpha, 5, down_s=0)
    day = to_ms(timezone.now()) // HOUR_MS // 24 - 2
    with tenant_context(alpha):
        while sum_days(timezone.now()):
            pass
        before = NodeDay.objects.get(node_id=node_id, day=day)
        hour = NodeHour.objects.filter(node_id=node_id, hour__gte=day * 24).order_by("hour").first()
        assert hour is not None
        row = load_row(hour.body)
        row.hour = hour.hour
        lost = Verdict(State.OBSERVED, 0, 0, 0, ("XID_79",))
        row.put("g0", first_slot(hour.hour), first_slot(hour.hour) + 40, lost)
        write_hours({(node_id, hour.hour): row})
        after = NodeDay.objects.get(node_id=node_id, day=day)
    assert after.down - before.down == 600


def test_a_page_works_without_the_cache(alpha: Any, ada: Any, client_of: Any, settings: Any) -> None:
    live_through(alpha, 6)
    settings.CACHES = {
        **settings.CACHES,
        "default": {**settings.CACHES["default"], "LOCATION": "redis://127.0.0.1:1/0"},
    }
    for path in ("?period=30d", "?part=days"):
        assert client_of(ada).get(f"/o/alpha/{path}").status_code == 200


def test_hours_without_a_row_are_unknown_from_the_first_row_on(alpha: Any) -> None:
    node_id = live_through(alpha, 5)
    now_hour = to_ms(timezone.now()) // HOUR_MS
    gone = now_hour // 24 - 2
    with tenant_context(alpha):
        NodeHour.objects.filter(hour__gte=gone * 24, hour__lt=gone * 24 + 24).delete()
        days = get_days(timezone.now(), {node_id: 8}, node_id)
    bar = days.bars[DAYS - 3]
    assert (bar.sums.known, bar.sums.unknown) == (0, 24 * 8 * 3600)
    assert days.bars[0].is_empty


def test_bars_are_filled_in_proportion_and_a_small_loss_is_still_seen() -> None:
    day = 24 * 8 * 3600
    bar = Bar(0, 0, Sums(known=day // 2, unknown=day // 2, nominal=50 * day - 100, down=1), 0)
    drawn = {segment.css: segment.height for segment in bar.segments}
    assert drawn == {"down": 3, "available": HEIGHT // 2 - 3, "unknown": HEIGHT // 2}
    assert Bar(0, 0, Sums(), 0).segments[0].css == "none"


def test_a_long_silence_hides_no_day_of_a_loss() -> None:
    day = 24 * 8 * 3600
    silent = [Bar(number, number, Sums(unknown=day), 0) for number in range(1, 30)]
    lost = Bar(0, 0, Sums(known=day, nominal=100 * day - 100, down=1), 1)
    good = Bar(30, 30, Sums(known=day, nominal=100 * day), 0)
    listed = Days((lost, *silent, good), Sums()).bad
    assert [(first.index, last.index) for first, last in listed] == [(1, 29), (0, 0)]
    thin = [Bar(number, number, Sums(known=day // 2, unknown=day // 2, nominal=50 * day), 0) for number in range(1, 30)]
    listed = Days((lost, *thin, good), Sums()).bad
    assert [first.index for first, _ in listed] == [*range(29, 29 - MOST_LISTED + 1, -1), 0]


def test_days_of_mere_silence_are_one_line_and_an_incident_among_them_is_its_own() -> None:
    day = 24 * 8 * 3600
    bars = [Bar(number, number, Sums(unknown=day), 1 if number == 3 else 0) for number in range(6)]
    assert [(first.index, last.index) for first, last in Days(tuple(bars), Sums()).bad] == [(4, 5), (3, 3), (0, 2)]


def test_a_day_without_data_is_listed_as_such_and_not_as_one_without_a_loss(
    alpha: Any, ada: Any, client_of: Any
) -> None:
    live_through(alpha, 5, down_s=0)
    gone = to_ms(timezone.now()) // HOUR_MS // 24 - 2
    with tenant_context(alpha):
        NodeHour.objects.filter(hour__gte=gone * 24, hour__lt=gone * 24 + 24).delete()
    listed = client_of(ada).get("/o/alpha/?part=days").content.decode().split("daylist")[1]
    assert listed.count("<li>") == listed.count("no data") == 1
    assert "GPU-h lost" not in listed


def test_a_day_that_is_half_known_says_so_beside_its_figures(alpha: Any, ada: Any, client_of: Any) -> None:
    live_through(alpha, 5, down_s=0)
    gone = to_ms(timezone.now()) // HOUR_MS // 24 - 2
    with tenant_context(alpha):
        NodeHour.objects.filter(hour__gte=gone * 24, hour__lt=gone * 24 + 12).delete()
    listed = text_of(client_of(ada).get("/o/alpha/?part=days"))
    assert "100 % · 0 GPU-h lost · 50 % known" in listed


def test_a_days_incidents_are_one_tap_away(alpha: Any, ada: Any, client_of: Any) -> None:
    live_through(alpha, 2)
    happen(alpha, minutes_ago=30, is_open=False)
    client = client_of(ada)
    page = client.get("/o/alpha/?part=days").content.decode()
    today = f"{timezone.now() - timedelta(minutes=30):%Y-%m-%d}"
    link = re.search(rf'href="(/o/alpha/incidents/\?day={today})"', page)
    assert link is not None
    assert "GPU 3 of sim-0001" in client.get(link[1]).content.decode()


def test_a_long_strip_is_the_same_whether_its_good_hours_come_as_one_or_singly(alpha: Any) -> None:
    """What is well comes as one row for many hours; written out hour by hour it gives the same stretches."""
    with tenant_context(alpha):
        fill(alpha, nodes=2, minutes=500, seed=11)
        now = timezone.now()
        window = Period.WEEK.window(now)
        rows = read_nodes(now, window, visible_clusters(None))
        figures = load_figures(window, [row.id for row in rows])
        assert any(one.is_well and one.end - one.first > 1 for line in figures.values() for one in line)
        for row in rows:
            singly = [
                HourFigures(at, at + 1, one.gpus, one.gpus * 3600, 0, 0, 0, False) if one.is_well else one
                for one in figures[row.id]
                for at in range(one.first, one.end)
            ]
            assert hourly_stretches(singly, row.bounds) == hourly_stretches(figures[row.id], row.bounds)
            stored = {one.hour: one for one in NodeHour.objects.filter(node_id=row.id)}
            assert {one.first for one in singly} == set(stored)
            for one in singly:
                kept = stored[one.first]
                assert one[2:7] == (
                    kept.gpus,
                    kept.gpus * 3600 - kept.unknown_s,
                    kept.down_s - kept.held_s,
                    kept.degraded_s,
                    kept.held_s,
                )
            gpus = [gpu.place for gpu in row.now.gpus]
            bodies = load_bodies(window, [row.id])[row.id]
            for place, (stretches, sums) in read_places(bodies, row.bounds, gpus).items():
                assert read_places(bodies, row.bounds, [place])[place] == (stretches, sums)
                assert sum(one.end - one.first for one in stretches) * SLOT_S == sums.all
