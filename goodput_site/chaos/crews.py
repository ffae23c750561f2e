"""The agents' processes: started, killed, started again, always with the same outbox files."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

import psutil

from agent.failpoints import EXIT_CODE, NAMES
from goodput_site.chaos.agents import Crew
from goodput_site.chaos.product import SECOND_ORG, Product
from goodput_site.launcher.processes import ROOT

FAULTY = {"fragile-1": "thermal", "fragile-2": "xid79", "fragile-3": "ecc_storm", "fragile-4": "driver_reload"}
SKEWED = "stepped-1"  # whose wall clock is set wrong for a while
DAMAGED = "damaged-1"  # whose outbox file is damaged
CRAMPED = "cramped-1"  # whose disk is full for a while


class Crews:
    """All agents' processes of a run, by name."""

    def __init__(self, product: Product, endpoint: str, seed: int, slots: int, tick_s: float, nodes: int) -> None:
        self.product = product
        self.control = product.folder / "control.json"
        self.orders: dict[str, Any] = {"phase": "run", "skew_ms": {}}
        self.rng = random.Random(seed)
        self.kills = 0
        self.failpoints_hit: set[str] = set()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._pumps: list[threading.Thread] = []
        now_slot = int(time.time()) // 15
        shared: dict[str, Any] = {
            "endpoint": endpoint,
            "control": str(self.control),
            "seed": seed,
            "first_slot": now_slot - slots - 480,  # all of it lies in the past when it is over
            "began": time.time() + 3,
            "tick_s": tick_s,
        }
        healthy = [f"node-{number:02d}" for number in range(1, nodes - 13)]
        quarter = -(-len(healthy) // 4)
        plan = {f"crew-{i + 1}": healthy[i * quarter : (i + 1) * quarter] for i in range(4)}
        self.crews = {name: self._crew(name, dict.fromkeys(part, "healthy"), shared) for name, part in plan.items()}
        special = {SKEWED: "healthy", DAMAGED: "healthy", CRAMPED: "healthy"}
        self.crews["special"] = self._crew("special", special, shared)
        self.crews["faulty"] = self._crew("faulty", FAULTY, shared)
        second = {f"other-{number}": "healthy" for number in range(1, 7)}
        self.crews["second"] = self._crew("second", second, shared, SECOND_ORG)
        self.first_slot = int(shared["first_slot"])
        self.save_orders()

    def _crew(self, name: str, scenarios: dict[str, str], shared: dict[str, Any], org: str = "local") -> Crew:
        folder = self.product.folder / "agents" / name
        folder.mkdir(mode=0o700, parents=True)
        token = str(self.product.token_file) if org == SECOND_ORG else None
        return Crew(name, org, scenarios, f"cluster-of-{org}", token_file=token, folder=str(folder), **shared)

    @property
    def nodes(self) -> int:
        """How many agents there are."""
        return sum(len(crew.scenarios) for crew in self.crews.values())

    def save_orders(self) -> None:
        """Tells the processes what to do now."""
        draft = self.control.with_suffix(".new")
        draft.write_text(json.dumps(self.orders))
        draft.replace(self.control)

    def start(self, name: str, failpoint: str = "") -> None:
        """Starts one process; `failpoint` is where it ends itself."""
        crew = self.crews[name]
        file = Path(crew.folder) / "crew.json"
        file.write_text(json.dumps(dataclasses.asdict(crew)))
        env = dict(self.product.env)
        if failpoint:
            env["GOODPUT_FAILPOINT"] = failpoint
        process = subprocess.Popen(
            [sys.executable, "-m", "goodput_site.chaos.agents", str(file)],
            cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._processes[name] = process
        for pipe, file_name in ((process.stdout, "book.jsonl"), (process.stderr, "log")):
            pump = threading.Thread(target=_pump, args=(pipe, Path(crew.folder) / file_name), daemon=True)
            pump.start()
            self._pumps.append(pump)

    def start_all(self) -> None:
        """Starts every process."""
        for name in self.crews:
            self.start(name)

    def keep_up(self) -> None:
        """Starts again what has ended, as an init system would."""
        for name, process in list(self._processes.items()):
            status = process.poll()
            if status is not None:
                self.kills += 1
                self.start(name)

    def pid(self, name: str) -> int:
        """The pid of a crew's process."""
        return self._processes[name].pid

    def kill(self, name: str) -> None:
        """kill -9, then a start; some starts end themselves at a failpoint within seconds."""
        process = self._processes[name]
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.kills += 1
        self.start(name)

    def kill_at_failpoint(self, name: str, point: str) -> bool:
        """Starts a crew so that it ends itself at `point`, and again without; whether it did so within 15 s."""
        process = self._processes[name]
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.start(name, f"{point}:{self.rng.randrange(1, 6)}")
        try:
            hit = self._processes[name].wait(15) == EXIT_CODE
        except subprocess.TimeoutExpired:
            self._processes[name].kill()
            self._processes[name].wait()
            hit = False
        if hit:
            self.failpoints_hit.add(point)
        self.kills += 2
        self.start(name)
        return hit

    @property
    def failpoints(self) -> tuple[str, ...]:
        """All points at which an agent can be made to end."""
        return NAMES

    def limit_files(self, name: str, most_bytes: int) -> None:
        """Lets a crew's process write no file beyond this size, as a full disk would; -1 lifts it."""
        limit = (psutil.RLIM_INFINITY,) * 2 if most_bytes < 0 else (most_bytes, psutil.RLIM_INFINITY)
        psutil.Process(self.pid(name)).rlimit(psutil.RLIMIT_FSIZE, limit)

    def books(self) -> list[Path]:
        """The oracle's files."""
        return [Path(crew.folder) / "book.jsonl" for crew in self.crews.values()]

    def outboxes(self) -> dict[str, Path]:
        """Node -> its outbox file."""
        return {
            node: Path(crew.folder) / node / "outbox.sqlite" for crew in self.crews.values() for node in crew.scenarios
        }

    def damage(self, node: str) -> bool:
        """Overwrites the heads of a node's outbox and its WAL while its process is dead; whether there was one."""
        name = next(name for name, crew in self.crews.items() if node in crew.scenarios)
        process = self._processes[name]
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.kills += 1
        file = self.outboxes()[node]
        found = file.exists()
        if found:
            for damaged in (file, file.with_name(file.name + "-wal")):
                if damaged.exists():
                    with damaged.open("r+b") as out:
                        out.write(os.urandom(2000))
        self.start(name)
        return found

    def drain(self) -> None:
        """No more samples; everything that is kept is to be delivered."""
        self.orders["phase"] = "drain"
        self.save_orders()

    def stop(self) -> None:
        """Ends all processes, in order."""
        for process in self._processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pump in self._pumps:
            pump.join(10)


def _pump(pipe: IO[bytes], file: Path) -> None:
    """Writes what comes through a pipe to the end of a file, until all of its writers are gone."""
    with pipe, file.open("ab", buffering=0) as out:
        while data := os.read(pipe.fileno(), 1 << 16):
            out.write(data)
