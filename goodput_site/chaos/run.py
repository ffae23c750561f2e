"""One run from the first process to the verdict."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import psycopg

from goodput_site.chaos import invariants
from goodput_site.chaos.crews import Crews
from goodput_site.chaos.faults import ALL, ELSEWHERE, Fault, Scene
from goodput_site.chaos.invariants import Finding
from goodput_site.chaos.nemesis import Log, torment
from goodput_site.chaos.oracle import Books
from goodput_site.chaos.product import SECOND_ORG, ChaosError, Product
from goodput_site.chaos.proxy import FaultProxy, Weather
from goodput_site.chaos.server_side import Held, read_outboxes, read_server
from goodput_site.launcher.processes import http_get

DRAIN_S = 120.0  # for every backlog to be delivered and folded once the faults are over
FRESH_S = 120.0  # for a sample that is taken then to be seen (I14)


@dataclass(frozen=True)
class Plan:
    """What is to be run."""

    seed: int
    minutes: float
    quick: bool = False
    nodes: int = 50
    tick_s: float = 0.5
    faults: tuple[Fault, ...] = ALL
    env: dict[str, str] = field(default_factory=dict)
    keep: bool = False


def run(plan: Plan, say: Callable[[str], None]) -> dict[str, Any]:
    """The run's result as `--json` prints it. Raises ChaosError when the run itself went wrong."""
    began = time.monotonic()
    rng = random.Random(plan.seed)
    product = Product(plan.env)
    proxy: FaultProxy | None = None
    crews: Crews | None = None
    try:
        say("starting an installation of its own ...")
        product.start()
        proxy = FaultProxy(product.port, rng.randrange(2**32))
        slots = int(plan.minutes * 60 / plan.tick_s)
        endpoint = f"http://127.0.0.1:{proxy.port}/v1/batches"
        crews = Crews(product, endpoint, rng.randrange(2**31), slots, plan.tick_s, plan.nodes)
        crews.start_all()
        scene = Scene(product, crews, proxy, random.Random(rng.randrange(2**32)))
        product.wait(lambda: scene.acked() > plan.nodes, 90, "no batch arrives")
        memory = product.memory()
        say(f"{crews.nodes} agents report, 15 s every {plan.tick_s:g} s; the faults begin")
        log = torment(scene, plan.minutes, say, plan.faults, only_once=plan.quick)
        say("the faults are over; waiting for every backlog")
        proxy.weather = Weather()
        drained_s = _drain(scene)
        grown = {name: product.memory().get(name, 0) - before for name, before in memory.items()}
        crews.stop()
        held = Held(waiting=_waiting(product))
        read_outboxes(crews.outboxes(), held)
        read_server(product.contract()["DATABASE_URL"], held)
        books = Books.read(crews.books())
        say(f"judging {len(held.batches)} batches and {len(books.taken)} samples")
        findings = invariants.judge(books, held)
        findings += _after(product, held, say)
        return _result(plan, log, scene, books, held, findings, drained_s, grown, time.monotonic() - began)
    finally:
        if crews is not None:
            crews.stop()
        if proxy is not None:
            proxy.close()
        product.close(plan.keep)
        if plan.keep:
            say(f"kept: {product.folder}")


def _drain(scene: Scene) -> float:
    """Waits until every outbox and the fold are empty; seconds. What is left then is a finding, not an error."""
    began = time.monotonic()
    scene.crews.drain()
    while time.monotonic() - began < DRAIN_S:
        scene.crews.keep_up()
        held = Held()
        read_outboxes(scene.crews.outboxes(), held)
        if not held.queued and not _waiting(scene.product):
            break
        time.sleep(0.5)
    return time.monotonic() - began


def _waiting(product: Product) -> int:
    """Whether anything waits for the fold (1) or nothing does (0)."""
    status, body = http_get(product.port, "/readyz")
    if status == 0:
        return 1
    if json.loads(body)["oldest_unfolded_seconds"] is not None:
        return 1
    try:
        with product.database() as database:
            dirty = 0
            for (schema,) in database.execute(
                "SELECT schema_name FROM orgs_org WHERE schema_name <> 'public'"
            ).fetchall():
                row = database.execute(
                    f'SELECT count(*) FROM "{schema}".fleet_nodelive WHERE dirty_hour IS NOT NULL'  # noqa: S608 - our own
                ).fetchone()
                dirty += row[0] if row else 0
            return int(dirty > 0)
    except psycopg.Error:
        return 1


def _after(product: Product, held: Held, say: Callable[[str], None]) -> Iterator[Finding]:
    """What needs the running product: liveness (I14), the same rows from the facts (I11), the log (I9, I13)."""
    if held.waiting:
        yield Finding("I7", "something waits for the fold still")
    began = time.monotonic()
    node = f"fresh-{os.getpid()}"
    product.agent_once(node)
    while node not in http_get(product.port, "/v1/fleet")[1]:
        if time.monotonic() - began > FRESH_S:
            yield Finding("I14", f"a fresh sample is not seen after {FRESH_S:.0f} s")
            break
        time.sleep(0.2)
    else:
        say(f"a fresh sample was seen after {time.monotonic() - began:.1f} s")
    for org in ("local", SECOND_ORG):
        said = json.loads(product.manage("check_log", "--org", org, "--sign", "--json"))
        for problem in said["problems"]:
            yield Finding("I9" if "lea" in problem else "I13", f"{org}: {problem}")
        if not said["checkpoints"]:
            yield Finding("I13", f"{org}: the log has no checkpoint")
        product.manage("refold", "--org", org, seconds=1200)
    again = Held()
    read_server(product.contract()["DATABASE_URL"], again)
    yield from invariants.same_rows(held.bodies, again.bodies)


def _result(
    plan: Plan, log: Log, scene: Scene, books: Books, held: Held, findings: list[Finding], drained_s: float,
    grown: dict[str, int], took_s: float,
) -> dict[str, Any]:  # fmt: skip
    kills = {**scene.kills, "agent process": scene.crews.kills}
    return {
        "seed": plan.seed,
        "kills": sum(kills.values()),
        "acked": len(books.acked),
        "lost": invariants.lost(findings),
        "doubled": invariants.doubled(findings),
        "unexplained_gaps": invariants.unexplained_gaps(findings),
        "findings": [vars(finding) for finding in findings],
        "not_struck": [f"{record.id} {record.name}" for record in log.missing()],
        "kills_by_part": kills,
        "samples": {"taken": len(books.taken), "kept": len(books.kept), "volatile": len(books.volatile)},
        "batches": len(held.batches),
        "agents": scene.crews.nodes,
        "agent_starts": books.starts,
        "failpoints": sorted(scene.crews.failpoints_hit),
        "outboxes_set_aside": len(books.damaged),
        "answers": dict(sorted(books.sightings.items())),
        "network": dict(sorted(scene.proxy.struck.items())),
        "faults": log.as_json(),
        "not_in_this_run": ELSEWHERE,
        "recovery_s": {
            part: {"times": len(s), "median": round(median(s), 2), "max": round(max(s), 2)}
            for part, s in sorted(log.recovery_s.items())
        },
        "drained_s": round(drained_s, 1),
        "largest_outbox_bytes": held.outbox_bytes,
        "memory_grown_bytes": grown,
        "rows_folded_again": len(held.bodies),
        "seconds": round(took_s, 1),
    }


__all__ = ["ChaosError", "Plan", "run"]
