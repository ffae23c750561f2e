"""F01, F08, F10, F11: what happens on a node."""

from __future__ import annotations

from pathlib import Path

from goodput_site.chaos.crews import CRAMPED, DAMAGED, SKEWED
from goodput_site.chaos.faults.scene import Fault, Scene, Strike


def kill_agents(scene: Scene) -> Strike:
    """kill -9 of a process with a dozen agents."""
    name = scene.rng.choice(list(scene.crews.crews))
    scene.crews.kill(name)
    scene.killed("agent")
    return Strike(True, name)


def kill_at_failpoints(scene: Scene) -> Strike:
    """os._exit between sample and delete, at two of the eight points each time."""
    left = [point for point in scene.crews.failpoints if point not in scene.crews.failpoints_hit]
    points = scene.rng.sample(left or list(scene.crews.failpoints), min(2, len(left) or 2))
    hit = []
    for point in points:
        if scene.crews.kill_at_failpoint(scene.rng.choice(["crew-1", "crew-2", "crew-3", "second"]), point):
            scene.killed("agent")
            hit.append(point)
    return Strike(bool(hit), ", ".join(hit))


def full_disk(scene: Scene) -> Strike:
    """No file of one process may grow beyond a few kB for two seconds: the agents go on in memory and say so."""
    home = scene.crews.outboxes()[CRAMPED].parent
    scene.crews.limit_files("special", 4096)
    scene.pause(2.5)
    scene.crews.limit_files("special", -1)
    log = (home.parent / "log").read_text(errors="replace")
    return Strike("takes nothing" in log, "went on in memory")


def damage_outbox(scene: Scene) -> Strike:
    """Noise over the heads of an outbox and its WAL: set aside, a new one begins with what is whole."""
    if not scene.crews.damage(DAMAGED):
        return Strike(False, "there was no file yet")
    scene.pause(3)
    aside = list(Path(scene.crews.outboxes()[DAMAGED].parent).glob("outbox.sqlite.damaged-*"))
    return Strike(bool(aside), f"{len(aside)} set aside")


def step_clock(scene: Scene) -> Strike:
    """One node's wall clock stands an hour ahead, then an hour behind, then right; its boot-time clock goes on."""
    for skew in (3_600_000, -3_600_000, 0):
        scene.crews.orders["skew_ms"] = {SKEWED: skew}
        scene.crews.save_orders()
        scene.pause(2)
    return Strike(True, "+1 h, -1 h, right again")


FAULTS = (
    Fault("F01", "kill -9 of agents", kill_agents, times=2),
    Fault("F01", "agents end at a failpoint", kill_at_failpoints, times=4),
    Fault("F08", "the agents' disk is full", full_disk),
    Fault("F10", "an outbox file is damaged", damage_outbox),
    Fault("F11", "a wall clock is set wrong", step_clock),
)
