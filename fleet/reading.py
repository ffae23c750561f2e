"""The shapes of one reading of the fleet: what was asked for, and clusters, nodes and GPUs with their figures."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum

from fleet.attention import Trouble
from fleet.domain.slots import SLOTS_PER_HOUR, hour_of, slot_of
from fleet.hour_sums import Sums
from fleet.selectors_hours import Bounds, Window
from fleet.selectors_live import Gpu, NodeNow, to_ms
from fleet.strip_drawing import Strip


class Period(Enum):
    """The periods that a page offers: whole hours up to now."""

    DAY = ("24h", "24 h", 24)
    WEEK = ("7d", "7 d", 7 * 24)
    MONTH = ("30d", "30 d", 30 * 24)
    QUARTER = ("90d", "90 d", 90 * 24)

    def __init__(self, key: str, label: str, hours: int):
        self.key, self.label, self.hours = key, label, hours
        self.is_past = False

    @classmethod
    def of(cls, key: str | None) -> Period:
        """The period with this key; 24 h for anything else."""
        return next((period for period in cls if period.key == key), cls.DAY)

    def window(self, now: datetime) -> Window:
        """Its hours: the current one and those before."""
        ms = to_ms(now)
        return Window(hour_of(ms) - self.hours + 1, hour_of(ms), slot_of(ms))


MOST_DAYS = 31  # of a span of days on a page
_SPAN = re.compile(r"(\d{4}-\d\d-\d\d)\.\.(\d{4}-\d\d-\d\d)")
_MONTH = re.compile(r"(\d{4})-(\d\d)")


class BadPeriod(ValueError):
    """A period that no page shows; the message names the field and says what is possible."""


@dataclass(frozen=True)
class DaySpan:
    """Whole UTC days, both ends included: a month (`2026-11`) or any span (`2026-11-03..2026-11-09`)."""

    first: date
    last: date
    key: str
    label: str
    is_past: bool

    @property
    def hours(self) -> int:
        """Its length."""
        return ((self.last - self.first).days + 1) * 24

    def window(self, now: datetime) -> Window:
        """Its hours; of the day of now, those up to now."""
        first_hour = hour_of(to_ms(datetime.combine(self.first, time(), UTC)))
        end_hour = min(first_hour + self.hours, hour_of(to_ms(now)) + 1)
        return Window(first_hour, end_hour - 1, min(end_hour * SLOTS_PER_HOUR, slot_of(to_ms(now))))


AnyPeriod = Period | DaySpan


def period_of(text: str | None, now: datetime) -> AnyPeriod:
    """The period that a URL names; 24 h for none and for a word that is none. Raises BadPeriod → 422 for bad days."""
    span, month = _SPAN.fullmatch(text or ""), _MONTH.fullmatch(text or "")
    if not span and not month:
        if text and (".." in text or (text[:1].isdigit() and "-" in text)):
            raise BadPeriod("period: a month such as 2026-11, or days such as 2026-11-03..2026-11-09, UTC.")
        return Period.of(text)
    today = now.astimezone(UTC).date()
    try:
        if month:
            first = date(int(month[1]), int(month[2]), 1)
            last = (first + timedelta(days=31)).replace(day=1) - timedelta(days=1)
        elif span:
            first, last = date.fromisoformat(span[1]), date.fromisoformat(span[2])
    except (ValueError, OverflowError) as error:
        raise BadPeriod("period: there is no such day.") from error
    if first > last or first > today or first.year < 2015:
        raise BadPeriod("period: its first day must not lie behind its last one, in the future or before 2015.")
    last = min(last, today)
    if (last - first).days >= MOST_DAYS:
        raise BadPeriod(f"period: at most {MOST_DAYS} days at a time; go through a longer one month by month.")
    label = f"{first.day} {first:%b} to {last.day} {last:%b}"
    if month:
        label = f"{first:%b}" if first.year == today.year else f"{first:%b %Y}"
    return DaySpan(first, last, text or "", label, last < today)


@dataclass(frozen=True)
class Filter:
    """What of the fleet is asked for. `page` None = all pages; `opened` = the node whose GPUs are listed."""

    state: str = ""
    cluster: str = ""
    search: str = ""
    page: int | None = 1
    opened: int | None = None

    @property
    def is_narrow(self) -> bool:
        """Whether it leaves anything out besides by paging."""
        return bool(self.state or self.cluster or self.search)


@dataclass(frozen=True)
class PlaceRow:
    """A GPU's place of the opened node, over the period."""

    gpu: Gpu
    sums: Sums
    strip: Strip

    @property
    def label(self) -> str:
        """Its name for a text alternative."""
        return f"GPU {self.gpu.place}"


@dataclass(frozen=True)
class NodeRow:
    """A node: what it is now and what it was over the period."""

    id: int
    name: str
    cluster_id: int
    cluster: str
    is_simulated: bool
    now: NodeNow
    last_sample_ms: int | None
    bounds: Bounds
    sums: Sums
    agent_version: str
    dropped_total: int
    troubles: tuple[Trouble, ...]
    strip: Strip | None = None
    places: tuple[PlaceRow, ...] = ()
    label: str = ""

    @property
    def shown(self) -> str:
        """What people call it; `name` is what its agent says, and what URLs and contracts name."""
        return self.label or self.name

    @property
    def is_thin(self) -> bool:
        """Whether so little of its time is known that its availability must say so: less than 95 of 100."""
        return 100 * self.sums.known < 95 * self.sums.all

    @property
    def is_well(self) -> bool:
        """Whether there is nothing to say of it: available, nothing lost in the period, and known well enough."""
        return self.now.word == "available" and not (self.troubles or self.sums.lost_ws or self.is_thin)

    @property
    def more_count(self) -> int:
        """What is wrong with it besides its first trouble."""
        return len(self.troubles) - 1 + len(self.troubles[0].also) if self.troubles else 0

    @property
    def tip(self) -> str:
        """Its GPUs in one sentence, those that are not well by index and UUID."""
        parts = [f"{self.shown}: {self.now.count('available')} of {len(self.now.gpus)} GPUs available"]
        bad = [gpu for gpu in self.now.gpus if gpu.word != "available" or gpu.marks]
        parts += [f"GPU {gpu.place} ({gpu.short or 'UUID not known'}) {gpu.word}" for gpu in bad[:4]]
        return "; ".join(parts) + (f"; and {len(bad) - 4} more" if len(bad) > 4 else "")


@dataclass(frozen=True)
class ClusterRows:
    """A cluster: all its figures, and those of its nodes that are shown."""

    id: int
    name: str
    is_simulated: bool
    node_count: int
    gpu_count: int
    models: str
    sums: Sums
    matching: int
    nodes: tuple[NodeRow, ...]
    page: int
    pages: int
    label: str = ""
    domains: int = 0  # NVLink domains that its nodes name
    is_rest_well: bool = False

    @property
    def shown(self) -> str:
        """What people call it."""
        return self.label or self.name

    @property
    def previous_page(self) -> int:
        """The page of the worse nodes."""
        return self.page - 1

    @property
    def next_page(self) -> int:
        """The page of the better nodes."""
        return self.page + 1

    @property
    def hidden(self) -> int:
        """How many matching nodes are not shown here."""
        return self.matching - len(self.nodes)


@dataclass(frozen=True)
class Fleet:
    """A reading of the fleet at `as_of_ms`; figures are of everything, `clusters` of what the filter asks for.

    Strips begin with the slot `drawn_from`: with the window, or with a younger fleet's first evidence. `open_count` is
    of open incidents, the one number of what is broken: here, on the page of incidents and in the API.
    """

    as_of_ms: int
    period: AnyPeriod
    window: Window
    drawn_from: int
    filter: Filter
    clusters: tuple[ClusterRows, ...]
    more_clusters: tuple[ClusterRows, ...]
    troubles: tuple[Trouble, ...]
    sums: Sums
    counts: dict[str, int]
    marks: tuple[tuple[str, int], ...]
    node_count: int
    cluster_count: int
    silent: int
    dropped_total: int
    simulated: tuple[tuple[int, str], ...]
    has_real: bool
    matching: int
    open_count: int
    parties: tuple[tuple[str, int], ...]

    @property
    def gpu_count(self) -> int:
        """All GPUs."""
        return sum(self.counts.values())

    @property
    def hidden(self) -> int:
        """How many matching nodes stand on other pages."""
        return self.matching - sum(len(cluster.nodes) for cluster in self.clusters)

    @property
    def live_count(self) -> int:
        """Nodes that are heard."""
        return self.node_count - self.silent

    @property
    def chips(self) -> list[tuple[str, int]]:
        """States that have GPUs, what is not well first; the state that is filtered for always stands there.

        How many are available stands above them, so that word is a chip only where it is the filter.
        """
        bad = [(word, count) for word, count in self.counts.items() if count and word != "available"]
        chosen = self.filter.state
        return bad if not chosen or chosen in dict(bad) else [*bad, (chosen, self.counts[chosen])]

    @property
    def is_well(self) -> bool:
        """Whether every GPU is available, every node is heard, and nothing is open or asks for attention."""
        return self.counts["available"] == self.gpu_count > 0 and not (self.troubles or self.open_count or self.silent)

    @property
    def open_troubles(self) -> tuple[Trouble, ...]:
        """Conditions that lower a weight or may; silence is counted apart."""
        return tuple(trouble for trouble in self.troubles if trouble.is_condition)
