"""clock.csv: what each enclosed batch said of its clock, beside when the server took it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from claims.domain.periods import utc_text
from claims.verify.batches import facts_of_batch
from claims.verify.documents import enclosed, read

Files = Mapping[str, bytes]
HEAD = (
    "node", "sha256", "seq", "received_utc", "first_sample_utc", "last_sample_utc", "clock", "max_error_ms",
    "received_after_last_sample_ms",
)  # fmt: skip
Line = tuple[str, str, str, str, str, str, str, str, str]


def clock_lines(files: Files) -> Iterator[Line]:
    """A line for each batch of the windows, in the order of their receipt."""
    named = set(enclosed(files))
    for one in read(files, "skeleton.json"):
        if one["sha256"] not in named:
            continue
        facts = facts_of_batch(files[f"batches/{one['sha256']}.msgpack.gz"])
        first, last = min(facts.instants), max(facts.instants)
        received_ms = int(one["received_us"]) // 1000
        yield (
            one["node"],
            one["sha256"],
            one["seq"] or "",
            utc_text(received_ms),
            utc_text(first),
            utc_text(last),
            " ".join(sorted(set(facts.clocks))) or "not said",
            str(max(facts.errors_ms)) if facts.errors_ms else "",
            str(received_ms - last),
        )
