"""A backend that is away for ten hours: everything arrives afterwards, once, live data first."""

from __future__ import annotations

import socket

import pytest

from agent.tests.rig import START_MS, Rig


@pytest.mark.slow
def test_ten_hours_without_a_backend_drain_without_loss_or_duplicate(tmp_path, backend):
    rig = Rig(tmp_path, backend.url)
    for _ in range(5):
        rig.minute()
        rig.drain()
    before = len(backend.batches)
    backend.down = True
    restarts = 0
    for minute in range(600):
        rig.minute()
        rig.sender.step()
        if minute in (200, 201, 450):  # the agent is restarted in the middle of it
            now = rig.now_ms
            rig.close()
            rig = Rig(tmp_path, backend.url, start_ms=now)
            restarts += 1
    backend.down = False
    outage_end = rig.now_ms
    rig.minute()
    rig.store.assemble(rig.now_ms)
    rig.sender.step()
    newest = list(backend.batches.values())[before]
    assert newest["intervals"][-1]["ts"] > outage_end - 60_000  # live first
    rig.drain()
    times = backend.sample_times()
    assert times == [START_MS + 7_500 + 15_000 * n for n in range(606 * 4)]
    assert backend.duplicates == 0
    seqs = sorted(batch["seq"] for batch in backend.batches.values())
    assert seqs == list(range(1, len(seqs) + 1))
    assert rig.store.outbox.queued_count() == 0
    assert restarts == 3
    rig.close()


def test_an_answer_lost_on_the_way_is_a_duplicate_for_the_server_not_for_the_fold(tmp_path, backend):
    rig = Rig(tmp_path, backend.url)
    lost = []

    def behave(handler, body):
        if not lost:
            lost.append(backend.receipt(body))  # stored, and the connection breaks before the receipt
            handler.connection.shutdown(socket.SHUT_RDWR)
            return True
        return False

    backend.behave = behave
    rig.sample()
    rig.sender.step()
    assert rig.store.outbox.queued_count() == 1
    rig.drain()
    rig.sender.step()
    assert rig.store.outbox.queued_count() == 0
    assert backend.duplicates == 1
    assert len(backend.sample_times()) == 1
    rig.close()
