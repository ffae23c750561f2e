"""Live first: what was made just now goes before the backlog, also at a server that has no room for the backlog."""

from __future__ import annotations

import threading
import time

import pytest

from agent.tests.rig import Rig


def test_live_goes_before_the_backlog_and_a_poison_batch_blocks_nothing(tmp_path, backend):
    rig = Rig(tmp_path, backend.url)
    backend.down = True
    for _ in range(6):
        rig.minute()
        rig.sender.step()
    backend.down = False
    poison = backend.receipt(rig.store.outbox.lease(2**62, set()).body)["seq"]
    backend.batches.clear()

    def behave(handler, body):
        if backend.receipt(body)["seq"] == 2:
            del backend.batches[next(k for k, b in backend.batches.items() if b["seq"] == 2)]
            handler.answer(500, b"")
            return True
        return False

    backend.behave = behave
    rig.minute()
    for _ in range(40):
        rig.sender.step()
    order = [batch["seq"] for batch in backend.batches.values()]
    assert order[0] == max(order)
    assert set(order) == set(range(1, max(order) + 1)) - {2}
    assert poison
    backend.behave = None
    rig.drain()
    assert {batch["seq"] for batch in backend.batches.values()} == set(range(1, max(order) + 1))
    rig.close()


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_has_no_room_now_leaves_the_live_batch_first(tmp_path, backend, status):
    """Such an answer is about the server: the batch must not go behind a backlog of ten hours for it."""
    rig = Rig(tmp_path, backend.url)
    for _ in range(5):
        rig.minute()
        rig.store.assemble(rig.now_ms)
    rig.now_ms += 600_000
    rig.minute()
    rig.store.assemble(rig.now_ms)
    live = rig.store.outbox.lease(rig.now_ms - 90_000)
    rig.store.outbox.release(live, rig.now_ms, count=False)
    backend.behave = lambda handler, _body: handler.answer(status, b"") or True
    for _ in range(3):
        assert rig.sender.step() > 0
    assert rig.store.outbox.lease(rig.now_ms - 90_000).id == live.id
    rig.close()


def _with_backlog(tmp_path, backend):
    """A rig that could not send for some minutes, with a batch of now on top."""
    rig = Rig(tmp_path, backend.url)
    for _ in range(5):
        rig.minute()
        rig.store.assemble(rig.now_ms)
    rig.now_ms += 600_000
    _one_more(rig)
    return rig


def _one_more(rig):
    """A batch of one sample, due at once."""
    rig.sample()
    rig.store.assemble(rig.now_ms)
    rig.sender.not_before = 0.0  # without the phase of this node's uploads


def test_a_batch_that_waited_says_so_and_a_live_one_says_nothing(tmp_path, backend):
    rig = _with_backlog(tmp_path, backend)
    newest = max(seq for _agent, seq, *_rest in rig.store.outbox.queued())
    rig.drain()
    said = {backend.receipt(body)["seq"]: headers.get("X-Goodput-Backlog") for _path, headers, body in backend.requests}
    assert said.pop(newest) is None
    assert len(said) >= 5
    assert set(said.values()) == {"1"}
    rig.close()


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_without_room_for_the_backlog_still_gets_each_new_batch_at_once(tmp_path, backend, status):
    """The sender's own thread: the backlog keeps to Retry-After, and what is made meanwhile does not wait with it."""
    rig = _with_backlog(tmp_path, backend)
    backend.wall_ms = lambda: rig.now_ms

    def behave(handler, _body):
        if handler.headers.get("X-Goodput-Backlog"):
            handler.answer(status, b"", {"Retry-After": "900"})
            return True
        return False

    backend.behave = behave
    sending = threading.Thread(target=rig.sender.run, daemon=True)
    sending.start()
    try:
        for delivered in (1, 2, 3):
            _until(lambda: len(backend.requests) == delivered + 1)  # noqa: B023  the first live one, a refusal, others
            assert len(backend.batches) == delivered
            _one_more(rig)
            rig.sender.wake()
        _until(lambda: len(backend.batches) == 4)
        late = [headers for _path, headers, _body in backend.requests if "X-Goodput-Backlog" in headers]
        assert len(late) == 1, "the backlog waits as long as it was told"
    finally:
        rig.sender.stop()
        sending.join(30)
    assert not sending.is_alive()
    assert rig.store.outbox.queued_count() >= 5, "nothing was lost"
    backend.behave = None
    rig.sender._backlog_at = 0.0
    rig.drain()
    assert rig.store.outbox.queued_count() == 0
    rig.close()


def test_a_live_batch_that_is_refused_keeps_to_what_it_was_told(tmp_path, backend):
    rig = _with_backlog(tmp_path, backend)
    backend.behave = lambda handler, _body: handler.answer(503, b"", {"Retry-After": "900"}) or True
    assert rig.sender.step() >= 900
    assert not rig.sender._only_backlog_waits
    rig.close()


def test_what_breaks_while_the_backlog_waits_is_tried_again_as_late_as_ever(tmp_path, backend, monkeypatch):
    rig = _with_backlog(tmp_path, backend)
    rig.drain(1)  # the live one
    backend.behave = lambda handler, _body: handler.answer(503, b"", {"Retry-After": "900"}) or True
    assert rig.sender.step() >= 900
    assert rig.sender._only_backlog_waits
    monkeypatch.setattr(rig.store, "lease", lambda *_, **__: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        rig.sender.step()
    assert not rig.sender._only_backlog_waits, "a new batch does not end the wait after an error"
    rig.close()


def _until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
