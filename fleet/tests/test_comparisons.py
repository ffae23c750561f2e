"""A whole comparison of rules in the background: asked for on the page, worked off in slices, told, kept, stopped."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet import services_comparisons as services
from fleet import tasks
from fleet.domain.rules import LATEST
from fleet.models import NodeHour, RuleComparison
from fleet.services_dated import DatedInvalid
from fleet.services_incidents import Actor
from fleet.tasks import close_silence_of_org, compare_rules_of_org
from fleet.tests.bodies import gpu, interval
from fleet.tests.test_dated import at
from fleet.tests.test_pages import text_of
from fleet.tests.test_pages_node import store
from orgs.models import AuditEntry
from orgs.services import create_user, set_role

pytestmark = pytest.mark.django_db
URL = "/o/alpha/settings/rules/"
AMEND = {"code": "HW_THERMAL", "key": "weight", "value": "90", "from_at": "2026-01-01T00:00", "reason": "as agreed"}


@pytest.fixture
def hot(alpha: Any) -> Any:
    """Alpha with two nodes: one throttled for two minutes, one in good health."""
    first = int(at(0).timestamp() * 1000) + 7_500
    for node in ("n1", "n2"):
        more = {"throttle_time": {"hw_thermal": 15_000}, "sm_clock": 990} if node == "n1" else {}
        for minute in range(3):
            samples = [interval(first + (4 * minute + k) * 15_000, gpus=1) for k in range(4)]
            for one in samples:
                one["gpus"] = [gpu(0, **more)]
            store(alpha, node_id=node, intervals=samples)
    return alpha


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The messages that would have gone to a worker."""
    found: list[Any] = []
    monkeypatch.setattr(compare_rules_of_org, "apply_async", lambda args, **more: found.append(args))
    return found


@pytest.fixture
def owner(alpha: Any, client_of: Any, lan: Any) -> Any:
    """An owner's browser."""
    user = create_user("owner@alpha.example", actor="test")
    set_role(user, alpha, "owner", actor="test")
    return client_of(user)


def asked(client: Any) -> Any:
    """The answer to asking for it on the page."""
    return client.post(URL, {**AMEND, "compare": "yes"})


def test_a_person_asks_sees_how_far_it_is_and_what_comes_out(hot: Any, owner: Any, sent: list[Any]) -> None:
    with tenant_context(hot):
        before = list(NodeHour.objects.order_by("pk").values_list("node_id", "hour", "body"))
    page = asked(owner)["Location"]
    (args,) = sent
    assert args == [hot.pk, int(page.rstrip("/").rpartition("/")[2]), 0]
    words = text_of(owner.get(page))
    assert "waiting : 0 of 2 nodes" in words
    assert "Stop it" in words
    assert 'hx-trigger="every' in owner.get(page).content.decode()
    assert compare_rules_of_org(*args) is False  # two nodes are done within a slice
    words = text_of(owner.get(page))
    assert "done : 2 of 2 nodes" in words
    assert "HW_THERMAL (weight 50 → 90)" in words
    assert "1 of 2 that were compared" in words
    assert "changes: Hardware thermal slowdown" in words
    assert "Stop it" not in words
    assert 'hx-trigger="every' not in owner.get(page).content.decode()
    assert "HW_THERMAL: weight 90" in text_of(owner.get(URL))
    body = json.loads(owner.get(page.rstrip("/") + ".json").content)
    assert (body["state"], body["nodes_compared"]) == ("done", 2)
    (node,) = body["nodes"]
    assert node["node"] == "n1"
    (hour,) = node["hours"]
    assert hour["why"] == ["HW_THERMAL"]
    assert hour["nominal"]["after"] > hour["nominal"]["before"]
    with tenant_context(hot):
        assert list(NodeHour.objects.order_by("pk").values_list("node_id", "hour", "body")) == before
        row = RuleComparison.objects.get()
        (kept,) = row.nodes.all()
        assert kept.lost_after_s < kept.lost_before_s
    entry = AuditEntry.objects.get(action="rules.compared")
    assert (entry.actor, entry.target) == ("owner@alpha.example", "HW_THERMAL")


def test_it_goes_on_slice_by_slice_and_where_a_dead_worker_left_it(hot: Any, owner: Any, sent: list[Any]) -> None:
    asked(owner)
    (args,) = sent
    with tenant_context(hot):
        last = services.work_on_comparison(*args[1:], budget_s=0)  # one node, and there is more
        row = RuleComparison.objects.get()
        assert (row.nodes_done, row.state, row.beat_at, row.last_node_id) == (1, "running", None, last)
        args = [*args[:2], last]
        RuleComparison.objects.update(beat_at=timezone.now())  # a worker is at it
        assert services.work_on_comparison(*args[1:], budget_s=0) is None
        assert services.waiting_comparison(timezone.now()) is None
        RuleComparison.objects.update(beat_at=timezone.now() - timedelta(minutes=6))  # it died
    close_silence_of_org(hot.pk)  # the job of each minute
    assert sent[1:] == [args]
    with tenant_context(hot):
        last = services.work_on_comparison(*args[1:], budget_s=0)
        assert last
        assert services.work_on_comparison(args[1], last, budget_s=0) is None
        row.refresh_from_db()
        assert (row.nodes_done, row.state, row.nodes.count()) == (2, "done", 1)


def test_the_job_of_each_minute_adds_no_slice_to_those_that_wait(hot: Any, owner: Any, sent: list[Any]) -> None:
    """With one worker nobody is at it whenever that job runs, and the fold waits for each slice before it."""
    asked(owner)
    with tenant_context(hot):
        RuleComparison.objects.update(requested_at=timezone.now() - timedelta(minutes=2))
    close_silence_of_org(hot.pk)
    first, again = sent
    assert first == again
    with tenant_context(hot):
        assert services.work_on_comparison(*first[1:], budget_s=0)
        assert services.work_on_comparison(*again[1:], budget_s=0) is None
        assert RuleComparison.objects.get().nodes_done == 1


def test_the_fold_has_its_turn_between_two_slices(hot: Any, owner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sent to a single worker behind a whole slice is too old when its turn comes."""
    assert services.SLICE_SECONDS >= tasks.HINT_SECONDS
    sent: list[tuple[Any, Any]] = []
    monkeypatch.setattr(tasks, "work_on_comparison", lambda pk, after: services.work_on_comparison(pk, after, 0))
    monkeypatch.setattr(compare_rules_of_org, "apply_async", lambda args, **more: sent.append((args, more)))
    asked(owner)
    assert compare_rules_of_org(*sent[0][0]) is True
    (args, more) = sent[1]
    assert args[2] > 0
    assert more["countdown"] > 1, "a sweep comes each second"


def test_a_worker_that_was_taken_for_dead_changes_nothing_any_more(
    hot: Any, owner: Any, sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(owner)
    (args,) = sent
    real = services.compare

    def slow(*asked_of: Any) -> Any:
        monkeypatch.setattr(services, "compare", real)
        RuleComparison.objects.update(beat_at=timezone.now() - timedelta(minutes=6))
        assert services.work_on_comparison(*args[1:]) is None  # another one does all of it meanwhile
        RuleComparison.objects.update(is_active=True)  # not yet told to be at its end
        return real(*asked_of)

    monkeypatch.setattr(services, "compare", slow)
    with tenant_context(hot):
        assert services.work_on_comparison(*args[1:]) is None
        row = RuleComparison.objects.get()
        assert (row.nodes_done, row.nodes.count()) == (2, 1)


def test_one_at_a_time_until_its_end_or_somebody_stops_it(hot: Any, owner: Any, sent: list[Any]) -> None:
    page = asked(owner)["Location"]
    answer = asked(owner)
    assert answer.status_code == 422
    assert "A comparison is at work" in text_of(answer)
    assert owner.post(f"{page}stop/").status_code == 302
    assert "owner@alpha.example stopped it." in text_of(owner.get(page))
    assert compare_rules_of_org(*sent[0]) is False
    with tenant_context(hot):
        assert RuleComparison.objects.get().nodes_done == 0
    assert owner.post(f"{URL}adopt/", {"version": LATEST, "from_at": "2026-01-01T00:00", "reason": "x", "compare": "y"})
    assert compare_rules_of_org(*sent[1]) is False
    with tenant_context(hot):
        assert RuleComparison.objects.filter(version=LATEST, state="done").exists()
        assert "Nothing: every verdict" in text_of(owner.get(f"{URL}comparisons/{sent[1][1]}/"))


def test_it_is_bounded_and_gives_up_what_fails_again_and_again(hot: Any, owner: Any, sent: list[Any]) -> None:
    asked(owner)
    pk, after = sent[0][1:]
    with tenant_context(hot):
        RuleComparison.objects.update(spent_s=services.MOST_SECONDS + 1)
        assert not services.work_on_comparison(pk, after)
        assert RuleComparison.objects.get().why == "It had worked for 2 hours."
        actor = Actor("ada", hot)
        row = services.ask_for_comparison(actor, code="HW_THERMAL", changes={"weight": 90})
        RuleComparison.objects.filter(pk=row.pk).update(attempts=services.MOST_ATTEMPTS)
        assert not services.work_on_comparison(row.pk, 0)
        row.refresh_from_db()
        assert (row.state, row.is_active) == ("failed", None)
        for _ in range(services.KEPT + 2):
            one = services.ask_for_comparison(actor, version=LATEST)
            assert services.stop_comparison(one.pk, actor)
        assert RuleComparison.objects.count() == services.KEPT


def test_the_page_shows_the_first_of_many_hours(hot: Any, owner: Any, sent: list[Any]) -> None:
    page = asked(owner)["Location"]
    compare_rules_of_org(*sent[0])
    with tenant_context(hot):
        node = RuleComparison.objects.get().nodes.get()
        (hour,) = node.body["hours"]
        node.body["hours"] = [{**hour, "seconds": 10_000 + at} for at in range(60)]
        node.body["incidents"] *= 25
        node.incidents = 25
        node.save()
    words = text_of(owner.get(page))
    assert "10047 s" in words
    assert "10048 s" not in words
    assert "The first 48 of 60; the JSON has them all." in words
    assert words.count("changes: Hardware thermal slowdown") == 20
    assert "The first 20 of 25." in words
    assert b"10059" in owner.get(page.rstrip("/") + ".json").content


def test_what_no_rule_may_say_and_an_empty_history_are_refused(alpha: Any, hot: Any, beta: Any) -> None:
    with tenant_context(hot):
        for values in (
            {"code": "NO_SUCH", "changes": {"weight": 1}},
            {"code": "HW_THERMAL", "changes": {"weight": 101}},
        ):
            with pytest.raises(DatedInvalid):
                services.ask_for_comparison(Actor("ada", hot), **values)
        with pytest.raises(DatedInvalid):
            services.ask_for_comparison(Actor("ada", hot), version="2000-01-01")
        assert not RuleComparison.objects.exists()
    with tenant_context(beta), pytest.raises(DatedInvalid, match="nothing to compare"):
        services.ask_for_comparison(Actor("bo", beta), version=LATEST)


def test_who_only_reads_asks_and_stops_nothing(hot: Any, owner: Any, client_of: Any, sent: list[Any]) -> None:
    page = asked(owner)["Location"]
    for role, clusters in (("viewer", []), ("finance", [])):
        user = create_user(f"{role}@alpha.example", actor="test")
        set_role(user, hot, role, clusters=clusters, actor="test")
        client = client_of(user)
        assert asked(client).status_code == 403
        assert client.post(f"{page}stop/").status_code == 403
        assert client.get(page).status_code == 200
    restricted = create_user("restricted@alpha.example", actor="test")
    set_role(restricted, hot, "viewer", clusters=["c1"], actor="test")
    assert client_of(restricted).get(page).status_code == 403
    assert "comparisons/" not in client_of(restricted).get(URL).content.decode()
    assert len(sent) == 1


def test_another_org_has_none_of_it(hot: Any, owner: Any, bo: Any, client_of: Any, sent: list[Any]) -> None:
    page = asked(owner)["Location"]
    assert client_of(bo).get(page).status_code == 404
    assert client_of(bo).get(page.replace("/alpha/", "/beta/")).status_code == 404
    assert client_of(bo).get(page.replace("/alpha/", "/beta/").rstrip("/") + ".json").status_code == 404
