"""Packs give every batch back to the bit; sealed days keep what a verdict needs and lose what nobody needs."""

from __future__ import annotations

import gzip
import hashlib
import random
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from django_tenants.utils import tenant_context

from agent import wire
from fleet import evidence, holds, packs
from fleet.bodies import decompress
from fleet.domain import state, state_formats
from fleet.domain.state import NodeState
from fleet.folding import fold_waiting
from fleet.holds import Hold
from fleet.ingest import receive
from fleet.models import BatchMark, Inbox, Node, NodeHour, NodeLive, Pack, ReceiptSpan, SealedDay
from fleet.packing import Packing, pack_due
from fleet.peers import peer_spans
from fleet.refolding import refold_dirty, refold_everything
from fleet.sealing import DEGRADED, seal_due
from fleet.simulation import Plan, uploads
from fleet.tasks import fold_org
from fleet.tests.bodies import batch, packed
from fleet.tests.test_folding import HOUR_MS, deliver, key_for, rows, states
from fleet.waiting import retry_failed

pytestmark = pytest.mark.django_db
MONDAY = datetime(2026, 11, 2, tzinfo=UTC)
FIRST_MS = int((MONDAY + timedelta(hours=30)).timestamp()) * 1000
AFTER = MONDAY + timedelta(days=20)
PAST_HORIZON = MONDAY + timedelta(days=100)


@pytest.fixture
def inside(alpha: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The test runs inside alpha's schema, without what other apps ask of packing and sealing."""
    monkeypatch.setattr(holds, "_gates", [])
    monkeypatch.setattr(holds, "_sources", [])
    with tenant_context(alpha):
        yield alpha


def history(hours: int = 3, nodes: int = 2, seed: int = 31) -> list[bytes]:
    """Bodies of a simulated history in the week of MONDAY, minute by minute."""
    return [body for body, _ in uploads(Plan("sim", nodes, FIRST_MS, FIRST_MS + hours * HOUR_MS, seed))]


def healthy(hours: int) -> list[bytes]:
    """One node's hours in which nothing happens."""
    return [packed(first_ts=FIRST_MS + 7500 + minute * 60_000, seq=minute + 1)[0] for minute in range(60 * hours)]


def members() -> dict[bytes, bytes]:
    """sha256 → gzip member of everything in the inbox."""
    return {bytes(one.sha256): bytes(one.body) for one in Inbox.objects.all()}


def test_a_pack_gives_every_batch_back_to_the_bit() -> None:
    raws = [wire.encode(batch(seq=seq)) for seq in range(40)]
    makers = [
        lambda raw: gzip.compress(raw, 1, mtime=0),
        lambda raw: gzip.compress(raw, 6, mtime=0),
        lambda raw: gzip.compress(raw, 9, mtime=123_456_789),
        lambda raw: zlib.compress(raw, 3, wbits=31),  # a level that the header does not tell
        lambda raw: b"\x1f\x8b\x08\x08\0\0\0\0\0\xffname\0" + gzip.compress(raw, mtime=0)[10:],  # with a file name
    ]
    found = []
    for at, raw in enumerate(raws):
        member = makers[at % len(makers)](raw)
        odd = at % 7 == 0
        found.append(
            packs.Row(
                sha256=hashlib.sha256(raw).digest(),
                body=member,
                received_us=1_795_000_000_000_000 + at * 60_000_007,
                cluster="c",
                node="n",
                hw_id=None if odd else "hw",
                agent_id=None if odd else "agent",
                seq=None if odd else at,
                boot_id="boot",
                key_id=at % 3,
                signature=bytes(64) if odd else None,
                dropped_total=at,
                has_suspect_clock=odd,
                is_seq_conflict=at == 5,
                last_hour=500_000 + at % 2,
            )
        )
    packed_ = packs.make_pack(found)
    entries = packs.read_skeleton(packed_.skeleton)
    parts = packs.read_parts(entries, packed_.body)
    back = {entry.row.sha256: (entry, part) for entry, part in zip(entries, parts, strict=True)}
    for row, raw in zip(found, raws, strict=True):
        entry, part = back[row.sha256]
        assert packs.raw_of(entry, part) == raw
        assert packs.member_of(entry, part) == row.body
        assert entry.row == row._replace(body=b"")
    kept = sum(entry.level == packs.AS_IT_CAME for entry in entries)
    assert kept == 16  # two makers of five can't be repeated from level and header: theirs is kept


def test_a_pack_that_was_tampered_with_says_so() -> None:
    raw = wire.encode(batch())
    row = packs.Row(
        hashlib.sha256(raw).digest(), gzip.compress(raw, 1, mtime=0), 1, "c", "n", *[None] * 7, False, False, 1
    )
    packed_ = packs.make_pack([row])
    (entry,) = packs.read_skeleton(packed_.skeleton)
    (part,) = packs.read_parts([entry], packed_.body)
    with pytest.raises(packs.PackError):
        packs.raw_of(entry, part[:-1] + bytes([part[-1] ^ 1]))
    damaged = packs.make_pack([row._replace(body=b"not gzip")])
    (entry,) = packs.read_skeleton(damaged.skeleton)
    assert packs.member_of(entry, packs.read_parts([entry], damaged.body)[0]) == b"not gzip"


def test_packed_evidence_is_read_like_that_in_the_inbox(inside: Any) -> None:
    deliver(inside, history())
    expected, before = rows(), members()
    node_ids = list(Node.objects.values_list("pk", flat=True))
    low, high = FIRST_MS // HOUR_MS, FIRST_MS // HOUR_MS + 1

    def read() -> list[tuple[Any, ...]]:
        found = evidence.batches_of(node_ids, low, high)
        return [(one.node_id, one.row._replace(body=b""), one.first_hour, one.raw(), one.member()) for one in found]

    was = read()
    done = pack_due(AFTER, 3)
    assert (done.batches, done.weeks, done.stopped) == (len(before), 1, "")
    assert done.packed_bytes < done.member_bytes * 0.6
    assert Inbox.objects.count() == 0
    assert read() == was
    for sha256, member in before.items():
        one = evidence.get_batch(sha256, bodies=True)
        assert one is not None
        assert (one.member(), hashlib.sha256(one.raw()).digest()) == (member, sha256)
    assert refold_everything(timezone.now()) == len(before)
    assert rows() == expected


def test_a_damaged_frame_is_set_aside_and_the_other_hours_are_folded(inside: Any) -> None:
    deliver(inside, history(hours=3, nodes=1))
    pack_due(AFTER, 3)
    broken, *others = Pack.objects.order_by("first_hour")
    middle = len(broken.body) // 2
    damaged = bytearray(broken.body)
    damaged[middle] ^= 255
    Pack.objects.filter(pk=broken.pk).update(body=bytes(damaged))
    refold_everything(timezone.now())
    errors = BatchMark.objects.filter(reason="failed").values_list("error", flat=True)
    assert (len(errors), set(errors)) == (broken.count, {"PackError: the frame is damaged"})
    assert NodeHour.objects.filter(hour__in=[pack.first_hour for pack in others]).count() == len(others) > 1


def test_a_batch_that_comes_again_after_it_was_packed_is_the_same_batch(inside: Any) -> None:
    bodies = history(hours=1, nodes=1)
    deliver(inside, bodies)
    first = receive(bodies[7], key_for(inside), {})
    pack_due(AFTER, 3)
    again = receive(bodies[7], key_for(inside), {})
    assert (again.duplicate, again.received_at, again.batch_sha256) == (True, first.received_at, first.batch_sha256)
    assert Inbox.objects.count() == 0


def test_what_comes_late_for_a_packed_week_is_folded_and_packed_beside_it(inside: Any) -> None:
    bodies = history(hours=2, nodes=1, seed=32)
    deliver(inside, bodies)
    expected = rows()
    Node.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute("delete from fleet_inbox")
    late = [bodies.pop(70), bodies.pop(20)]
    deliver(inside, bodies)
    pack_due(AFTER, 3)
    deliver(inside, late)
    assert rows() == expected
    assert Inbox.objects.count() == 2
    assert pack_due(AFTER, 3).batches == 2
    assert Inbox.objects.count() == 0
    refold_everything(timezone.now())
    assert rows() == expected


def test_killed_at_any_point_of_packing_nothing_is_lost_or_doubled(
    inside: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """The end of the process."""

    deliver(inside, history(hours=2, nodes=2))
    before = members()
    node_ids = list(Node.objects.values_list("pk", flat=True))
    real = packs.make_pack
    calls = 0

    def deadly(found: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise Killed
        return real(found)

    monkeypatch.setattr("fleet.packs.make_pack", deadly)
    with pytest.raises(Killed):
        pack_due(AFTER, 3)
    assert Pack.objects.count() == 2
    assert members() == before

    def read() -> dict[bytes, bytes]:
        found = evidence.all_of(node_ids, FIRST_MS // HOUR_MS - 1, FIRST_MS // HOUR_MS + 3)
        assert len(found) == len({one.sha256 for one in found})
        return {one.sha256: one.member() for one in found}

    assert read() == before
    with monkeypatch.context() as patched:  # and once more, when all is packed but the week is still in the inbox
        patched.setattr("fleet.packing._empty", lambda *args: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            pack_due(AFTER, 3)
    assert read() == before
    assert pack_due(AFTER, 3).batches == 0
    assert Inbox.objects.count() == 0
    assert read() == before
    assert sum(Pack.objects.values_list("count", flat=True)) == len(before)


def test_a_batch_that_slips_in_while_its_week_is_packed_stays(inside: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from fleet import packing

    bodies = history(hours=1, nodes=1)
    deliver(inside, bodies[:-1])
    real = packing._empty

    def slow(*args: Any) -> bool:
        receive(bodies[-1], key_for(inside), {})
        return real(*args)

    monkeypatch.setattr("fleet.packing._empty", slow)
    assert "meanwhile" in pack_due(AFTER, 3).stopped
    assert Inbox.objects.count() == len(bodies)
    monkeypatch.setattr("fleet.packing._empty", real)
    assert "wait for the fold" in pack_due(AFTER, 3).stopped
    fold_waiting(timezone.now())
    assert pack_due(AFTER, 3).stopped == ""
    assert Inbox.objects.count() == 0


def test_what_failed_stays_in_the_inbox_for_its_next_try(inside: Any) -> None:
    deliver(inside, healthy(1))
    with connection.cursor() as cursor:
        cursor.execute(
            "insert into fleet_batchmark (sample_day, sha256, reason, error, marked_at)"
            " select sample_day, sha256, 'failed', 'KeyError', now() from fleet_inbox limit 1"
        )
    pack_due(AFTER, 3)
    assert Inbox.objects.count() == 1
    assert pack_due(AFTER, 3) == Packing()
    assert retry_failed() == 1
    fold_waiting(timezone.now())
    while refold_dirty(timezone.now()):
        pass
    assert pack_due(AFTER, 3).weeks == 1
    assert Inbox.objects.count() == 0


def test_a_week_is_packed_no_sooner_than_its_gate_and_its_age_allow(inside: Any) -> None:
    deliver(inside, healthy(1))
    assert pack_due(MONDAY + timedelta(days=9), 3).weeks == 0
    holds.register_gate(lambda first, last: "the log is behind" if first == MONDAY.date() else None)
    assert "the log is behind" in pack_due(AFTER, 3).stopped
    assert Pack.objects.count() == 0


def test_peers_are_witnesses_from_packs_as_well(inside: Any) -> None:
    deliver(inside, history(hours=2, nodes=3))
    with connection.cursor() as cursor:  # as if each had been uploaded when it was made, with a gap of ten minutes
        cursor.execute(
            "update fleet_inbox set received_at = to_timestamp(first_hour * 3600.0) + seq % 50 * interval '1 min'"
        )
    silent = Node.objects.first()
    assert silent is not None
    span = Inbox.objects.order_by("received_at").values_list("received_at", flat=True)
    from_ms, to_ms = (int(at.timestamp() * 1000) for at in (span[0], span[len(span) - 1]))
    was = peer_spans(silent.pk, from_ms, to_ms)
    pack_due(AFTER, 3)
    assert ReceiptSpan.objects.exists()
    assert peer_spans(silent.pk, from_ms, to_ms) == was


def test_a_day_is_sealed_when_nothing_of_it_waits_and_never_folded_again(inside: Any) -> None:
    bodies = history(hours=3, nodes=1, seed=33)
    late = bodies.pop(20)
    deliver(inside, bodies)
    assert "not packed yet" in seal_due(PAST_HORIZON, 90).stopped
    pack_due(AFTER, 3)
    done = seal_due(PAST_HORIZON, 90)
    assert (done.stopped, done.days) == ("", SealedDay.objects.count())
    assert NodeHour.objects.filter(is_final=False).count() == 0  # what was open is logged as it stands
    before, states_before = rows(), states()
    receipt = receive(late, key_for(inside), {})
    assert not receipt.duplicate
    fold_waiting(timezone.now())
    mark = BatchMark.objects.get()
    assert (mark.reason, mark.sha256.hex()) == ("sealed", receipt.batch_sha256)  # kept, listed
    assert evidence.get_batch(bytes.fromhex(receipt.batch_sha256), bodies=True).member() == late  # type: ignore[union-attr]
    assert NodeLive.objects.get().dirty_hour is None
    NodeLive.objects.update(dirty_hour=FIRST_MS // HOUR_MS, dirty_through=FIRST_MS // HOUR_MS)
    refold_dirty(timezone.now())
    assert rows() == before
    refold_everything(timezone.now())
    assert rows() == before
    assert states() == states_before  # out of the closing state that stays


def test_what_was_open_as_the_last_sealed_day_ended_outlives_a_new_format(
    inside: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The facts of that day are gone, so the next release has nothing but its closing state to know the fault from."""
    first = FIRST_MS + 7500
    event = {"kind": "xid", "code": 64, "pci_bus_id": "0000:10:00.0", "at": first + 61 * 60_000 + 20_000}
    made = [batch(first_ts=first + at * 60_000, seq=at + 1) for at in [*range(55, 75), *range(1440, 1450)]]
    made[6]["intervals"][2]["events"] = [event]  # one day; ten minutes of the next
    deliver(inside, [wire.pack(one)[0] for one in made])
    pack_due(AFTER, 3)
    assert seal_due(MONDAY + timedelta(days=92), 90).stopped == ""

    def known() -> list[tuple[str, int]]:
        place = NodeState.from_bytes(decompress(bytes(NodeLive.objects.get().state))).places[0]
        return [(one.code, one.since) for one in place.conditions]

    assert known() == [("XID_64", event["at"])]
    monkeypatch.setattr(state, "FORMAT", state.FORMAT + 1)
    monkeypatch.setitem(state_formats.UPGRADES, state.FORMAT - 1, lambda tree: [state.FORMAT, *tree[1:]])
    for _ in range(3):  # the first finds it, the next fold what it asked for
        receive(packed(first_ts=first + 1450 * 60_000, seq=1451)[0], key_for(inside), {})
        fold_org(inside.pk)
    assert known() == [("XID_64", event["at"])]
    assert NodeLive.objects.get().dirty_hour is None


def test_bytes_stay_of_hours_that_lost_something_and_of_what_is_held(inside: Any) -> None:
    hours = 8
    bodies = healthy(hours)
    first = FIRST_MS // HOUR_MS
    for minute in range(3 * 60 + 10, 3 * 60 + 30):  # the GPUs are throttled for a while in the fourth hour
        made = batch(first_ts=FIRST_MS + 7500 + minute * 60_000, seq=minute + 1)
        for interval in made["intervals"]:
            interval["gpus"][0].update(throttle_reasons=0x80, sm_clock=300, throttle_time={"hw_power_brake": 15_000})
        bodies[minute] = wire.pack(made)[0]
    deliver(inside, bodies)
    lossy = list(NodeHour.objects.filter(degraded_s__gt=0).values_list("hour", flat=True))
    assert lossy == [first + 3]
    pack_due(AFTER, 3)
    node = Node.objects.get()
    held = [Hold(first + 6, first + 6, {node.pk}, "open claim C-1")]
    holds.register(lambda low, high: held)
    seal_due(PAST_HORIZON, 90)
    kept = {pack.first_hour - first: pack.kept_for for pack in Pack.objects.filter(body__isnull=False)}
    assert kept == {2: DEGRADED, 3: DEGRADED, 4: DEGRADED, 6: "open claim C-1"}
    gone = Pack.objects.get(first_hour=first + 1)
    assert gone.dropped_at is not None
    sha256 = packs.read_skeleton(bytes(gone.skeleton))[0].row.sha256
    one = evidence.get_batch(sha256, bodies=True)
    assert one is not None
    assert (one.has_bytes, one.row.node) == (False, "n1")  # what its leaf is made of stays
    again = receive(bodies[65], key_for(inside), {})
    assert again.duplicate  # known by its hash for ever
    held.clear()  # the claim is closed
    seal_due(PAST_HORIZON, 90)
    assert not Pack.objects.filter(first_hour=first + 6, body__isnull=False).exists()
    sealed = SealedDay.objects.get(day=first // 24)
    assert (sealed.batches, sealed.kept) == (hours * 60, 3 * 60)


def test_a_sealed_batch_is_given_by_the_api(inside: Any, key_of: Any, client_of: Any) -> None:
    deliver(inside, healthy(2))
    sha256, member = next(iter(members().items()))
    pack_due(AFTER, 3)
    connection.set_schema_to_public()  # type: ignore[attr-defined]
    client, auth = client_of(None), {"HTTP_AUTHORIZATION": f"Bearer {key_of(inside, 'read')}"}
    said = client.get(f"/v1/batches/{sha256.hex()}", **auth).json()
    assert (said["is_packed"], said["is_folded"], said["error"]) == (True, True, None)
    assert client.get(said["body"], **auth).content == member
    with tenant_context(inside):
        seal_due(PAST_HORIZON, 90)
    answer = client.get(said["body"], **auth)
    assert (answer.status_code, "raw horizon" in answer.json()["detail"]) == (404, True)
    assert client.get(f"/v1/batches/{sha256.hex()}", **auth).json()["hours"] == said["hours"]


def test_shuffled_facts_and_packs_fold_to_the_same_rows(inside: Any) -> None:
    bodies = history(hours=3, nodes=1, seed=34)
    deliver(inside, bodies)
    expected = rows()
    Node.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute("delete from fleet_inbox")
    random.Random(7).shuffle(bodies)
    deliver(inside, bodies[:90], every=20)
    pack_due(AFTER, 3)
    deliver(inside, bodies[90:], every=20)
    assert rows() == expected
