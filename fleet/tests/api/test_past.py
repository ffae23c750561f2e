"""A GPU's slots and hours, availability, events and the explanation of a slot: exact, half-open, refused by name."""

from __future__ import annotations

import time
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.bodies import load_row
from fleet.domain.slots import SLOTS_PER_HOUR
from fleet.domain.verdicts import State
from fleet.models import Node, NodeHour
from fleet.selectors import get_fleet
from fleet.selectors_api import Span, Wanted
from fleet.selectors_api_availability import get_availability
from fleet.tests.api.conftest import FIRST_MINUTE, HOUR_MS, LOST_FROM, LOST_TO, MINUTE_MS, at, fill, start_ms

pytestmark = pytest.mark.django_db


@pytest.fixture
def hour_ms(filled: Any) -> int:
    """The first whole hour of the facts."""
    return start_ms() // HOUR_MS * HOUR_MS


def test_slots_are_run_length_and_say_why(read: Any, north_id: int, hour_ms: int) -> None:
    begin, end = at(hour_ms), at(hour_ms + HOUR_MS)
    answer = read(f"/v1/gpus/{north_id}/1/slots?from={begin}&to={end}").json()
    assert (answer["from"], answer["to"]) == (begin, end)
    runs = answer["results"]
    assert sum(run["slots"] for run in runs) == SLOTS_PER_HOUR
    assert all(run["to"] == following["from"] for run, following in zip(runs, runs[1:], strict=False))
    down = [run for run in runs if run["word"] == "down"]
    assert {code for run in down for code in run["certain"]} >= {"GPU_MISSING"}
    assert sum(run["slots"] for run in down) == pytest.approx(4 * (LOST_TO - LOST_FROM), abs=2)
    assert {run["row"] for run in runs} == {"final"}
    assert all(run["rules"] for run in runs)
    assert down[0]["from"] == at(hour_ms + LOST_FROM * MINUTE_MS)


def test_a_range_is_half_open_and_pieces_join(read: Any, north_id: int, hour_ms: int) -> None:
    def slots(begin: int, end: int) -> int:
        path = f"/v1/gpus/{north_id}/1/slots?from={at(begin)}&to={at(end)}"
        return sum(run["slots"] for run in read(path).json()["results"] if run["word"] == "down")

    middle = hour_ms + 47 * MINUTE_MS
    whole = slots(hour_ms, hour_ms + HOUR_MS)
    assert slots(hour_ms, middle) + slots(middle, hour_ms + HOUR_MS) == whole
    assert slots(middle, middle + 15_000) == 1


def test_hours_without_a_row_are_unknown(read: Any, north_id: int, hour_ms: int) -> None:
    begin, end = at(hour_ms - 5 * HOUR_MS), at(hour_ms - 4 * HOUR_MS)
    (run,) = read(f"/v1/gpus/{north_id}/0/slots?from={begin}&to={end}").json()["results"]
    assert (run["state"], run["weight"], run["row"], run["rules"]) == ("unknown", None, "none", None)
    (hour,) = read(f"/v1/gpus/{north_id}/0/hours?from={begin}&to={end}").json()["results"]
    assert (hour["unknown_seconds"], hour["availability_percent"], hour["row"]) == (3600, None, "none")


def test_hours_add_up(read: Any, north_id: int, hour_ms: int) -> None:
    path = f"/v1/gpus/{north_id}/1/hours?from={at(hour_ms)}&to={at(hour_ms + 2 * HOUR_MS)}"
    hours = read(path).json()["results"]
    assert len(hours) == 2
    for hour in hours:
        states = sum(hour[f"{state.value}_seconds"] for state in State)
        assert states == hour["counted_seconds"] == 3600
    assert hours[0]["down_seconds"] == pytest.approx(300, abs=30)


def test_bad_ranges_name_the_field_and_long_ones_the_way(read: Any, north_id: int) -> None:
    for query, field, says in (
        ("from=yesterday", "from", "RFC 3339"),
        ("from=2026-01-01T00:00:00", "from", "offset"),
        ("from=2026-13-01T00:00:00Z", "from", "no such instant"),
        ("from=1969-01-01T00:00:00Z&to=1969-01-01T01:00:00Z", "from", "1970"),
        ("from=2026-01-01T01:00:00Z&to=2026-01-01T01:00:00Z", "from", "half-open"),
        ("from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", "from", "half-open"),
        ("from=2025-01-01T00:00:00Z&to=2026-07-01T00:00:00Z", "to", "then go on with from="),
        ("until=2026-01-01T00:00:00Z", "until", "no such parameter"),
    ):
        for path in (f"gpus/{north_id}/0/slots", f"gpus/{north_id}/0/hours", "availability", "events"):
            response = read(f"/v1/{path}?{query}")
            assert response.status_code == 422, path
            assert list(response.json()["errors"]) == [field]
            assert says in response.json()["errors"][field][0]


def test_the_way_to_page_through_a_long_range_is_a_good_one(read: Any, north_id: int) -> None:
    path = f"/v1/gpus/{north_id}/0/slots"
    refused = read(f"{path}?from=2026-01-01T00:00:07Z&to=2026-02-01T00:00:00Z").json()["errors"]["to"][0]
    assert "at most 7 days" in refused
    piece = refused.partition("ask for ")[2].partition(",")[0]
    assert read(f"{path}?{piece}").status_code == 200


def test_an_offset_whose_plus_was_not_escaped_is_understood(read: Any, north_id: int) -> None:
    answer = read(f"/v1/gpus/{north_id}/0/slots?from=2026-01-01T02:00:00+02:00&to=2026-01-01T00:30:00Z").json()
    assert answer["from"] == "2026-01-01T00:00:00Z"


def brute_force(node: Node, first: int, end: int) -> dict[str, int]:
    """Sums of a node's GPUs over absolute slots, one slot at a time."""
    sums = dict.fromkeys(("known", "nominal", "lower", "upper", "down", "degraded"), 0)
    for body in NodeHour.objects.filter(node=node).values_list("body", flat=True):
        row = load_row(body)
        for subject in row.subjects():
            if not subject.startswith("g"):
                continue
            for slot, verdict in enumerate(row.verdicts(subject), row.hour * SLOTS_PER_HOUR):
                if first <= slot < end and verdict.nominal is not None:
                    sums["known"] += 15
                    sums["nominal"] += 15 * verdict.nominal
                    sums["lower"] += 15 * verdict.lower
                    sums["upper"] += 15 * verdict.upper
                    sums["down"] += 15 if verdict.nominal == 0 and verdict.state is not State.HELD else 0
                    sums["degraded"] += 15 if 0 < verdict.nominal < 100 else 0
    return sums


@pytest.mark.parametrize("group", ["cluster", "node", "gpu", "model"])
def test_availability_is_exact_at_ragged_edges(filled: Any, read: Any, hour_ms: int, group: str) -> None:
    for before, length in ((0, 3600), (-600, 3600), (2775, 15), (2730, 945), (1800, 2400), (2415, 1800)):
        begin = hour_ms + before * 1000
        end = begin + length * 1000
        answer = read(f"/v1/availability?from={at(begin)}&to={at(end)}&node=north-1&group={group}").json()
        total = answer["total"]
        with tenant_context(filled):
            sums = brute_force(Node.objects.get(name="north-1"), begin // 15_000, end // 15_000)
        assert total["known_seconds"] == sums["known"]
        assert total["nominal_weight_seconds"] == sums["nominal"]
        assert total["lower_loss_weight_seconds"] == sums["lower"] + 100 * total["unknown_seconds"]
        assert total["higher_loss_weight_seconds"] == sums["upper"]
        assert (total["down_seconds"], total["degraded_seconds"]) == (sums["down"], sums["degraded"])
        young = max(0, FIRST_MINUTE * 60 - before)  # nothing counts before the first evidence
        assert total["counted_seconds"] == 2 * (length - young)
        states = sum(total[f"{state.value}_seconds"] for state in State if state is not State.UNKNOWN)
        assert states == total["known_seconds"]
        for name, value in total.items():
            if name.endswith("_seconds"):
                assert sum(line[name] for line in answer["results"]) == value
        assert len(answer["results"]) == {"cluster": 1, "node": 1, "gpu": 2, "model": 1}[group]


def test_an_answer_by_gpu_that_reads_too_much_says_how_to_ask(read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleet.selectors_api_availability.MAX_NODE_HOURS", 10)
    refused = read("/v1/availability?group=gpu")
    assert refused.status_code == 422
    assert "Page through it: at most 5 hours" in refused.json()["errors"]["group"][0]
    assert read("/v1/availability?group=node").status_code == 200


def test_events_are_decoded_and_name_their_batch(read: Any, north_id: int, hour_ms: int) -> None:
    path = f"/v1/events?from={at(hour_ms)}&to={at(hour_ms + HOUR_MS)}"
    (event,) = read(path).json()["results"]
    assert (event["kind"], event["code"], event["reason"], event["party"]) == ("xid", 79, "XID_79", "infrastructure")
    assert (event["gpu_index"], event["pci_bus_id"], event["node_id"]) == (1, "0000:11:00.0", north_id)
    assert read(f"/v1/batches/{event['batch_sha256']}").json()["node"] == "north-1"
    assert read(f"{path}&node_id={north_id}&page_size=1").json()["results"] == [event]
    assert read(f"{path}&cluster=south").json()["results"] == []


def test_many_batches_are_too_many_for_events(read: Any, monkeypatch: pytest.MonkeyPatch, hour_ms: int) -> None:
    monkeypatch.setattr("fleet.selectors_api_facts.MAX_BATCHES", 3)
    response = read(f"/v1/events?from={at(hour_ms)}&to={at(hour_ms + HOUR_MS)}")
    assert response.status_code == 422
    assert "Page through it" in response.json()["errors"]["to"][0]


def test_a_slot_is_explained_from_verdict_to_bytes(read: Any, north_id: int, hour_ms: int, incident_id: int) -> None:
    when = at(hour_ms + (LOST_FROM + 1) * MINUTE_MS)
    found = read(f"/v1/gpus/{north_id}/1/explain?at={when}").json()
    assert found["verdict"]["weight"] == 0
    reasons = {reason["code"]: reason for reason in found["reasons"]}
    assert reasons["GPU_MISSING"]["party"] == "infrastructure"
    assert "NVML listing the device again" in reasons["GPU_MISSING"]["ends"]
    assert [incident["id"] for incident in found["incidents"]] == [incident_id]
    assert found["events"][0]["code"] == 79
    in_slot = [sample for sample in found["samples"] if found["from"][:19] <= sample["at"][:19] < found["to"][:19]]
    assert in_slot
    assert not in_slot[0]["listed"]
    assert in_slot[0]["pci"] == "absent"
    for fact in (*found["samples"], *found["events"]):
        assert read(f"/v1/batches/{fact['batch_sha256']}").status_code == 200


def explain(**options: str) -> str:
    """What the command prints."""
    out = StringIO()
    call_command("explain", stdout=out, **options)
    return out.getvalue()


def test_the_command_explains_on_one_screen(filled: Any, hour_ms: int, incident_id: int) -> None:
    when = at(hour_ms + (LOST_FROM + 1) * MINUTE_MS)
    text = explain(org="alpha", gpu="GPU-north-1-1", at=when)
    assert len(text.splitlines()) <= 40
    for part in (
        "north-1 GPU 1 (GPU-north-1-1) in north",
        "VERDICT  observed, weight 0",
        "GPU_MISSING (certain): GPU missing.",
        "party infrastructure, weight 0, contract category hardware_failure",
        "ends with: NVML listing the device again",
        f"INCIDENT {incident_id}: ",
        "NVML does not list it, PCI absent",
        "xid 79 on GPU 1  batch ",
        "Rule set ",
    ):
        assert part in text, part
    assert explain(org="alpha", gpu="north-1/1", at=when) == text
    healthy = explain(org="alpha", gpu="north-1/0", at=at(hour_ms + 43 * MINUTE_MS))
    assert "No reason: nothing speaks against it." in healthy
    assert "sm_clock=1980" in healthy


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"org": "nobody", "gpu": "x", "at": "2026-01-01T00:00:00Z"}, "no org"),
        ({"org": "alpha", "gpu": "GPU-none", "at": "2026-01-01T00:00:00Z"}, "NODE/INDEX"),
        ({"org": "alpha", "gpu": "north-1/9", "at": "2026-01-01T00:00:00Z"}, "No GPU"),
        ({"org": "alpha", "gpu": "north-1/0", "at": "now"}, "RFC 3339"),
    ],
)
def test_the_command_says_what_it_can_not_find(filled: Any, options: dict[str, str], says: str) -> None:
    with pytest.raises(CommandError, match=says):
        explain(**options)


def test_a_silent_past_is_explained_too(filled: Any) -> None:
    text = explain(org="alpha", gpu="north-1/0", at="2026-01-01T00:00:00Z")
    assert "VERDICT  unknown, weight not counted" in text
    assert "none within five minutes" in text


def test_availability_of_the_last_day_is_that_of_the_fleet_page(filled: Any) -> None:
    fill(filled, "fresh", "fresh-1", with_fault=False, minutes=42, first=int(time.time() * 1000) - 43 * MINUTE_MS)
    now = timezone.now()
    with tenant_context(filled):
        fleet = get_fleet(now, strips=False)
        window = fleet.window
        span = Span(window.first_slot, window.now_slot)
        whole = get_availability(now, span, "node", Wanted()).whole
        by_gpu = get_availability(now, span, "gpu", Wanted()).whole
    assert by_gpu == whole
    sums = fleet.sums
    assert (whole.known, whole.unknown, whole.nominal) == (sums.known, sums.unknown, sums.nominal)
    assert (whole.lower + 100 * whole.unknown, whole.upper) == (sums.lower, sums.upper)
    assert (whole.down, whole.degraded, whole.states[State.HELD]) == (sums.down, sums.degraded, sums.held)
