"""Puts nodes together from the settings: real collectors or simulated ones, outbox, key, endpoint."""

from __future__ import annotations

import fcntl
import logging
import os
import re
from functools import partial
from pathlib import Path
from typing import Callable, Mapping, Optional

from agent import __version__, wire
from agent.clock import Clock, SystemClock, last_shutdown, newest_journal_instant
from agent.collect.base import Collector
from agent.config import Settings
from agent.enrol import Enrolment
from agent.errors import AgentError, ConfigError
from agent.identity import Salt, Signer, hardware_id, private_dir, read_private, renew_secrets, safe_file
from agent.net import Net
from agent.node import Node
from agent.sender import Sender
from agent.store import Store
from agent.transport import Endpoint, Transport, parse_endpoint

log = logging.getLogger("goodput.build")

_TOKEN = re.compile(r"[!-~]{1,512}")


class Lock:
    """Holds a state directory for one process. Raises AgentError if another agent has it."""

    def __init__(self, directory: Path) -> None:
        path = directory / "lock"
        safe_file(path)
        self._descriptor = os.open(str(path), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            raise AgentError(f"another agent runs with the state directory {directory}") from None
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, f"{os.getpid()}\n".encode())

    def close(self) -> None:
        """Gives the directory free."""
        os.close(self._descriptor)


def token_reader(path: Optional[Path]) -> Callable[[], Optional[str]]:
    """A function that gives the key, read anew when the file changes, so that a new key needs no restart."""
    if path is None:
        return lambda: None
    cache: dict[float, str] = {}

    def read() -> Optional[str]:
        try:
            changed = path.stat().st_mtime
            if changed not in cache:
                token = read_private(path).decode("ascii", "replace").strip()
                if not _TOKEN.fullmatch(token):
                    raise ConfigError(f"{path} holds no key: one line of printable characters is expected")
                cache.clear()
                cache[changed] = token
            return cache[changed]
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {os.strerror(error.errno or 0)}") from None

    return read


def use_simulated(settings: Settings) -> bool:
    """Whether the simulated source is to be used: asked for, or `auto` on a machine without the driver."""
    if settings.source != "auto":
        return settings.source == "sim"
    from agent.collect.nvml import driver_present

    return not driver_present()


def real_collectors(settings: Settings, directory: Path, clock: SystemClock) -> list[Collector]:
    """The collectors of a real node."""
    from agent.collect.ib import IbCollector
    from agent.collect.kmsg import KmsgCollector
    from agent.collect.nvml import NvmlCollector
    from agent.collect.pci import PciCollector
    from agent.line_ring import LineRing

    salt = Salt(directory)
    pci = PciCollector(settings.sysfs)
    nvml = NvmlCollector(settings.nvml_timeout, salt.hash, lambda: pci.states)
    return [
        pci,  # first: the GPUs' reading is judged with the bus's of the same sample
        nvml,
        IbCollector(settings.sysfs, salt.hash),
        KmsgCollector(settings.kmsg, clock, keep_line=LineRing(directory).keep, slices=nvml.slices),
    ]


def node_names(settings: Settings, simulated: bool) -> list[str]:
    """Names of the nodes that this process drives."""
    if not simulated:
        if settings.sim_nodes != 1:
            raise ConfigError("--sim-nodes needs the simulated source (--source sim)")
        return [settings.node_id]
    if settings.sim_nodes == 1 and "node_id" in settings.given:
        return [settings.node_id]
    prefix = settings.node_id if "node_id" in settings.given else "sim"
    return [f"{prefix}-{number:02d}" for number in range(1, settings.sim_nodes + 1)]


def state_dirs(settings: Settings, names: list[str]) -> list[Path]:
    """One state directory per node; several nodes get a folder each below --state-dir."""
    if len(names) == 1:
        return [settings.state_dir]
    return [settings.state_dir / re.sub(r"[^A-Za-z0-9._-]", "_", name) for name in names]


def make_sender(
    endpoint: Endpoint,
    directory: Path,
    store: Store,
    clock: Clock,
    token: Callable[[], Optional[str]],
    said: Mapping[str, Optional[str]],
) -> Sender:
    """The sender of one node, with its signing key and its enrolment; `said` is what the enrolment tells of it."""
    signer, transport = Signer(directory), Transport(endpoint, state_dir=directory)
    enrol = Enrolment(directory, transport, signer, token, said)
    return Sender(store, clock, transport, token, signer.sign, enrol=enrol)


def build(settings: Settings, sending: bool = True) -> tuple[list[Node], Lock]:
    """The nodes of this process, ready to sample; `sending` gives each a sender."""
    endpoint = parse_endpoint(settings.endpoint)
    token = token_reader(settings.token_file)
    token()  # a wrong key file is told now, not a minute later
    simulated = use_simulated(settings)
    if simulated:  # a real node loads nothing of it
        from agent.collect.sim import SimClock, simulated_collectors
        from agent.collect.sim_world import SCENARIOS, World

        if settings.scenario not in SCENARIOS:
            raise ConfigError(f"--scenario must be one of {', '.join(SCENARIOS)}")
    cluster = settings.cluster or ("demo" if simulated else "local-dev")
    names = node_names(settings, simulated)
    private_dir(settings.state_dir)
    lock = Lock(settings.state_dir)
    nodes = []
    directories = state_dirs(settings, names)
    for role, name in enumerate(names):
        directory = private_dir(directories[role])
        safe_file(directory / "outbox.sqlite")
        hw_id = None if simulated else hardware_id()
        store = Store(directory, settings.outbox_mb * 1_000_000, hw_id, partial(renew_secrets, directory))
        labelled = simulated or settings.allow_inject == "yes"  # test faults are no evidence, so nothing of it is
        version = __version__ + (wire.SIMULATED_SUFFIX if labelled else "")
        said = {"cluster_id": cluster, "node_id": name, "hw_id": hw_id, "agent_version": version}
        if simulated:
            world = World(settings.seed, name, settings.scenario, role)
            sim_clock = SimClock(world)
            sender = make_sender(endpoint, directory, store, sim_clock, token, said) if sending else None
            nodes.append(
                Node(cluster, name, sim_clock, simulated_collectors(world), store, sender, True, shutdown="clean")
            )
            continue
        clock = SystemClock()
        sender = make_sender(endpoint, directory, store, clock, token, said) if sending else None
        collectors = real_collectors(settings, directory, clock)
        shutdown, net = last_shutdown(), Net(settings.peers)
        nodes.append(
            Node(
                cluster, name, clock, collectors, store, sender, labelled, hw_id, shutdown, net.facts,
                newest_journal_instant,
            )
        )  # fmt: skip
    return nodes, lock
