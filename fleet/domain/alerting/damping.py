"""When a change is told, and when not: flaps, faults that are over at once, many changes of one thread.

1. What opens waits `hold` seconds. What ends before that is told in one message if it lasted that long, else not.
2. Changes of a thread that come while a message about it waits go into that message.
3. After `MANY` messages about a thread within an hour the next waits `QUIET`: a flapping port is no reason to be woken
   every minute. It then tells how many changes there were and how things stand.
4. Nobody is told the end of what they were never told the beginning of.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

MANY = 4
WITHIN = timedelta(hours=1)
QUIET = timedelta(minutes=15)


@dataclass(frozen=True)
class Known:
    """What a channel knows of a thread. `waiting`: what the message that waits would tell, None without one.

    `was_told`: a beginning was told and no end since. `recent`: instants of the messages told within the last hour.
    `is_pager`: it tracks open troubles itself, so a message about something that is over makes no sense to it.
    """

    was_told: bool
    waiting: str | None = None
    recent: tuple[datetime, ...] = ()
    is_pager: bool = False


@dataclass(frozen=True)
class Decision:
    """What becomes of a change: `new` message, `merge` into the one that waits, `damp` that one, or `nothing`."""

    do: str
    what: str = ""
    due_at: datetime | None = None
    is_over: bool = False


NOTHING = Decision("nothing")


def decide(
    what: str, known: Known, now: datetime, hold: timedelta, began_at: datetime, ended_at: datetime | None
) -> Decision:
    """What a channel is told of a change. `what` as in words.WHATS."""
    if what == "reminder":
        return Decision("new", what, now)
    if what == "acknowledged":
        return Decision("new", what, now) if known.was_told and known.waiting is None else NOTHING
    if what == "resolved":
        return _resolved(known, now, hold, began_at, ended_at)
    told = "worsened" if known.was_told else "opened"
    if known.waiting is not None:
        return Decision("merge", told)
    return Decision("new", told, _due(known, now, timedelta() if known.was_told else hold))


def _resolved(known: Known, now: datetime, hold: timedelta, began_at: datetime, ended_at: datetime | None) -> Decision:
    if known.was_told:
        return Decision("new" if known.waiting is None else "merge", "resolved", _due(known, now, timedelta()))
    if known.waiting is None:
        return NOTHING
    lasted = (ended_at or now) - began_at
    if known.is_pager or lasted < hold:
        return Decision("damp")
    return Decision("merge", "resolved", _due(known, now, timedelta()), is_over=True)


def _due(known: Known, now: datetime, wait: timedelta) -> datetime:
    """When a new message goes out."""
    if len(known.recent) >= MANY:
        return max(now + wait, max(known.recent) + QUIET)
    return now + wait


def digest_due(due_at: datetime, minutes: int) -> datetime:
    """The end of the digest's period in which `due_at` lies: periods begin at midnight UTC."""
    midnight = due_at.replace(hour=0, minute=0, second=0, microsecond=0)
    period = timedelta(minutes=minutes)
    periods = -(-(due_at - midnight) // period)
    return midnight + period * max(1, periods)


RETRIES = tuple(timedelta(seconds=s) for s in (10, 30, 120, 600, 1800, *[3600] * 23))
MOST_ATTEMPTS = len(RETRIES) + 1  # about a day


def retry_after(attempts: int, asked: timedelta | None = None) -> timedelta | None:
    """How long to wait after this many failed attempts; at least as long as the other side asks. None: give up."""
    if attempts > len(RETRIES):
        return None
    wait = RETRIES[attempts - 1]
    return max(wait, min(asked, timedelta(hours=1))) if asked else wait
