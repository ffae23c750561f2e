"""The judgement: what the oracle's books say against what is held. Pure; each finding names its invariant.

The numbers are those of facts/reliability section 4.4. A run is good when there is no finding.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from fleet.domain.slots import SLOT_S, SLOTS_PER_HOUR, first_slot
from fleet.domain.verdicts import State, Verdict
from goodput_site.chaos.oracle import Books
from goodput_site.chaos.server_side import Held

K = TypeVar("K")
SLOT_MS = SLOT_S * 1000
VOUCHED_MS = 37_500  # fold.md 5
OUTBOX_MOST_BYTES = 64_000_000


@dataclass(frozen=True)
class Finding:
    """One broken promise: the invariant, a sentence, and how many cases of it there are."""

    invariant: str
    what: str
    count: int = 1


def judge(books: Books, held: Held) -> list[Finding]:
    """Every invariant that two data sets can show; an empty list is a good run."""
    checks = (
        no_acked_batch_is_lost(books, held),
        no_kept_sample_is_lost(books, held),
        nothing_is_invented(books, held),
        nothing_is_doubled(held),
        sequences_have_no_hole(books, held),
        everything_is_folded(held),
        hours_add_up(held),
        verdicts_are_true(books, held),
        orgs_stay_apart(books, held),
        outboxes_stay_small(held),
    )
    return [finding for findings in checks for finding in findings]


def no_acked_batch_is_lost(books: Books, held: Held) -> Iterator[Finding]:
    """I1, I5: whatever was receipted stands in an inbox, with bytes of the receipted hash."""
    stored = {batch.sha256 for batch in held.batches if batch.is_whole}
    lost = set(books.acked) - stored
    if lost:
        yield Finding("I1", f"receipted batches are missing, such as {_some(lost)}", len(lost))


def no_kept_sample_is_lost(books: Books, held: Held) -> Iterator[Finding]:
    """I2: a sample that reached a disk is at the server, in its outbox, in quarantine, or was in a damaged file."""
    at_server = {sample for batch in held.batches for sample, _ in batch.samples}
    damaged = {line["node"] for line in books.damaged}
    lost = {s for s in books.kept - at_server - held.queued - held.quarantined if s[0] not in damaged}
    if lost:
        yield Finding("I2", f"kept samples are nowhere, such as {_some(lost)}", len(lost))
    if held.quarantined:
        yield Finding("I2", f"samples were refused for good, such as {_some(held.quarantined)}", len(held.quarantined))
    if held.queued:
        yield Finding("I14", f"samples still wait in an outbox, such as {_some(held.queued)}", len(held.queued))


def nothing_is_invented(books: Books, held: Held) -> Iterator[Finding]:
    """I3: every sample at the server was taken, with this content, and every row's bytes have their hash."""
    broken = [batch.sha256 for batch in held.batches if not batch.is_whole]
    if broken:
        yield Finding("I3", f"bytes differ from their hash, such as {_some(broken)}", len(broken))
    found = [s for batch in held.batches if batch.node in books.orgs for s in batch.samples]
    strange = {sample for sample, digest in found if digest not in books.taken.get(sample, ())}
    if strange:
        yield Finding("I3", f"samples at the server that no agent took so, such as {_some(strange)}", len(strange))


def nothing_is_doubled(held: Held) -> Iterator[Finding]:
    """I4, I16: a sample stands in one batch, a batch in one row."""
    samples = Counter(sample for batch in held.batches for sample, _ in batch.samples)
    twice = {sample for sample, count in samples.items() if count > 1}
    if twice:
        yield Finding("I4", f"samples stand in several batches, such as {_some(twice)}", len(twice))
    rows = Counter((batch.org, batch.agent_id, batch.seq) for batch in held.batches if batch.seq is not None)
    again = {key for key, count in rows.items() if count > 1}
    if again:
        yield Finding("I4", f"a seq stands in several rows, such as {_some(again)}", len(again))


def sequences_have_no_hole(books: Books, held: Held) -> Iterator[Finding]:
    """I6: per installation the server has every seq up to the newest, but for tombstones and the quarantine."""
    seqs: dict[str, set[int]] = defaultdict(set)
    nodes: dict[str, str] = {}
    for batch in held.batches:
        if batch.agent_id is not None and batch.seq is not None:
            seqs[batch.agent_id].add(batch.seq)
            nodes[batch.agent_id] = batch.node
    damaged = {line["node"] for line in books.damaged}
    holes = {
        (agent_id, seq)
        for agent_id, found in seqs.items()
        if nodes[agent_id] not in damaged
        for seq in set(range(1, max(found) + 1)) - found
    } - held.buried
    if holes:
        yield Finding("I6", f"seq is missing without a tombstone, such as {_some(holes)}", len(holes))


def everything_is_folded(held: Held) -> Iterator[Finding]:
    """I7: no batch waits for the fold once all is quiet."""
    if held.waiting:
        yield Finding("I7", "batches are not folded", held.waiting)


def hours_add_up(held: Held) -> Iterator[Finding]:
    """I8: a GPU's hour has 3600 s, in the row and in its columns."""
    wrong = [key for key, (gpus, seconds) in held.sums.items() if gpus * 3600 != seconds]
    wrong += [
        key
        for key, row in held.hours.items()
        for rollup in row.rollups().values()
        if sum(rollup.seconds.values()) != 3600
    ]
    if wrong:
        yield Finding("I8", f"hours that do not add up, such as {_some(wrong)}", len(wrong))


def verdicts_are_true(books: Books, held: Held) -> Iterator[Finding]:
    """Of a healthy node, I10: 100 in each slot that its samples vouch for; I17: unknown in every other slot."""
    instants: dict[tuple[str, str], dict[str | None, list[int]]] = defaultdict(lambda: defaultdict(list))
    for batch in held.batches:
        if books.sims.get(batch.node) == "healthy":
            of_one = instants[batch.org, batch.node][batch.agent_id]
            of_one += [books.when[s] for s, _ in batch.samples if s in books.when]
    wrong: list[tuple[str, int, str]] = []
    invented: list[tuple[str, int, str]] = []
    for (org, node), found in instants.items():
        known = set().union(*map(vouched_slots, found.values()))
        last = max(map(max, filter(None, found.values())), default=0) // SLOT_MS
        for (row_org, row_node, hour), row in held.hours.items():
            if (row_org, row_node) != (org, node):
                continue
            for subject in row.subjects():
                if subject[0] == "g":
                    for slot, said in wrong_slots(row.verdicts(subject), hour, known, last):
                        (wrong if slot in known else invented).append((node, slot, f"{subject}: {said}"))
        missing = {slot // SLOTS_PER_HOUR for slot in known} - {h for o, n, h in held.hours if (o, n) == (org, node)}
        wrong += [(node, hour * SLOTS_PER_HOUR, "no row") for hour in missing]
    if wrong:
        yield Finding("I10", f"slots of a healthy node with an untrue verdict, such as {_some(wrong)}", len(wrong))
    if invented:
        yield Finding("I17", f"slots without a sample that are not unknown, such as {_some(invented)}", len(invented))


def vouched_slots(instants_ms: Iterable[int]) -> set[int]:
    """The slots that good samples at these instants (of one boot and one installation) vouch for: fold.md 4 and 5,
    written once more. An installation that begins anew, as after a damaged outbox, vouches for nothing of before."""
    ordered = sorted(set(instants_ms))
    slots = {instant // SLOT_MS for instant in ordered}
    for before, after in pairwise(ordered):
        if after - before <= VOUCHED_MS:
            slots.update(range(before // SLOT_MS, after // SLOT_MS))
    return slots


def wrong_slots(verdicts: list[Verdict], hour: int, known: set[int], last: int) -> Iterator[tuple[int, Verdict]]:
    """The slots of an hour whose verdict is neither 100 where it is known nor unknown elsewhere, before `last`,
    which nothing has closed yet."""
    for slot, verdict in enumerate(verdicts, first_slot(hour)):
        if slot >= last:
            return
        is_good = verdict.state is State.OBSERVED and verdict.nominal == verdict.lower == verdict.upper == 100
        if not (is_good if slot in known else verdict.state is State.UNKNOWN):
            yield slot, verdict


def orgs_stay_apart(books: Books, held: Held) -> Iterator[Finding]:
    """I12: each org holds its own agents' batches and nothing of another's."""
    strays = [b.sha256 for b in held.batches if b.node in books.orgs and books.orgs[b.node] != b.org]
    strays += [
        b.sha256 for b in held.batches if b.cluster.startswith("cluster-of-") and b.cluster != f"cluster-of-{b.org}"
    ]
    if strays:
        yield Finding("I12", f"batches in another org's inbox, such as {_some(strays)}", len(strays))


def outboxes_stay_small(held: Held) -> Iterator[Finding]:
    """I15: an outbox with its side files stays under its cap."""
    if held.outbox_bytes > OUTBOX_MOST_BYTES:
        yield Finding("I15", f"an outbox of {held.outbox_bytes} bytes")


def same_rows(before: Mapping[K, bytes], after: Mapping[K, bytes]) -> Iterator[Finding]:
    """I11: folded again from the facts, final rows come out byte for byte."""
    changed = [key for key in before if before[key] != after.get(key)]
    if changed:
        yield Finding("I11", f"rows differ after a refold, such as {_some(changed)}", len(changed))


def _some(items: Iterable[object]) -> str:
    return ", ".join(map(str, sorted(items, key=str)[:3]))


def lost(findings: Iterable[Finding]) -> int:
    """Batches and samples that are gone."""
    return sum(f.count for f in findings if f.invariant in ("I1", "I2"))


def doubled(findings: Iterable[Finding]) -> int:
    """Samples and batches that count twice."""
    return sum(f.count for f in findings if f.invariant == "I4")


def unexplained_gaps(findings: Iterable[Finding]) -> int:
    """Holes in a sequence that nothing accounts for."""
    return sum(f.count for f in findings if f.invariant == "I6")
