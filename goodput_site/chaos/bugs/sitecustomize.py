"""Deliberate bugs, one at a time, laid over the product in a process that is started with this folder on PYTHONPATH.

`./goodput chaos --bug NAME` must be red: a run that can't see a bug says nothing when it is green. The product's own
code knows nothing of this: a module is changed right after it was imported.
"""

import dataclasses
import datetime
import importlib.abc
import importlib.machinery
import itertools
import os
import sys

NAME = os.environ.get("GOODPUT_CHAOS_BUG", "")
counter = itertools.count(1)


def now_and_then(every=25):
    """True at each `every`-th call."""
    return next(counter) % every == 0


def ack_before_commit(ingest):
    """Some receipts are given for batches that were never stored."""
    real = ingest._commit

    def commit(schema, values):
        if now_and_then():
            return datetime.datetime.now(datetime.UTC), False, False
        return real(schema, values)

    ingest._commit = commit


def store_twice(ingest):
    """Some batches get a second row, as if there were no unique constraint."""
    real = ingest._insert

    def insert(schema, values):
        answer = real(schema, values)
        if now_and_then():
            day = values["sample_day"]
            other = day - datetime.timedelta(days=1) if isinstance(day, datetime.date) else day
            real(schema, {**values, "sample_day": other})
        return answer

    ingest._insert = insert


def wrong_org(ingest):
    """Some batches of one org are stored in the org that was served first."""
    real, seen = ingest.receive, []

    def receive(body, key, headers):
        seen[:] = seen or [key.schema_name]
        return real(body, dataclasses.replace(key, schema_name=seen[0]) if now_and_then(5) else key, headers)

    ingest.receive = receive


def any_answer_will_do(contract):
    """An agent takes every answer for a receipt."""
    real = contract.decide

    def decide(status, headers, body, sha256, seq, now_s):
        outcome = real(status, headers, body, sha256, seq, now_s)
        if outcome.action != contract.DELIVERED:
            return contract.Outcome(contract.DELIVERED, "an answer", received_at=int(now_s * 1000))
        return outcome

    contract.decide = decide


def seq_again(outbox):
    """An agent now and then forgets that it gave a seq."""
    real = outbox.Outbox._put

    def put(self, key, value):
        if key == "seq" and value and now_and_then():
            return
        real(self, key, value)

    outbox.Outbox._put = put


def fold_skips(decode):
    """The fold passes over all samples of some batches but the first."""
    real = decode.decode_for_fold

    def decode_for_fold(raw):
        batch = real(raw)
        if now_and_then():
            batch.intervals = batch.intervals[:1]
        return batch

    decode.decode_for_fold = decode_for_fold


def unknown_is_up(slots):
    """Silence of any length between two good samples counts as health."""
    slots.VOUCH_MS = 10**9


def no_sweep(tasks):
    """Nobody looks for what waits."""
    tasks.orgs_with_work = lambda orgs, waited_s=0.0: []


def change_bytes(ingest):
    """Some batches are stored with another content under their hash."""
    import gzip

    import msgpack

    real = ingest._insert

    def insert(schema, values):
        if now_and_then():
            batch = msgpack.unpackb(gzip.decompress(values["body"]), raw=False)
            batch["agent_version"] = "0.0.0"
            values = {**values, "body": gzip.compress(msgpack.packb(batch))}
        return real(schema, values)

    ingest._insert = insert


def no_fsync(ingest):
    """PostgreSQL answers before the commit is on disk. (Said in the settings, `prepare` would refuse to start.)"""
    real = ingest._insert

    def insert(schema, values):
        ingest.connection.ensure_connection()
        ingest.connection.connection.execute("set synchronous_commit to off")
        return real(schema, values)

    ingest._insert = insert


def dedup_off(ingest):
    """What is sent again after a lost answer becomes a second row."""
    real = ingest._insert

    def insert(schema, values):
        answer = real(schema, values)
        if answer[2] and isinstance(values["sample_day"], datetime.date):
            real(schema, {**values, "sample_day": values["sample_day"] - datetime.timedelta(days=1)})
        return answer

    ingest._insert = insert


def seq_skips(outbox):
    """An agent now and then leaves a seq out."""
    real = outbox.Outbox._put

    def put(self, key, value):
        real(self, key, value + 1 if key == "seq" and value and now_and_then() else value)

    outbox.Outbox._put = put


def gives_up(outbox):
    """An agent never tries a batch again that failed once."""
    real = outbox.Outbox.lease

    def lease(self, live_after_ms, skip=None, live_only=False):
        batch = real(self, live_after_ms, skip, live_only)
        if batch is not None and batch.attempts:
            self._leased.discard(batch.id)
            return None
        return batch

    outbox.Outbox.lease = lease


def outbox_grows(outbox):
    """A file beside the outbox takes twenty megabytes with each receipt."""
    real = outbox.Outbox.delivered

    def delivered(self, batch, now_ms, sync):
        real(self, batch, now_ms, sync)
        with open(f"{self.path}-kept", "ab") as kept:
            kept.truncate(kept.tell() + 20_000_000)

    outbox.Outbox.delivered = delivered


def seconds_lost(node_rows):
    """Some rows of node hours lack a slot in their sums."""
    real = node_rows._sums

    def sums(row):
        numbers = real(row)
        numbers[1] -= 15 if now_and_then(5) and numbers[1] else 0
        return numbers

    node_rows._sums = sums


def slot_forgotten(strips):
    """Of a long run of equal slots the last is not written."""
    real = strips.HourRow.put

    def put(self, subject, first, end, verdict):
        real(self, subject, first, end - 1 if end - first >= 4 and subject[0] == "g" else end, verdict)

    strips.HourRow.put = put


def no_leaf(ledger):
    """The log passes over some batches."""
    ledger._NEW = ledger._NEW.replace(" order by", " and get_byte(i.sha256, 0) >= 8 order by")


def wrong_root(ledger):
    """Checkpoints are signed over another root than the log has."""
    real = ledger.Checkpoint
    ledger.Checkpoint = lambda origin, size, root: real(origin, size, bytes(32))


BUGS = {
    "ack_before_commit": ("fleet.ingest", ack_before_commit),
    "store_twice": ("fleet.ingest", store_twice),
    "wrong_org": ("fleet.ingest", wrong_org),
    "any_answer_will_do": ("agent.contract", any_answer_will_do),
    "seq_again": ("agent.outbox", seq_again),
    "fold_skips": ("fleet.decode", fold_skips),
    "unknown_is_up": ("fleet.domain.slots", unknown_is_up),
    "no_sweep": ("fleet.tasks", no_sweep),
    "change_bytes": ("fleet.ingest", change_bytes),
    "no_fsync": ("fleet.ingest", no_fsync),
    "dedup_off": ("fleet.ingest", dedup_off),
    "seq_skips": ("agent.outbox", seq_skips),
    "gives_up": ("agent.outbox", gives_up),
    "outbox_grows": ("agent.outbox", outbox_grows),
    "seconds_lost": ("fleet.node_rows", seconds_lost),
    "slot_forgotten": ("fleet.domain.strips", slot_forgotten),
    "no_leaf": ("claims.ledger", no_leaf),
    "wrong_root": ("claims.ledger", wrong_root),
}


class _Changer(importlib.abc.MetaPathFinder):
    """Finds one module as usual and changes it once it is loaded."""

    def find_spec(self, fullname, path, target=None):
        module_name, change = BUGS[NAME]
        if fullname != module_name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            change(module)

        spec.loader.exec_module = exec_module
        return spec


if NAME:
    sys.meta_path.insert(0, _Changer())
