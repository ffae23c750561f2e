"""`import`: what a kernel log saved as text holds (dmesg, journal, syslog, pstore). Shown, never sent.

Text proves little: anyone can write `kernel:` into a log. So lines read here become no events of a node.
"""

from __future__ import annotations

import re
from typing import Any, Iterator, Optional

from agent.collect.kmsg_parse import parse_event, parse_record

_PREFIXES = (
    # dmesg: `[  130.456250] [   T1946] `, with -T a date in the brackets; pstore: `<4>[  12.3]`
    re.compile(
        r"(?:<\d{1,3}>)?\[(?P<time>[ \d.]{5,20}|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4})\] "
        r"(?:\[ *[TC]\d+\] )?"
    ),
    # journal and syslog: `Sep 27 10:00:02 host kernel: [12.3] `, also with an ISO instant
    re.compile(
        r"(?P<time>[A-Z][a-z]{2} [ \d]\d [\d:]{8}(?:\.\d+)?|\d{4}-\d\d-\d\d[T ][\d:.,]{8,15}(?:Z|[+-]\d\d:?\d\d)?) \S+ "
        r"kernel: (?:\[ *\d+\.\d+\] )?"
    ),
)  # fmt: skip


def import_text(text: str) -> Iterator[dict[str, Any]]:
    """`{time, event}` of each line that is evidence; `time` is what the line says, as it says it."""
    for line in text.splitlines():
        found = parse_line(line)
        if found is not None:
            yield found


def parse_line(line: str) -> Optional[dict[str, Any]]:
    """The event of one line of text in any of the known forms; None for every other line."""
    record = parse_record(line)
    if record is not None:
        event = parse_event(record.text) if record.facility == 0 else None
        return None if event is None else {"time": f"{record.usec / 1e6:.6f}", "event": event}
    for prefix in _PREFIXES:
        match = prefix.match(line)
        if match is not None:
            event = parse_event(line[match.end() :])
            return None if event is None else {"time": match.group("time").strip(), "event": event}
    return None
