"""When a change is told and when not, and what stays inert in each form."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.domain.alerting import formats
from fleet.domain.alerting.damping import MANY, QUIET, RETRIES, Known, decide, digest_due, retry_after
from fleet.domain.alerting.message import Message, lasted
from fleet.domain.alerting.template import MAX_DEPTH, TemplateInvalid, filled, parse_template

NOW = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
HOLD = timedelta(seconds=60)
NEW, TOLD = Known(was_told=False), Known(was_told=True)
MESSAGE = Message(
    org="acme",
    key="incident-7",
    kind="incident",
    what="opened",
    severity="critical",
    title="GPU 3 of node-17: GPU missing",
    text="It is gone.",
    began_at="2026-11-30T08:50:00Z",
    at="2026-11-30T09:00:00Z",
    url="https://goodput.example/o/acme/incidents/7/",
    party="infrastructure",
    cluster="main",
    facts={"code": "GPU_MISSING", "shown": [["Where", "GPU 3"]], "parts": 1},
)


def test_what_opens_waits_for_the_hold() -> None:
    found = decide("opened", NEW, NOW, HOLD, NOW, None)
    assert (found.do, found.what, found.due_at) == ("new", "opened", NOW + HOLD)


@pytest.mark.parametrize(("seconds", "does"), [(59, "damp"), (60, "merge")])
def test_what_is_over_within_the_hold_is_not_told_unless_it_lasted_that_long(seconds: int, does: str) -> None:
    began = NOW - timedelta(seconds=seconds)
    found = decide("resolved", replace(NEW, waiting="opened"), NOW, HOLD, began, NOW)
    assert (found.do, found.is_over) == (does, does == "merge")
    pager = replace(NEW, waiting="opened", is_pager=True)
    assert decide("resolved", pager, NOW, HOLD, began, NOW).do == "damp"


def test_the_end_of_what_was_never_told_is_not_told() -> None:
    for what in ("resolved", "acknowledged"):
        assert decide(what, NEW, NOW, HOLD, NOW, NOW).do == "nothing"


def test_what_was_told_ends_at_once() -> None:
    found = decide("resolved", TOLD, NOW, HOLD, NOW, NOW)
    assert (found.do, found.what, found.due_at) == ("new", "resolved", NOW)


def test_changes_go_into_the_message_that_waits() -> None:
    assert decide("worsened", replace(NEW, waiting="opened"), NOW, HOLD, NOW, None).do == "merge"
    again = decide("opened", replace(TOLD, waiting="resolved"), NOW, HOLD, NOW, None)
    assert (again.do, again.what) == ("merge", "worsened")


def test_after_many_messages_within_an_hour_the_next_waits() -> None:
    recent = tuple(NOW - timedelta(minutes=10 * n) for n in range(1, MANY + 1))
    for what in ("worsened", "resolved"):
        assert decide(what, replace(TOLD, recent=recent), NOW, HOLD, NOW, NOW).due_at == max(NOW, recent[0] + QUIET)
        assert decide(what, replace(TOLD, recent=recent[1:]), NOW, HOLD, NOW, NOW).due_at == NOW


def test_a_reminder_always_goes() -> None:
    for known in (NEW, TOLD, replace(TOLD, waiting="worsened")):
        assert decide("reminder", known, NOW, HOLD, NOW, None).do == "new"


def test_digests_end_at_even_times() -> None:
    assert digest_due(NOW.replace(minute=1), 15) == NOW.replace(minute=15)
    assert digest_due(NOW.replace(minute=15), 15) == NOW.replace(minute=15)
    assert digest_due(NOW, 1440) == datetime(2026, 12, 1, tzinfo=UTC)
    assert digest_due(datetime(2026, 11, 30, tzinfo=UTC), 60) > datetime(2026, 11, 30, tzinfo=UTC)


def test_retries_grow_for_a_day_and_end() -> None:
    waits = [retry_after(attempts) for attempts in range(1, len(RETRIES) + 1)]
    assert all(wait is not None for wait in waits)
    assert timedelta(hours=23) < sum(RETRIES, timedelta()) < timedelta(hours=25)
    assert retry_after(len(RETRIES) + 1) is None
    assert retry_after(1, timedelta(minutes=5)) == timedelta(minutes=5)
    assert retry_after(1, timedelta(days=9)) == timedelta(hours=1)


WHATS = st.sampled_from(["opened", "worsened", "resolved", "acknowledged"])


@given(st.lists(st.tuples(WHATS, st.integers(0, 600)), max_size=40))
def test_what_is_told_begins_and_ends_in_turn(changes: list[tuple[str, int]]) -> None:
    """Whatever happens, nobody hears two beginnings or two ends in a row, and an end only after a beginning."""
    now, told, recent = NOW, [], []
    waiting: tuple[str, datetime] | None = None
    for what, seconds in changes:
        now += timedelta(seconds=seconds)
        if waiting and waiting[1] <= now:
            told.append(waiting[0])
            recent.append(waiting[1])
            waiting = None
        known = Known(
            was_told=bool(told) and told[-1] != "resolved",
            waiting=waiting[0] if waiting else None,
            recent=tuple(at for at in recent if at > now - timedelta(hours=1)),
        )
        found = decide(what, known, now, timedelta(), now, now)
        if found.do == "damp":
            waiting = None
        elif found.do == "new":
            assert waiting is None
            assert found.due_at is not None
            waiting = found.what, found.due_at
        elif found.do == "merge":
            assert waiting is not None
            waiting = found.what, min(found.due_at or waiting[1], waiting[1])
    for before, after in zip(["resolved", *told], told, strict=False):
        if after == "opened":
            assert before == "resolved"
        if after in ("worsened", "acknowledged"):
            assert before != "resolved"
    assert len(told) <= len(changes)


def test_each_form_names_what_broke() -> None:
    assert formats.subject(MESSAGE) == "[Goodput acme] GPU 3 of node-17: GPU missing"
    assert formats.subject(replace(MESSAGE, what="resolved")).startswith("Re: [Goodput acme]")
    text = formats.plain_text(replace(MESSAGE, what="resolved", ended_at="2026-11-30T09:00:00Z", changes=3))
    assert "Resolved: GPU 3 of node-17" in text
    assert "Until: 2026-11-30T09:00:00Z (10 min)" in text
    assert "Changes in this message: 3" in text
    assert "shown" not in json.dumps(formats.webhook_payload(MESSAGE, "u"))
    event = formats.pagerduty_event(replace(MESSAGE, title="x" * 3000), "R" * 32)
    assert len(event["payload"]["summary"]) == 1024
    assert len(formats.pagerduty_event(replace(MESSAGE, key="k" * 300), "R")["dedup_key"]) == 255
    assert lasted("2026-11-30T08:59:15Z", "2026-11-30T09:00:00Z") == "45 s"
    assert formats.digest_text([MESSAGE, MESSAGE]).startswith("2 messages.")


def test_a_reminder_of_another_kind_has_a_head_of_its_own() -> None:
    assert replace(MESSAGE, kind="deadline", what="reminder").head == "Reminder"
    assert replace(MESSAGE, kind="silence").head == "Silent"
    assert replace(MESSAGE, kind="budget", what="worsened").head == "Uptime"


@given(st.text(max_size=60))
def test_no_text_gets_out_of_its_place(text: str) -> None:
    message = replace(MESSAGE, title=text, text=text)
    slack = json.dumps(formats.slack_payload([message]), ensure_ascii=False)
    assert "<" not in slack
    assert all(part.startswith("\u200b") for part in slack.split("@")[1:])
    assert "\n" not in formats.subject(message)
    template = parse_template('{"a": "{title}", "b": ["x {title} y", "{facts.parts}"], "c": {"d": true}}')
    assert filled(template, message, "u") == {"a": text, "b": [f"x {text} y", 1], "c": {"d": True}}


@pytest.mark.parametrize(
    "text",
    [
        *("", "no json", "[1]", '"x"', '{"a": "{nobody}"}', '{"a": [{"b": "{secret}"}]}', "[" * 100_000),
        json.dumps({"a": "x" * 9000}),
        '{"a":' * (MAX_DEPTH + 2) + "1" + "}" * (MAX_DEPTH + 2),
    ],
)
def test_a_template_that_can_not_work_is_refused(text: str) -> None:
    with pytest.raises(TemplateInvalid):
        parse_template(text)


def test_braces_that_name_nothing_stay_as_they_are() -> None:
    assert (
        filled(parse_template('{"a": "{} {0} {A} {{title}}"}'), MESSAGE, "u")["a"]
        == f"{{}} {{0}} {{A}} {{{MESSAGE.title}}}"
    )
