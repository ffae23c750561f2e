"""F12 to F15: what lies between agents and server."""

from __future__ import annotations

from goodput_site.chaos.faults.scene import Fault, Scene, Strike
from goodput_site.chaos.proxy import SOME, Weather

BAD = {"drop_request": 0.05, "drop_answer": 0.12, "duplicate": 0.12, "delay": 0.1, "reorder": 0.05, "truncate": 0.05,
       "portal": 0.05, "too_many": 0.05, "bad_gateway": 0.05, "slow": 0.02}  # fmt: skip
assert set(BAD) == set(SOME)


def bad_weather(scene: Scene) -> Strike:
    """Two thirds of all requests are lost, doubled, delayed or answered by somebody else, for some seconds."""
    scene.wait_for_uploads()
    before = scene.proxy.struck.copy()
    scene.proxy.weather = Weather(BAD)
    scene.pause(6)
    scene.proxy.weather = Weather()
    met = {name: count for name, count in (scene.proxy.struck - before).items() if count}
    return Strike(met.get("ack_lost_after_commit", 0) > 0, f"{sum(met.values())} requests hit")


def flapping(scene: Scene) -> Strike:
    """The network goes and comes."""
    before = scene.proxy.struck["cut"]
    for _ in range(4):
        scene.proxy.weather = Weather(cut=True)
        scene.pause(0.7)
        scene.proxy.weather = Weather()
        scene.pause(0.7)
    return Strike(scene.proxy.struck["cut"] > before, "4 times")


def one_way(scene: Scene) -> Strike:
    """Requests arrive, answers don't."""
    scene.wait_for_uploads()
    before = scene.proxy.struck["one_way"]
    scene.proxy.weather = Weather(one_way=True)
    scene.pause(4)
    scene.proxy.weather = Weather()
    return Strike(scene.proxy.struck["one_way"] > before, f"{scene.proxy.struck['one_way'] - before} answers lost")


def long_outage(scene: Scene) -> Strike:
    """Nothing gets through for a while, then all agents return at once, and the network fails again meanwhile."""
    scene.proxy.weather = Weather(cut=True)
    scene.pause(6)
    scene.proxy.weather = Weather()
    scene.pause(1.5)
    scene.proxy.weather = Weather(cut=True)
    scene.pause(2)
    scene.proxy.weather = Weather()
    return Strike(True, "6 s, and 2 s while the backlog drained")


def replay(scene: Scene) -> Strike:
    """Somebody sends recorded requests again."""
    answers = scene.proxy.replay(60)
    return Strike(answers[202] > 0, f"{answers[202]} of {sum(answers.values())} answered with the first receipt")


FAULTS = (
    Fault("F13", "lost answers, duplicates, delays", bad_weather, times=2),
    Fault("F12", "the network flaps", flapping),
    Fault("F12", "a one-way network", one_way),
    Fault("F14", "an outage, and one more while catching up", long_outage),
    Fault("F13", "old requests are replayed", replay),
)
