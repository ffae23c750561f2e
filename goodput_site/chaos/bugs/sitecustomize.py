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
    """The fold passes over the last sample of some batches."""
    real = decode.decode_trusted

    def decode_trusted(raw, check=False):
        batch = real(raw, check)
        if not check and len(batch.intervals) > 1 and now_and_then():
            batch.intervals = batch.intervals[:-1]
        return batch

    decode.decode_trusted = decode_trusted


def unknown_is_up(slots):
    """Silence of any length between two good samples counts as health."""
    slots.VOUCH_MS = 10**9


def no_sweep(tasks):
    """Nobody looks for what waits."""
    tasks.orgs_with_work = lambda orgs: []


BUGS = {
    "ack_before_commit": ("fleet.ingest", ack_before_commit),
    "store_twice": ("fleet.ingest", store_twice),
    "wrong_org": ("fleet.ingest", wrong_org),
    "any_answer_will_do": ("agent.contract", any_answer_will_do),
    "seq_again": ("agent.outbox", seq_again),
    "fold_skips": ("fleet.decode", fold_skips),
    "unknown_is_up": ("fleet.domain.slots", unknown_is_up),
    "no_sweep": ("fleet.tasks", no_sweep),
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
