"""What the server and the agents' outboxes hold at the end, in the oracle's terms."""

from __future__ import annotations

import gzip
import hashlib
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
import psycopg

from fleet.bodies import load_row
from fleet.domain.strips import HourRow
from goodput_site.chaos.oracle import SampleId, sample_hash

QUEUED, QUARANTINED = 0, 2  # states of agent/outbox_room.py


@dataclass(frozen=True)
class StoredBatch:
    """One row of an inbox, and what is in its bytes."""

    org: str
    cluster: str
    node: str
    agent_id: str | None
    seq: int | None
    sha256: str
    is_whole: bool  # the bytes have this hash
    samples: tuple[tuple[SampleId, str], ...]  # with the hash of the content


@dataclass
class Held:
    """Everything that is held anywhere."""

    batches: list[StoredBatch] = field(default_factory=list)
    hours: dict[tuple[str, str, int], HourRow] = field(default_factory=dict)  # org, node, hour
    sums: dict[tuple[str, str, int], tuple[int, int]] = field(default_factory=dict)  # GPUs, GPU-seconds in all states
    bodies: dict[tuple[str, str, int], bytes] = field(default_factory=dict)  # of rows that are final
    waiting: int = 0
    queued: set[SampleId] = field(default_factory=set)  # in an outbox still
    quarantined: set[SampleId] = field(default_factory=set)
    buried: set[tuple[str, int]] = field(default_factory=set)  # (agent_id, seq) of tombstones and of the quarantine
    outbox_bytes: int = 0  # of the largest file with its side files


def read_server(url: str, held: Held) -> None:
    """Adds what the database holds of every org."""
    with psycopg.connect(url, autocommit=True) as database:
        orgs = database.execute("SELECT slug, schema_name FROM orgs_org WHERE schema_name <> 'public'").fetchall()
        for slug, schema in orgs:
            database.execute("SELECT set_config('search_path', %s, false)", (f"{schema},public",))
            rows = database.execute("SELECT cluster, node, agent_id, seq, encode(sha256, 'hex'), body FROM fleet_inbox")
            held.batches += [_batch(slug, *row) for row in rows]
            for row in database.execute(
                "SELECT n.name, h.hour, h.body, h.gpus, h.is_final, observed_s + edge_s + pending_s + contested_s"
                " + held_s + unknown_s FROM fleet_nodehour h JOIN fleet_node n ON n.id = h.node_id"
            ):
                key = (slug, row[0], row[1])
                held.hours[key] = load_row(row[2])
                held.sums[key] = (row[3], row[5])
                if row[4]:
                    held.bodies[key] = bytes(row[2])


def _batch(
    org: str, cluster: str, node: str, agent_id: str | None, seq: int | None, sha256: str, body: bytes
) -> StoredBatch:
    raw = gzip.decompress(body)
    batch = msgpack.unpackb(raw, raw=False)
    samples = tuple(_samples(batch))
    is_whole = hashlib.sha256(raw).hexdigest() == sha256
    return StoredBatch(org, cluster, node, agent_id, seq, sha256, is_whole, samples)


def _samples(batch: Mapping[str, Any]) -> list[tuple[SampleId, str]]:
    return [
        ((batch["node_id"], batch["boot_id"], interval["boottime"]), sample_hash(interval))
        for interval in batch["intervals"]
    ]


def read_outboxes(files: Mapping[str, Path], held: Held) -> None:
    """Adds what the agents' outbox files hold; their processes must have ended."""
    for node, file in files.items():
        if not file.exists():
            continue
        size = sum(side.stat().st_size for side in file.parent.glob("outbox.sqlite*") if "damaged" not in side.name)
        held.outbox_bytes = max(held.outbox_bytes, size)
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as outbox:
            for state, body, agent_id, seq in outbox.execute("SELECT state, body, agent_id, seq FROM batches"):
                if state not in (QUEUED, QUARANTINED):
                    continue
                found = {sample for sample, _ in _samples(msgpack.unpackb(gzip.decompress(body), raw=False))}
                (held.queued if state == QUEUED else held.quarantined).update(found)
                if state == QUARANTINED and seq is not None:
                    held.buried.add((agent_id, seq))
            held.buried.update(outbox.execute("SELECT agent_id, seq FROM tombstones WHERE seq IS NOT NULL"))
            for head, body in outbox.execute("SELECT head, body FROM samples"):
                interval = msgpack.unpackb(body, raw=False)
                held.queued.add((node, json.loads(head)["boot_id"], interval["boottime"]))
