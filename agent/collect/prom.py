"""GPUs and ports of a node that runs exporters for Prometheus instead of this agent: scraped, mapped, labelled.

The sampling clock is this machine's. The node's own boot is known only where node_exporter tells it; kernel lines, PCI
and the recovery action of the driver are not known at all, so verdicts that need them stay open.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import logging
import threading
import urllib.request
from typing import Any, Callable, Optional
from urllib.parse import unquote, urlsplit, urlunsplit

from agent.clock import Clock, Instant
from agent.collect.base import ABSENT, ERROR, OK, TIMEOUT, Collector, Memory, Reading
from agent.collect.ib_parse import deltas as port_deltas
from agent.collect.ib_parse import reasons_of
from agent.collect.nvml_parse import Deltas
from agent.collect.prom_map import PREFIXES, XidMemory, boot_of, driver_of, gpus_of, ports_of
from agent.collect.prom_text import Sample, parse
from agent.errors import ConfigError
from agent.schedule import slot_of

log = logging.getLogger("goodput.scrape")

TIMEOUT_S = 4.0
REPLY_MOST_BYTES = 16 << 20
TARGETS_MOST = 512
LABEL = "+prometheus"  # of agent_version: where these facts come from stands in every batch


Answer = tuple[str, list[Sample]]  # (state, what came)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: Any) -> None:
        """Nowhere: a target is what was configured."""


def parse_targets(text: str) -> dict[str, list[str]]:
    """Host name -> its exporters' addresses: several addresses of one host are one node. Raises ConfigError."""
    found: dict[str, list[str]] = {}
    for item in (part.strip() for part in text.split(",") if part.strip()):
        parts = urlsplit(item)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"--scrape: {item[:100]!r} is not http(s)://HOST[:PORT]/metrics")
        url = item if parts.path not in ("", "/") else urlunsplit((*parts[:2], "/metrics", *parts[3:]))
        found.setdefault(parts.hostname, []).append(url)
    if not found:
        raise ConfigError("--source prometheus needs --scrape URL[,URL…]")
    if sum(map(len, found.values())) > TARGETS_MOST:
        raise ConfigError(f"--scrape takes at most {TARGETS_MOST} addresses")
    return found


def fetch(url: str) -> str:
    """What a target serves. Raises OSError; the message holds no secret."""
    parts = urlsplit(url)
    headers = {"Accept": "text/plain;version=0.0.4", "User-Agent": "goodput-agent"}
    if parts.username:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        url = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], *parts[2:]))
    handlers: list[Any] = [_NoRedirect()]
    if parts.scheme == "https":
        from agent.authorities import client_context

        handlers.append(urllib.request.HTTPSHandler(context=client_context()))
    with urllib.request.build_opener(*handlers).open(
        urllib.request.Request(url, headers=headers),  # noqa: S310 - http(s) alone, by parse_targets
        timeout=TIMEOUT_S,
    ) as reply:
        body: bytes = reply.read(REPLY_MOST_BYTES + 1)
    if len(body) > REPLY_MOST_BYTES:
        raise OSError("the target serves more than 16 MB")
    return body.decode("utf-8", "replace")


class Scrape:
    """The exporters of one node, asked once a slot, each from a thread of its own.

    `siblings` are the scrapes of the other nodes of this process: the first that is asked begins all of them, so that a
    black hole delays no other node.
    """

    def __init__(self, urls: list[str], get: Callable[[str], str] = fetch) -> None:
        self._urls = urls
        self._get = get
        self.siblings: list[Scrape] = []
        self._round: Optional[tuple[int, list[Answer], list[threading.Thread]]] = None
        self._told: set[str] = set()

    def begin(self, slot: int) -> None:
        """Asks all exporters for the sample of this slot, unless that was done."""
        if self._round is not None and self._round[0] == slot:
            return
        answers: list[Answer] = [(TIMEOUT, [])] * len(self._urls)

        def ask(number: int, url: str) -> None:
            try:
                answers[number] = OK, list(parse(self._get(url), PREFIXES))
                self._told.discard(url)
            except (OSError, ValueError, http.client.HTTPException) as error:
                late = isinstance(getattr(error, "reason", error), TimeoutError)
                answers[number] = TIMEOUT if late else ERROR, []
                if url not in self._told:
                    self._told.add(url)
                    log.warning("%s gives nothing: %s", urlsplit(url).hostname, type(error).__name__)

        threads = [threading.Thread(target=ask, args=each, daemon=True) for each in enumerate(self._urls)]
        for thread in threads:
            thread.start()
        self._round = (slot, answers, threads)

    def samples(self, at: Instant) -> tuple[str, list[Sample]]:
        """(state of the source, everything that came in time)."""
        slot = slot_of(at.ts)
        for scrape in (self, *self.siblings):
            scrape.begin(slot)
        assert self._round is not None
        _, answers, threads = self._round
        for thread in threads:
            thread.join(TIMEOUT_S + 0.5)
        samples = [sample for _, part in answers for sample in part]
        states = {state for state, _ in answers}
        return next(state for state in (TIMEOUT, ERROR, OK) if state in states), samples


class _Scraped:
    """What the collectors of one scrape share."""

    source = ""

    def __init__(self, scrape: Scrape) -> None:
        self._scrape = scrape

    def restore(self, memory: Memory) -> None:
        """Nothing to take back."""

    def close(self) -> None:
        """Nothing to let go of."""


class ScrapeState(_Scraped):
    """How the scrape itself fared; and the label of the source in every interval."""

    source = "prometheus"

    def collect(self, at: Instant) -> Reading:
        """The state alone."""
        status, _ = self._scrape.samples(at)
        return Reading(self.source, status)


class ScrapedGpus(_Scraped):
    """GPUs by dcgm-exporter."""

    source = "nvml"

    def __init__(self, scrape: Scrape) -> None:
        super().__init__(scrape)
        self._deltas = Deltas()
        self._xids = XidMemory()

    def collect(self, at: Instant) -> Reading:
        """All GPUs that are told of, and Xids that are new. No GPU at all is no reading."""
        status, samples = self._scrape.samples(at)
        gpus = gpus_of(samples, self._deltas)
        if not gpus:
            return Reading(self.source, ERROR if status == OK else status, {"gpus": []})
        facts: dict[str, Any] = {"gpus": gpus}
        events = self._xids.events(samples, at.ts)
        if events:
            facts["events"] = events
        driver = driver_of(samples)
        return Reading(self.source, OK, facts, batch={"driver_version": driver} if driver else {})


class ScrapedPorts(_Scraped):
    """InfiniBand ports by node_exporter."""

    source = "ib"

    def __init__(self, scrape: Scrape) -> None:
        super().__init__(scrape)
        self._before: dict[tuple[str, int], dict[str, int]] = {}
        self._active: set[tuple[str, int]] = set()

    def collect(self, at: Instant) -> Reading:
        """All ports that are told of; absent where no exporter tells of one."""
        status, samples = self._scrape.samples(at)
        ports = []
        for facts, counters in ports_of(samples):
            key = (facts["device"], facts["port"])
            grown, pegged = port_deltas(counters, self._before.get(key))
            self._before[key] = counters
            if grown:
                facts["counters"] = grown
            if pegged:
                facts["pegged"] = pegged
            if facts.get("state") == "ACTIVE":
                self._active.add(key)
            reasons = reasons_of(facts.get("state"), key in self._active)
            ports.append({**facts, "reasons": reasons} if reasons else facts)
        if not ports and self._before:
            return Reading(self.source, ERROR if status == OK else status, {"ib_ports": []})
        return Reading(self.source, OK if ports else ABSENT, {"ib_ports": ports})


class ScrapedLog(_Scraped):
    """Says that nobody reads this node's kernel log."""

    source = "kmsg"

    def collect(self, at: Instant) -> Reading:
        """Absent."""
        return Reading(self.source, ABSENT)


class RemoteClock:
    """This machine's wall clock for another machine's facts: no monotonic clock; the boot where it is told."""

    def __init__(self, clock: Clock, scrape: Scrape) -> None:
        self._clock = clock
        self._scrape = scrape

    def now(self) -> Instant:
        """The wall clock and how well it is synchronised."""
        return self._clock.now()._replace(boot_id="", boot_at=0)

    def boot(self, at: Instant) -> dict[str, Any]:
        """`boot_id` and `boot_at` of the node, where an exporter tells when it began; empty otherwise."""
        _, samples = self._scrape.samples(at)
        began = boot_of(samples)
        if began is None:
            return {}
        return {"boot_id": hashlib.sha256(f"goodput scraped boot v1\n{began}".encode()).hexdigest()[:32],
                "boot_at": began * 1000}  # fmt: skip


def scraped_collectors(scrape: Scrape) -> list[Collector]:
    """The collectors of a node that is scraped."""
    return [ScrapeState(scrape), ScrapedGpus(scrape), ScrapedPorts(scrape), ScrapedLog(scrape)]


__all__ = ["LABEL", "RemoteClock", "Scrape", "fetch", "parse_targets", "scraped_collectors"]
