"""Strips: what is drawn is where it was, nothing bad is lost, unknown stays bare, the picture stays small."""

from __future__ import annotations

import re

import pytest

from fleet.selectors_hours import Stretch, merge, stretches_of
from fleet.strip_drawing import HALF, LEAST_WIDTH, MOST_RUNS, WIDTH, draw

DAY = 5760


def spans(strip: object, css: str) -> list[tuple[int, int]]:
    """(left, right) of what a strip draws in a class."""
    return [
        (int(left), int(left) + int(width))
        for layer in strip.layers  # type: ignore[attr-defined]
        if layer.css == css
        for left, width in re.findall(r"M(\d+) \d+h(\d+)", layer.d)
    ]


def well(first: int, end: int) -> Stretch:
    return Stretch(first, end, "available", 8, 8, 0)


def test_a_healthy_day_is_one_run() -> None:
    strip = draw([well(0, DAY)], 0, DAY)
    assert spans(strip, "available") == [(0, WIDTH)]
    assert strip.words == "available 24 h 0 min"


def test_unknown_time_is_drawn_by_nothing() -> None:
    strip = draw([well(0, 100), Stretch(100, DAY, "unknown", 8, 8, 8)], 0, DAY)
    assert spans(strip, "available") == [(0, 25)]
    assert {layer.css for layer in strip.layers} == {"available"}
    assert strip.words == "unknown 23 h 35 min, available 25 min"


def test_before_the_first_sample_there_is_a_plain_ground() -> None:
    assert spans(draw([well(DAY // 2, DAY)], 0, DAY, DAY // 2), "none") == [(0, WIDTH // 2)]


def test_what_a_live_node_has_not_reported_yet_is_no_unknown_time() -> None:
    strip = draw([well(0, DAY - 8)], 0, DAY, 0, DAY - 8)
    assert spans(strip, "none") == [(WIDTH - 2, WIDTH)]
    assert strip.words == "available 23 h 58 min"


@pytest.mark.parametrize("at", [0, 1, 2879, DAY - 1])
def test_one_bad_slot_is_seen_wherever_it_lies(at: int) -> None:
    strip = draw([well(0, at), Stretch(at, at + 1, "down", 1, 8, 0), well(at + 1, DAY)], 0, DAY)
    ((left, right),) = spans(strip, "down")
    assert right - left >= LEAST_WIDTH
    assert left <= at * WIDTH // DAY <= right
    assert right <= WIDTH
    assert "down 15 s" in strip.words


def test_the_height_is_the_share_of_the_gpus() -> None:
    heights = {}
    for affected in (1, 4, 8):
        (layer,) = (
            layer for layer in draw([Stretch(0, DAY, "down", affected, 8, 0)], 0, DAY).layers if layer.css == "down"
        )
        heights[affected] = layer.stroke
    assert heights[1] < heights[4] < heights[8]
    assert heights[8] >= 2 * HALF


def test_a_flickering_day_stays_small_and_loses_no_bad_time() -> None:
    bad = [Stretch(slot, slot + 1, "degraded", 1, 8, 0) for slot in range(0, DAY, 4)]
    strip = draw(bad, 0, DAY)
    drawn = spans(strip, "degraded")
    assert len(drawn) <= MOST_RUNS
    for one in bad:
        assert any(left <= one.first * WIDTH // DAY <= right for left, right in drawn)


def test_far_apart_faults_are_not_drawn_as_one() -> None:
    bad = [Stretch(hour * 240, hour * 240 + 2, "down", 1, 8, 0) for hour in range(24)]
    assert len(spans(draw(bad, 0, DAY), "down")) == 24


def test_the_worst_gpu_names_the_node_and_counts_its_likes() -> None:
    gpus = [((0, 240, "available"),), ((0, 100, "available"), (100, 240, "down")), ((0, 240, "degraded"),)]
    assert stretches_of(gpus, 240) == [
        Stretch(0, 100, "degraded", 1, 3, 0),
        Stretch(100, 240, "down", 1, 3, 0),
    ]


def test_what_is_open_is_no_stretch() -> None:
    assert stretches_of([((0, 60, "available"), (60, 240, "unknown"))], 60) == [Stretch(0, 60, "available", 1, 1, 0)]
    assert stretches_of([], 0) == []


def test_neighbours_that_say_the_same_become_one() -> None:
    assert merge([well(0, 5), well(5, 9), well(10, 12)]) == [well(0, 9), well(10, 12)]
