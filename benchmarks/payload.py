"""What a batch weighs and what it costs to make and to read it: bytes and CPU µs of each step.

60 batches of 8 GPUs and 8 ports, four samples each; medians of the rounds.
"""

from __future__ import annotations

import gzip
import json
import random
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgpack

from agent import wire
from benchmarks.common import batch, decode_us, repeat, show

BATCHES = 60


def run(rounds: int) -> dict[str, Any]:
    """Measure and print; the figures."""
    figures = repeat(rounds, _round, "unzipped_us")
    show(
        f"payload: {BATCHES} batches of a minute, 8 GPUs and 8 ports",
        figures,
        [
            ("json", "as JSON, bytes"),
            ("raw", "as MessagePack, bytes"),
            ("body", "as sent (gzip -1), bytes"),
            ("gzip6", "with gzip -6, bytes"),
            ("make_us", "agent: MessagePack, gzip -1 and SHA-256, µs"),
            ("gunzip_us", "server: bounded gunzip, µs"),
            ("check_us", "server: typed decode with every check, µs"),
            ("decode_us", "typed decode of trusted bytes, µs"),
            ("plain_us", "msgpack into plain maps, µs"),
            ("unzipped_us", "calibrator: zlib.decompress of all, µs"),
        ],
    )
    return figures


def _round(number: int) -> dict[str, float]:
    from fleet import decode

    rng = random.Random(number)
    made = [batch(f"node-{at:02d}", number, rng, 1_790_000_000_000) for at in range(BATCHES)]
    sent: list[bytes] = []
    make_us = _us(made, lambda one: sent.append(wire.pack(one)[0]))
    raws = [gzip.decompress(body) for body in sent]
    return {
        "json": _mean(len(json.dumps(one, separators=(",", ":"))) for one in made),
        "raw": _mean(map(len, raws)),
        "body": _mean(map(len, sent)),
        "gzip6": _mean(len(gzip.compress(raw, 6)) for raw in raws),
        "make_us": make_us,
        "gunzip_us": _us(sent, decode.gunzip),
        "check_us": _us(raws, decode.decode),
        "decode_us": decode_us(raws),
        "plain_us": _us(raws, lambda raw: msgpack.unpackb(raw, raw=False)),
        "unzipped_us": _us(sent, lambda body: zlib.decompress(body, 31)),
    }


def _us(items: Sequence[Any], step: Callable[[Any], object]) -> float:
    begin = time.process_time()
    for item in items:
        step(item)
    return (time.process_time() - begin) / len(items) * 1e6


def _mean(numbers: Iterable[int]) -> float:
    found = list(numbers)
    return sum(found) / len(found)
