"""`doctor`: one line per check, with the next step where something is wrong; exit code 1 if anything is."""

from __future__ import annotations

import base64
import os
import socket
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterator, Optional

from agent import wire
from agent.clock import SYNCHRONISED, kernel_clock_status
from agent.collect.ib import IbCollector
from agent.collect.kmsg_read import SourceAbsent, SourceRefused, open_source
from agent.collect.pci import function_state, read_functions
from agent.config import Settings
from agent.errors import AgentError
from agent.identity import hardware_id
from agent.transport import Endpoint, Transport, TransportError, parse_endpoint, proxy_for

GOOD, WARN, BAD, NONE = "ok", "warn", "FAIL", "-"
SKEW_MOST_S = 60.0


@dataclass(frozen=True)
class Finding:
    """One line: a mark, what was checked, what was found, what to do."""

    mark: str
    what: str
    found: str
    advice: str = ""

    def line(self) -> str:
        """The line as printed."""
        return f"[{self.mark:>4}] {self.what}: {self.found}" + (f" - {self.advice}" if self.advice else "")


def examine(settings: Settings, say: Callable[[str], None] = print) -> int:
    """Prints all findings; 0 if none of them is a failure."""
    failed = False
    for finding in findings(settings):
        say(finding.line())
        failed = failed or finding.mark == BAD
    return 1 if failed else 0


def findings(settings: Settings) -> Iterator[Finding]:
    """Every check in turn."""
    yield from _hardware(settings)
    yield _clock()
    yield from _files(settings)
    yield from _server(settings)


# -- the machine -----------------------------------------------------------------------------------------------------


def _hardware(settings: Settings) -> Iterator[Finding]:
    from agent.collect.nvml import NvmlCollector

    functions = read_functions(settings.sysfs) or {}
    gpus = [bus for bus, facts in functions.items() if facts["class"].startswith("0x03")]
    dead = [bus for bus in gpus if function_state(functions[bus]["config"]) == "dead"]
    if dead:
        yield Finding(BAD, "PCI", f"{len(dead)} of {len(gpus)} GPUs do not answer: {', '.join(dead)}")
    else:
        yield Finding(GOOD if gpus else NONE, "PCI", f"{len(gpus)} NVIDIA GPUs")
    collector = NvmlCollector(settings.nvml_timeout, lambda _kind, _text: "")
    try:
        from agent.clock import SystemClock

        reading = collector.collect(SystemClock().now())
    finally:
        collector.close()
    count, code = len(reading.facts["gpus"]), reading.facts.get("nvml_error")
    driver = reading.batch.get("driver_version", "")
    if count:
        mark = GOOD if count >= len(gpus) else BAD
        yield Finding(mark, "NVML", f"{count} GPUs, driver {driver}", "" if mark == GOOD else "a GPU is missing")
    elif gpus:
        yield Finding(BAD, "NVML", f"{reading.status}, return code {code}", _nvml_advice(code))
    else:
        yield Finding(NONE, "NVML", "no driver and no GPU here")
    yield _kmsg(settings.kmsg)
    ports = IbCollector(settings.sysfs, lambda _kind, _text: "").collect(SystemClock().now()).facts["ib_ports"]
    active = sum(port.get("state") == "ACTIVE" for port in ports)
    yield Finding(GOOD if ports else NONE, "InfiniBand", f"{active} of {len(ports)} ports ACTIVE")
    identity = "the machine tells its DMI identity" if hardware_id() else "no DMI identity; the node is its host name"
    yield Finding(GOOD if hardware_id() else WARN, "hardware id", identity)


def _nvml_advice(code: Optional[int]) -> str:
    return {
        4: "the agent's user may not open /dev/nvidia*",
        9: "load the driver: modprobe nvidia",
        12: "libnvidia-ml.so.1 is not found: install the driver's libraries or mount them into the container",
        18: "driver and library differ: reload the driver or reboot",
        999: "a container that lost its devices: restart the agent's container",
    }.get(code or 0, "run nvidia-smi for more")


def _kmsg(path: Path) -> Finding:
    try:
        open_source(path).close()
    except SourceRefused:
        return Finding(BAD, "kernel log", f"{path} may not be read", "give the agent CAP_SYSLOG")
    except SourceAbsent as error:
        return Finding(BAD, "kernel log", str(error), "without it no Xid is seen; in a container mount /dev/kmsg")
    return Finding(GOOD, "kernel log", f"{path} is readable")


def _clock() -> Finding:
    status, error_ms = kernel_clock_status()
    if status == SYNCHRONISED:
        return Finding(GOOD, "clock", f"synchronised, within {error_ms} ms")
    return Finding(WARN, "clock", status, "run chrony or systemd-timesyncd")


# -- files -----------------------------------------------------------------------------------------------------------


def _files(settings: Settings) -> Iterator[Finding]:
    directory = settings.state_dir
    if not directory.exists():
        yield Finding(NONE, "state", f"{directory} does not exist yet; the first run makes it")
    else:
        info = directory.lstat()
        if not stat.S_ISDIR(info.st_mode) or not os.access(directory, os.W_OK):
            yield Finding(BAD, "state", f"{directory} cannot be written", "run as the agent's user")
        elif info.st_mode & 0o077:
            yield Finding(WARN, "state", f"{directory} can be read by others", f"chmod 700 {directory}")
        else:
            yield Finding(GOOD, "state", str(directory))
        free = os.statvfs(directory).f_bavail * os.statvfs(directory).f_frsize
        if free < settings.outbox_mb * 1_000_000:
            yield Finding(WARN, "disk", f"{free // 1_000_000} MB free, the outbox may take {settings.outbox_mb} MB")
        yield from _outboxes(directory)
    yield _signature(directory)
    yield from _enrolment(directory)
    if settings.token_file is None:
        yield Finding(NONE, "key", "none given (--token-file); only a server in local mode takes that")
        return
    from agent.build_nodes import token_reader

    try:
        token_reader(settings.token_file)()
    except AgentError as error:
        yield Finding(BAD, "key", str(error))
    else:
        yield Finding(GOOD, "key", f"{settings.token_file} is readable by its owner only")


def _signature(directory: Path) -> Finding:
    from agent import ed25519
    from agent.identity import Signer

    if ed25519.load(bytes(ed25519.SEED_BYTES)) is None:
        return Finding(WARN, "signature", "batches go unsigned", "install the Python package cryptography")
    if not (directory / "signing.key").exists():
        return Finding(GOOD, "signature", "batches will be signed; the first run makes the key")
    try:
        key = Signer(directory).public_key or ""
        shown = wire.fingerprint(base64.b64decode(key))
        return Finding(GOOD, "signature", f"batches are signed, key {shown} (public key {key})")
    except AgentError as error:
        return Finding(BAD, "signature", str(error))


def _enrolment(directory: Path) -> Iterator[Finding]:
    from agent.enrol import kept

    found = kept(directory) if directory.exists() else {}
    if not found:
        yield Finding(NONE, "enrolment", "the key is not enrolled yet; the first upload does it")
        return
    own = ", with an ingest key of its own" if "token" in found else ""
    state, server = str(found.get("state")), str(found.get("server"))
    mark = GOOD if state == "active" else WARN
    advice = "" if mark == GOOD else "an admin decides under Settings, Agents"
    yield Finding(mark, "enrolment", f"{state} at {server}{own}", advice)
    told = found.get("log_key")
    if isinstance(told, str) and told:
        yield Finding(GOOD, "log key", f"receipts must bear the signature of {told}")


def _outboxes(directory: Path) -> Iterator[Finding]:
    from agent.control import status

    try:
        nodes = status(directory)["nodes"]
    except AgentError:
        yield Finding(NONE, "outbox", "not made yet")
        return
    for node in nodes:
        if "error" in node:
            yield Finding(BAD, "outbox", f"{node['outbox']}: {node['error']}")
            continue
        found = f"{node['batches_queued']} batches wait, {node['delivered']} delivered, {node['dropped']} dropped"
        mark = WARN if node["batches_quarantined"] or node["dropped"] else GOOD
        advice = "" if mark == GOOD else "see the notes of `goodput-agent status`"
        yield Finding(mark, "outbox", found, advice)


# -- the server ------------------------------------------------------------------------------------------------------


def _server(settings: Settings) -> Iterator[Finding]:
    try:
        endpoint = parse_endpoint(settings.endpoint)
    except AgentError as error:
        yield Finding(BAD, "endpoint", str(error))
        return
    proxy = proxy_for(endpoint)
    if proxy is None:
        try:
            addresses = {str(info[4][0]) for info in socket.getaddrinfo(endpoint.host, endpoint.port)}
        except OSError:
            yield Finding(BAD, "DNS", f"{endpoint.host} cannot be resolved", "check --endpoint and /etc/resolv.conf")
            return
        yield Finding(GOOD, "DNS", f"{endpoint.host} is {', '.join(sorted(addresses)[:4])}")
    else:
        yield Finding(GOOD, "proxy", f"by way of {proxy[0]}:{proxy[1]}")
    if endpoint.plain:
        yield Finding(
            WARN, "TLS", "http://: batches and the key travel unencrypted", "use https:// beyond this machine"
        )
    yield from _knock(endpoint, settings)


def _knock(endpoint: Endpoint, settings: Settings) -> Iterator[Finding]:
    """Sends an empty body: a Goodput server refuses it as malformed if it knows the key, and stores nothing."""
    from agent.build_nodes import token_reader
    from agent.enrol import token_in_use

    headers = {"Content-Type": "application/msgpack", "Content-Encoding": "gzip", "User-Agent": "goodput-agent"}
    try:
        token = token_in_use(settings.state_dir, token_reader(settings.token_file)())
    except AgentError:
        return
    if token:
        headers["Authorization"] = f"Bearer {token}"
    transport = Transport(endpoint, deadline_s=15)
    try:
        reply = transport.post(b"", headers)
    except TransportError as error:
        yield Finding(BAD, "server", f"{endpoint.url}: {error}", "is the server up, and is the port open?")
        return
    finally:
        transport.close()
    yield Finding(GOOD, "server", f"{endpoint.url} answers")
    if reply.status in (401, 403):
        if b'"missing_scope"' in reply.body:
            yield Finding(
                WARN, "key", "this token may not send batches", "if it may enrol, the first run enrols the node"
            )
        else:
            yield Finding(BAD, "key", "the server refuses it", "issue a new key and put it into the key file")
    elif reply.status not in (400, 411, 415, 422) or "json" not in reply.headers.get("content-type", ""):
        yield Finding(BAD, "server", f"status {reply.status}: this is no Goodput ingest address", "check --endpoint")
    skew = _skew(reply.headers.get("date"))
    if skew is not None:
        mark = GOOD if abs(skew) <= SKEW_MOST_S else BAD
        yield Finding(mark, "clock skew", f"{skew:+.0f} s against the server", "" if mark == GOOD else "set the clock")


def _skew(date: Optional[str]) -> Optional[float]:
    import email.utils

    if not date:
        return None
    try:
        return time.time() - email.utils.parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError):
        return None
