"""Puts nodes together from the settings: real collectors or simulated ones, outbox, key, endpoint."""

from __future__ import annotations

import fcntl
import logging
import os
import re
from functools import partial
from pathlib import Path
from typing import Callable, Mapping, Optional

from agent.clock import Clock, SystemClock, last_shutdown, newest_journal_instant
from agent.collect.base import Collector
from agent.config import Settings
from agent.enrol import Enrolment
from agent.errors import AgentError, ConfigError
from agent.identity import Salt, Signer, hardware_id, private_dir, read_private, renew_secrets, safe_file
from agent.line_ring import LineRing
from agent.net import Net
from agent.node import Node
from agent.receipts import KEPT_BYTES, Receipts
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


def source_kind(settings: Settings) -> str:
    """`nvml`, `sim` or `prometheus`: as asked for; `auto` simulates on a machine without the driver."""
    if settings.source != "auto":
        return settings.source
    from agent.collect.nvml import driver_present

    return "nvml" if driver_present() else "sim"


def real_collectors(settings: Settings, directory: Path, clock: SystemClock) -> list[Collector]:
    """The collectors of a real node."""
    from agent.collect.ib import IbCollector
    from agent.collect.kmsg import KmsgCollector
    from agent.collect.nvml import NvmlCollector
    from agent.collect.pci import PciCollector

    salt = Salt(directory)
    pci = PciCollector(settings.sysfs)
    nvml = NvmlCollector(settings.nvml_timeout, salt.hash, lambda: pci.states)
    return [
        pci,  # first: the GPUs' reading is judged with the bus's of the same sample
        nvml,
        IbCollector(settings.sysfs, salt.hash),
        KmsgCollector(settings.kmsg, clock, keep_line=LineRing(directory).keep, slices=nvml.slices),
    ]


def node_names(settings: Settings) -> list[str]:
    """Names of the simulated nodes that this process drives."""
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
    log_key: str = "",
    kept_bytes: int = KEPT_BYTES,
) -> Sender:
    """The sender of one node, with its signing key and its enrolment; `said` is what the enrolment tells of it.

    `log_key`: the pinned key of receipts; `kept_bytes`: how much of them stays.
    """
    signer, transport = Signer(directory), Transport(endpoint, state_dir=directory)
    enrol = Enrolment(directory, transport, signer, token, said)
    keep = LineRing(directory, kept_bytes, "receipts.log").keep
    receipts = Receipts(log_key, lambda: enrol.log_key, enrol.doubt_log_key, keep)
    return Sender(store, clock, transport, token, signer.sign, enrol=enrol, receipts=receipts)


def build(settings: Settings, sending: bool = True) -> tuple[list[Node], Lock]:
    """The nodes of this process, ready to sample; `sending` gives each a sender."""
    endpoint = parse_endpoint(settings.endpoint)
    token = token_reader(settings.token_file)
    token()  # a wrong key file is told now, not a minute later
    kind = source_kind(settings)
    makers = {"sim": _simulated, "prometheus": _scraped, "nvml": _real}[kind](settings)
    private_dir(settings.state_dir)
    lock = Lock(settings.state_dir)
    machine = None if kind == "sim" else hardware_id()
    directories = state_dirs(settings, list(makers))
    nodes = []
    for number, (name, make) in enumerate(makers.items()):
        directory = private_dir(directories[number])
        safe_file(directory / "outbox.sqlite")
        store = Store(directory, settings.outbox_mb * 1_000_000, machine, partial(renew_secrets, directory))
        node = make(store, directory)
        if sending:
            said = {"cluster_id": node.cluster, "node_id": name, "hw_id": node.hw_id, "agent_version": node.version}
            kept = KEPT_BYTES if kind != "sim" else KEPT_BYTES // 32
            node.sender = make_sender(endpoint, directory, store, node.clock, token, said, settings.log_key, kept)
        nodes.append(node)
    return nodes, lock


Maker = Callable[[Store, Path], Node]


def _real(settings: Settings) -> dict[str, Maker]:
    def make(store: Store, directory: Path) -> Node:
        clock = SystemClock()
        return Node(
            settings.cluster or "local-dev",
            settings.node_id,
            clock,
            real_collectors(settings, directory, clock),
            store,
            simulated=settings.allow_inject == "yes",  # test faults are no evidence, so nothing of this agent is
            hw_id=hardware_id(),
            shutdown=last_shutdown(),
            net=Net(settings.peers).facts,
            journal_instant=newest_journal_instant,
        )

    if settings.sim_nodes != 1:
        raise ConfigError("--sim-nodes needs the simulated source (--source sim)")
    return {settings.node_id: make}


def _simulated(settings: Settings) -> dict[str, Maker]:
    from agent.collect.sim import SimClock, simulated_collectors  # a real node loads nothing of it
    from agent.collect.sim_world import SCENARIOS, World

    if settings.scenario not in SCENARIOS:
        raise ConfigError(f"--scenario must be one of {', '.join(SCENARIOS)}")

    def maker(role: int, name: str) -> Maker:
        def make(store: Store, _directory: Path) -> Node:
            world = World(settings.seed, name, settings.scenario, role)
            cluster, collectors = settings.cluster or "demo", simulated_collectors(world)
            return Node(cluster, name, SimClock(world), collectors, store, simulated=True, shutdown="clean")

        return make

    return {name: maker(role, name) for role, name in enumerate(node_names(settings))}


def _scraped(settings: Settings) -> dict[str, Maker]:
    from agent.collect.prom import LABEL, RemoteClock, Scrape, parse_targets, scraped_collectors

    targets = parse_targets(settings.scrape)
    scrapes = {name: Scrape(urls) for name, urls in targets.items()}
    if len(scrapes) == 1 and "node_id" in settings.given:
        scrapes = {settings.node_id: next(iter(scrapes.values()))}

    def maker(name: str, scrape: Scrape) -> Maker:
        scrape.siblings = [other for other in scrapes.values() if other is not scrape]

        def make(store: Store, _directory: Path) -> Node:
            clock = RemoteClock(SystemClock(), scrape)
            cluster, collectors = settings.cluster or "local-dev", scraped_collectors(scrape)
            return Node(cluster, name, clock, collectors, store, boot=clock.boot, label=LABEL)

        return make

    return {name: maker(name, scrape) for name, scrape in scrapes.items()}
