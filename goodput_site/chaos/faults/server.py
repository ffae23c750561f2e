"""F02 to F05, F17 to F19, F21, F23: web server, worker, beat, broker, deployment, keys and orgs."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time

import psutil
import redis

from goodput_site.chaos.faults.scene import Fault, Scene, Strike
from goodput_site.chaos.product import SECOND_ORG
from goodput_site.launcher.processes import ROOT


def _kill(scene: Scene, part: str, with_signal: signal.Signals = signal.SIGKILL) -> Strike:
    seconds = scene.product.kill_part(part, with_signal)
    scene.killed(part)
    return Strike(True, with_signal.name, {part: seconds})


def _kill_child(scene: Scene, part: str) -> Strike:
    scene.product.wait(lambda: scene.product.children(part), 60, f"{part} has started nothing")
    children = [child.pid for child in scene.product.children(part)]
    hit = bool(children) and scene.product.kill(scene.rng.choice(children))
    if hit:
        scene.killed(f"{part} child")
    scene.product.wait(lambda: scene.product.part(part).get("state") == "up", 60, f"{part} does not come back")
    return Strike(hit, f"one of {len(children)}")


def kill_web(scene: Scene) -> Strike:
    """kill -9 of the web server's master, requests under way."""
    return _kill(scene, "web")


def kill_web_worker(scene: Scene) -> Strike:
    """kill -9 of the process that answers."""
    return _kill_child(scene, "web")


def kill_worker(scene: Scene) -> Strike:
    """kill -9 of the Celery worker, whatever it does."""
    return _kill(scene, "worker")


def kill_worker_child(scene: Scene) -> Strike:
    """kill -9 of the pool process that folds."""
    return _kill_child(scene, "worker")


def kill_beat(scene: Scene) -> Strike:
    """kill -9 of beat."""
    return _kill(scene, "beat")


def two_beats(scene: Scene) -> Strike:
    """A second beat for some seconds."""
    schedule = str(scene.product.folder / "second-beat")
    command = [sys.executable, "-m", "celery", "-A", "goodput_site.celery:app", "beat", "-s", schedule]
    second = subprocess.Popen(
        command, cwd=ROOT, env={**scene.product.env, **scene.product.contract()}, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    scene.pause(5)
    ran = second.poll() is None
    second.kill()
    second.wait()
    return Strike(ran, "for 5 s")


def stop_beat(scene: Scene) -> Strike:
    """Beat hangs: no sweep is asked for, as if it were down for long."""
    pid = scene.product.pid("beat")
    scene.product.kill(pid, signal.SIGSTOP)
    scene.pause(4)
    scene.product.kill(pid, signal.SIGCONT)
    return Strike(True, "4 s")


def kill_broker(scene: Scene) -> Strike:
    """kill -9 of the broker."""
    return _kill(scene, "valkey")


def flush_broker(scene: Scene) -> Strike:
    """FLUSHALL: every message and hint is gone."""
    broker = redis.Redis.from_url(scene.product.contract()["REDIS_URL"])
    before = broker.dbsize()
    broker.flushall()
    return Strike(bool(before), f"{before} keys")


def fill_broker(scene: Scene) -> Strike:
    """The broker's memory is full and it evicts nothing: writes to it fail, uploads must not."""
    broker = redis.Redis.from_url(scene.product.contract()["REDIS_URL"])
    acked = scene.acked()
    broker.config_set("maxmemory-policy", "noeviction")
    broker.config_set("maxmemory", "1mb")
    refused = False
    try:
        broker.set("goodput:chaos", b"x" * 4096)
    except redis.ResponseError:
        refused = True
    scene.pause(4)
    broker.config_set("maxmemory", "0")
    return Strike(refused and scene.acked() > acked, f"{scene.acked() - acked} uploads were taken meanwhile")


def redeploy(scene: Scene) -> Strike:
    """SIGTERM to web and worker, as a rolling deployment sends it."""
    first = _kill(scene, "web", signal.SIGTERM)
    second = _kill(scene, "worker", signal.SIGTERM)
    return Strike(True, "SIGTERM", {**first.recovery_s, **second.recovery_s})


def migrate_and_grow(scene: Scene) -> Strike:
    """A deployment's migrations and a new org's schema while batches arrive."""
    acked = scene.acked()
    scene.product.manage("prepare")
    scene.product.manage("create_org", f"new-{scene.rng.randrange(10**6)}", "--name", "A new one")
    return Strike(scene.acked() > acked, f"{scene.acked() - acked} uploads meanwhile")


def starve(scene: Scene) -> Strike:
    """Every core is busy with something else."""
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], stdin=subprocess.DEVNULL)
        for _ in range(psutil.cpu_count() or 1)
    ]
    try:
        scene.pause(4)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    return Strike(True, f"{len(busy)} processes for 4 s")


def freeze_web(scene: Scene) -> Strike:
    """The web server's worker hangs for some seconds, requests under way."""
    children = scene.product.children("web")
    for child in children:
        with contextlib.suppress(psutil.Error):
            child.suspend()
    scene.pause(4)
    for child in children:
        with contextlib.suppress(psutil.Error):
            child.resume()
    return Strike(bool(children), f"{len(children)} processes for 4 s")


def revoke_key(scene: Scene) -> Strike:
    """The second org's key is revoked while its agents have a backlog; a new one is laid in their file later."""
    refused = scene.proxy.statuses[401]
    with scene.product.database() as database:
        database.execute(
            "UPDATE orgs_apikey SET revoked_at = now() FROM orgs_org"
            " WHERE orgs_apikey.org_id = orgs_org.id AND orgs_org.slug = %s AND revoked_at IS NULL",
            (SECOND_ORG,),
        )
    until = time.monotonic() + 40  # it must be refused within 30 s
    while scene.proxy.statuses[401] == refused and time.monotonic() < until:
        scene.pause(0.5)
    scene.product.key()
    return Strike(scene.proxy.statuses[401] > refused, f"{scene.proxy.statuses[401] - refused} refusals")


FAULTS = (
    Fault("F02", "kill -9 of the web server", kill_web),
    Fault("F02", "kill -9 of a web process", kill_web_worker),
    Fault("F03", "kill -9 of the worker", kill_worker),
    Fault("F03", "kill -9 of a fold process", kill_worker_child),
    Fault("F04", "kill -9 of beat", kill_beat),
    Fault("F04", "two beats", two_beats),
    Fault("F04", "beat hangs", stop_beat),
    Fault("F05", "kill -9 of the broker", kill_broker),
    Fault("F05", "the broker forgets everything", flush_broker),
    Fault("F05", "the broker is full", fill_broker),
    Fault("F17", "migrations and a new org", migrate_and_grow),
    Fault("F18", "a rolling deployment", redeploy),
    Fault("F19", "no CPU is left", starve),
    Fault("F19", "the web server hangs", freeze_web),
    Fault("F21", "a key is revoked", revoke_key),
)
