"""The outbox: nothing leaves without a receipt, the cap holds with the WAL file, damage and full disks are survived."""

from __future__ import annotations

import random
import shutil
import sqlite3

import pytest

from agent.outbox import Outbox
from agent.store import Store
from agent.tests.rig import Rig


def fill(rig, minutes):
    for _ in range(minutes):
        rig.minute()


def test_samples_are_durable_as_they_are_taken(tmp_path, backend):
    rig = Rig(tmp_path, backend.url)
    for number in range(1, 4):
        rig.sample()
        copy = tmp_path / f"copy-{number}"
        shutil.copytree(tmp_path, copy, ignore=shutil.ignore_patterns("copy-*"))
        after_power_cut = Outbox(copy / "outbox.sqlite")
        kept = after_power_cut.sample_count() + sum(_intervals(row) for row in after_power_cut.queued())
        assert kept == number
        after_power_cut.close()
    assert rig.store.outbox._db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert rig.store.outbox._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    rig.close()


def _intervals(row):
    import gzip

    import msgpack

    return len(msgpack.unpackb(gzip.decompress(row[3]), raw=False)["intervals"])


def fat_sample(rng, ts):
    """A sample that no compression makes small, so that a small cap is soon reached."""
    ports = [
        {"device": f"mlx5_{n}", "port": 1, "counters": {f"counter_{c}": rng.getrandbits(62) for c in range(40)}}
        for n in range(16)
    ]
    return {"ts": ts, "gpus": [], "ib_ports": ports, "xids": []}


def fill_outbox(outbox, batches, rng):
    head = {"cluster_id": "c", "node_id": "n", "agent_version": "1"}
    for number in range(batches):
        for part in range(4):
            outbox.add_sample(fat_sample(rng, 60_000 * number + 15_000 * part), head, {})
        outbox.assemble(60_000 * number)
        yield number


def test_cap_holds_with_the_wal_and_every_eviction_is_told(tmp_path, backend):
    limit = 1_000_000
    outbox = Outbox(tmp_path / "outbox.sqlite", limit)
    largest = 0
    for _ in fill_outbox(outbox, 90, random.Random(1)):
        largest = max(largest, sum(p.stat().st_size for p in tmp_path.iterdir()))
    assert largest <= limit
    counts = outbox.counts()
    assert counts["dropped"] > 10
    assert counts["tombstones"] == counts["dropped"]
    assert counts["dropped"] + counts["batches_queued"] == counts["seq"] == 90
    queued = [row[1] for row in outbox.queued()]
    assert queued == list(range(counts["dropped"] + 1, 91))  # the oldest went
    outbox.close()
    rig = Rig(tmp_path, backend.url, limit_bytes=limit)
    rig.drain()
    assert backend.requests[-1][1]["X-Goodput-Dropped-Batches"] == str(counts["dropped"])
    rig.close()


def test_a_batch_under_way_is_not_evicted(tmp_path):
    outbox = Outbox(tmp_path / "outbox.sqlite", 1_000_000)
    filling = fill_outbox(outbox, 80, random.Random(1))
    next(filling)
    held = outbox.lease(2**62)
    for _ in filling:
        pass
    assert outbox.dropped > 0
    assert [row[1] for row in outbox.queued()][0] == held.seq == 1
    outbox.close()


def test_seq_goes_on_after_a_restart_without_gaps(tmp_path, backend):
    now = None
    for _ in range(3):
        rig = Rig(tmp_path, backend.url, **({"start_ms": now} if now else {}))
        fill(rig, 3)
        now = rig.now_ms
        rig.close()
    rig = Rig(tmp_path, backend.url, start_ms=now)
    rig.store.assemble(now)
    rig.drain()
    seqs = sorted(batch["seq"] for batch in backend.batches.values())
    assert seqs == list(range(1, len(seqs) + 1))
    assert len({batch["agent_id"] for batch in backend.batches.values()}) == 1
    assert len(backend.sample_times()) == len(set(backend.sample_times())) == 36
    rig.close()


def test_a_damaged_file_is_set_aside_and_what_can_be_read_is_delivered(tmp_path, backend):
    """D002: a torn record costs itself only, and the gap in seq shows."""
    rig = Rig(tmp_path, backend.url)
    fill(rig, 8)
    rig.store.assemble(rig.now_ms)
    written = rig.store.outbox.counts()["batches_queued"]
    first_id = rig.store.outbox.agent_id
    now = rig.now_ms
    rig.close()
    path = tmp_path / "outbox.sqlite"
    data = bytearray(path.read_bytes())
    data[-6000:-2000] = b"\xff" * 4000
    path.write_bytes(bytes(data))
    rig = Rig(tmp_path, backend.url, start_ms=now)
    rig.minute()
    rig.store.assemble(rig.now_ms)
    rig.drain()
    resets = rig.store.outbox.get("outbox_reset")
    assert resets["last_seq"] == written
    assert list(tmp_path.glob("outbox.sqlite.damaged-*"))
    assert rig.store.outbox.agent_id != first_id
    old = [b["seq"] for b in backend.batches.values() if b["agent_id"] == first_id]
    assert 0 < len(old) < written
    assert len(old) == resets["salvaged"]
    rig.close()


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"not a database at all" * 400])
def test_any_rubbish_in_place_of_the_outbox_stops_nothing(tmp_path, backend, content):
    (tmp_path / "outbox.sqlite").write_bytes(content)
    rig = Rig(tmp_path, backend.url)
    rig.minute()
    rig.drain()
    assert backend.batches
    rig.close()


def test_a_newer_format_is_kept_aside_not_overwritten(tmp_path, backend):
    Outbox(tmp_path / "outbox.sqlite").close()
    db = sqlite3.connect(tmp_path / "outbox.sqlite")
    db.execute("PRAGMA user_version=99")
    db.close()
    rig = Rig(tmp_path, backend.url)
    rig.minute()
    assert list(tmp_path.glob("outbox.sqlite.damaged-*"))
    rig.close()


def test_a_full_disk_goes_on_in_memory_says_so_and_comes_back(tmp_path, backend):
    """D001: nothing stops, nothing is lost."""
    backend.down = True
    rig = Rig(tmp_path, backend.url)
    rig.minute()
    disk = rig.store._disk
    pages = disk._db.execute("PRAGMA page_count").fetchone()[0]
    disk._db.execute(f"PRAGMA max_page_count={pages}")
    for _ in range(3):
        fill(rig, 4)
    assert not rig.store.healthy
    assert rig.store.trouble
    backend.down = False
    rig.store.assemble(rig.now_ms)
    rig.drain()
    told = [b for b in backend.batches.values() if any(i["sources"].get("outbox") == "error" for i in b["intervals"])]
    assert told
    assert all("seq" not in batch for batch in told)  # a seq that no disk remembers is never given
    disk._db.execute("PRAGMA max_page_count=1000000")
    fill(rig, 2)
    rig.store.assemble(rig.now_ms)
    rig.drain()
    assert rig.store.healthy
    times = backend.sample_times()
    assert len(times) == len(set(times)) == 4 + 48 + 8
    rig.close()


def test_delivered_batches_can_be_sent_again_to_a_restored_server(tmp_path, backend):
    rig = Rig(tmp_path, backend.url)
    fill(rig, 5)
    rig.store.assemble(rig.now_ms)
    rig.drain()
    everything = backend.sample_times()
    backend.batches.clear()  # restored from a backup of before
    assert rig.store.outbox.resend(0) == rig.store.outbox.counts()["seq"]
    rig.drain()
    assert backend.sample_times() == everything
    assert rig.store.outbox.resend(0) > 0
    rig.drain()
    assert backend.sample_times() == everything
    assert backend.duplicates == len(backend.batches)
    rig.close()


def test_samples_of_a_damaged_file_are_delivered_too(tmp_path, backend):
    rig = Rig(tmp_path, backend.url)
    backend.down = True
    fill(rig, 1)
    waiting = rig.store.outbox.sample_count()
    assert waiting
    rig.close()
    with sqlite3.connect(tmp_path / "outbox.sqlite") as db:
        db.execute("PRAGMA user_version=99")
    backend.down = False
    rig = Rig(tmp_path, backend.url, start_ms=rig.now_ms)
    assert rig.store.outbox.sample_count() == waiting
    rig.minute()
    rig.store.assemble(rig.now_ms)
    rig.drain()
    assert len(backend.sample_times()) == 8
    rig.close()


def test_links_in_the_state_directory_are_refused(tmp_path):
    from agent.errors import PermissionProblem
    from agent.identity import private_dir, safe_file

    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(PermissionProblem):
        private_dir(tmp_path / "link")
    (tmp_path / "real/other").write_text("x")
    (tmp_path / "real/outbox.sqlite").hardlink_to(tmp_path / "real/other")
    with pytest.raises(PermissionProblem):
        safe_file(tmp_path / "real/outbox.sqlite")


def test_a_sample_that_cannot_be_encoded_stops_none_behind_it(tmp_path):
    store = Store(tmp_path)
    store.add_sample({"ts": 1, "surprise": 1}, {"cluster_id": "c", "node_id": "n", "agent_version": "1"}, {})
    store.assemble(1)
    good = {"cluster_id": "c", "node_id": "n", "agent_version": "1"}
    store.add_sample({"ts": 2, "gpus": [], "ib_ports": [], "xids": []}, good, {})
    store.assemble(2)
    assert store.outbox.queued_count() == 1
    assert store.outbox.get("unencodable") == 1
    assert store.outbox.get("seq") == 1
    store.close()


def test_a_copied_disk_begins_an_identity_of_its_own_and_delivers_what_it_brought(tmp_path, backend):
    """D012: the machine's own identity tells the copy; batches that came along keep their bytes and are duplicates."""
    import shutil

    from agent.identity import Signer, renew_secrets
    from agent.store import Store

    rig = Rig(tmp_path / "one", backend.url)
    fill(rig, 8)
    rig.store.assemble(rig.now_ms)
    brought = {row[2] for row in rig.store.outbox.queued()}
    rig.store.outbox.put("hw_id", "machine-1")
    first_id, key = rig.store.outbox.agent_id, Signer(tmp_path / "one").public_key
    rig.close()
    shutil.copytree(tmp_path / "one", tmp_path / "two")

    copy = tmp_path / "two"
    store = Store(copy, hw_id="machine-2", on_other_machine=lambda: renew_secrets(copy))
    assert store.outbox.agent_id != first_id
    assert Signer(copy).public_key != key
    assert {row[2] for row in store.outbox.queued()} == brought
    assert store.outbox.counts()["seq"] == 0
    mine = store.outbox.agent_id
    store.close()
    again = Store(copy, hw_id="machine-2", on_other_machine=lambda: pytest.fail("this is its own machine"))
    assert again.outbox.agent_id == mine
    again.close()
    untold = Store(tmp_path / "one", hw_id=None)  # a machine that does not tell who it is changes nothing
    assert untold.outbox.agent_id == first_id
    untold.close()
