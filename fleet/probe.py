"""The optional probe: can the server reach a node? Results are facts of their own, with the probe's own health.

Off unless GOODPUT_PROBE_NETWORKS names networks: a server must not knock at any address that a customer types in. Each
round knocks once at every target, many at a time, and waits a few seconds at most. A round in which nothing answered,
the control address neither, says nothing of any node: the probe itself may be cut off. It is recorded as `blind`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q

from fleet.domain.slots import HOUR_MS, VOUCH_MS
from fleet.models import NodeLive, ProbeRun, ProbeTarget

log = logging.getLogger(__name__)
ROUND_SECONDS = 15  # as often as agents sample: each slot is looked at once
TIMEOUT_SECONDS = 4.0  # a lost SYN is sent again after one second and after three
AT_ONCE = 200
JOIN = timedelta(milliseconds=VOUCH_MS)
TOUCHES = timedelta(minutes=1)  # a run may lie in the first stretch of the hour after it
SETTLED = timedelta(seconds=180)  # by then the receipts that decide about peers have come
MARK_EVERY = timedelta(minutes=5)
FORGOTTEN = timedelta(days=1)  # a run that nobody marked by then waits for a refold
Outcome = ProbeRun.Outcome
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class Target:
    """What to knock at; `port` is None for ICMP."""

    pk: int
    node_id: int
    address: str
    port: int | None


@dataclass(frozen=True)
class Knock:
    """What came of one: `answered`, or why not; `forbidden` when the address is not one that may be looked at."""

    answered: bool
    detail: str = ""
    forbidden: bool = False


def networks() -> tuple[Network, ...]:
    """The networks that may be probed; none: the probe is off."""
    return tuple(ipaddress.ip_network(text) for text in settings.GOODPUT_PROBE_NETWORKS)


def check_address(address: str) -> str:
    """Why this address can't be probed; empty when it can. A name is looked up at every round."""
    text = address.strip()
    if not networks():
        return "The probe is off on this server: its operator names the networks that may be probed."
    if not text or len(text) > 255 or not text.isprintable() or any(c in text for c in " /@[]"):
        return "An IP address or a host name."
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return ""  # a name; where it leads is checked at each round
    return "" if is_allowed(str(found)) else "Not in a network that this server may probe."


def is_allowed(address: str) -> bool:
    """Whether this IP address lies in a network that may be probed."""
    found = ipaddress.ip_address(address)
    return any(found.version == network.version and found in network for network in networks())


async def knock(address: str, port: int | None) -> Knock:
    """Look once whether something answers there: a TCP connection opens or is refused, an echo comes back."""
    try:
        loop = asyncio.get_running_loop()
        kind = socket.SOCK_STREAM if port else socket.SOCK_DGRAM
        found = await asyncio.wait_for(loop.getaddrinfo(address, port or 0, type=kind), TIMEOUT_SECONDS)
        family, _, _, _, place = found[0]
        if not is_allowed(str(place[0])):
            return Knock(False, f"{place[0]} is not in a network that may be probed", True)
        if port is None:
            return await asyncio.wait_for(_echo(family, str(place[0])), TIMEOUT_SECONDS)
        return await asyncio.wait_for(_connect(family, place), TIMEOUT_SECONDS)
    except TimeoutError:
        return Knock(False, "no answer")
    except PermissionError:
        return Knock(False, "this server may not send ICMP", True)
    except socket.gaierror as error:
        return Knock(False, f"name not found: {error.strerror}", True)
    except OSError as error:
        return Knock(False, os.strerror(error.errno) if error.errno else str(error))


async def _connect(family: int, place: tuple[object, ...]) -> Knock:
    """A refused connection is an answer of the machine: only silence and unreachable networks are none."""
    with socket.socket(family, socket.SOCK_STREAM) as door:
        door.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(door, place)
        except ConnectionRefusedError:
            return Knock(True, "refused")
    return Knock(True)


async def _echo(family: int, address: str) -> Knock:
    """One ICMP echo over an unprivileged ping socket (Linux: net.ipv4.ping_group_range)."""
    v6 = family == socket.AF_INET6
    protocol = socket.IPPROTO_ICMPV6 if v6 else socket.IPPROTO_ICMP
    with socket.socket(family, socket.SOCK_DGRAM, protocol) as door:
        door.setblocking(False)
        token = os.urandom(16)
        body = struct.pack("!BBHHH", 128 if v6 else 8, 0, 0, 0, 1) + token
        total = sum(struct.unpack(f"!{len(body) // 2}H", body))
        total = (total >> 16) + (total & 0xFFFF)
        check = ~(total + (total >> 16)) & 0xFFFF  # the kernel fills it in for IPv6
        loop = asyncio.get_running_loop()
        await loop.sock_connect(door, (address, 0))
        await loop.sock_sendall(door, body[:2] + struct.pack("!H", check) + body[4:])
        while token not in await loop.sock_recv(door, 2048):
            pass  # another's answer
    return Knock(True)


async def _knock_all(targets: Sequence[Target], control: str) -> tuple[list[Knock], Knock | None]:
    """Every target's knock and the control's, `AT_ONCE` at a time."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(address: str, port: int | None) -> Knock:
        async with gate:
            return await knock(address, port)

    found = [one(target.address, target.port) for target in targets]
    host, _, port = control.rpartition(":")
    tried = [*found, *([one(host, int(port))] if control else [])]
    done = await asyncio.gather(*tried)
    return list(done[: len(targets)]), done[-1] if control else None


def judge(knocks: Sequence[Knock], control: Knock | None) -> list[tuple[str, str]]:
    """(outcome, detail) per knock. Silence counts against a node only in a round in which the probe was healthy."""
    healthy = any(one.answered for one in knocks) or (control is not None and control.answered)
    out = []
    for one in knocks:
        if one.answered:
            out.append((Outcome.OK, one.detail))
        elif one.forbidden or not healthy:
            out.append(
                (Outcome.BLIND, one.detail if one.forbidden else f"nothing answered in this round; {one.detail}")
            )
        else:
            out.append((Outcome.FAILED, one.detail))
    return [(str(outcome), detail[:200]) for outcome, detail in out]


def probe_round(now: datetime) -> int:
    """Knock at every target of the current org and record what came of it; the number of targets."""
    if not networks():
        return 0
    rows = ProbeTarget.objects.filter(Q(until_at=None) | Q(until_at__gt=now), withdrawn_at=None, from_at__lte=now)
    targets = [Target(row.pk, row.node_id, row.address, row.port) for row in rows.filter(node__merged_into=None)]
    if targets:
        knocks, control = asyncio.run(_knock_all(targets, settings.GOODPUT_PROBE_CONTROL))
        record_round(now, targets, judge(knocks, control))
    mark_settled(now)
    return len(targets)


@transaction.atomic
def record_round(now: datetime, targets: Sequence[Target], results: Iterable[tuple[str, str]]) -> None:
    """Write one round's results: a run that says the same goes on, within its hour; anything else begins a new one."""
    newest = {
        run.target_id: run
        for run in ProbeRun.objects.filter(target_id__in=[target.pk for target in targets], last_at__gt=now - JOIN)
        .select_for_update()
        .order_by("last_at")
    }
    made = []
    hour = _hour(now)
    for target, (outcome, detail) in zip(targets, results, strict=True):
        run = newest.get(target.pk)
        if run is not None and run.last_at >= now:
            continue  # another round of the same instant
        if run is not None and run.outcome == outcome and _hour(run.first_at) == hour:
            ProbeRun.objects.filter(pk=run.pk).update(last_at=now, rounds=F("rounds") + 1)
        else:
            made.append(
                ProbeRun(
                    target_id=target.pk,
                    node_id=target.node_id,
                    outcome=outcome,
                    first_at=now,
                    last_at=now,
                    detail=detail,
                )
            )
    ProbeRun.objects.bulk_create(made)


def mark_settled(now: datetime) -> int:
    """Have the hours of failures folded again: every few minutes while one lasts, once more when it is settled.

    An hour without samples needs none: what ends that silence will ask for the probe. The number of runs.
    """
    from fleet.services_dated import mark_dirty

    recent = ProbeRun.objects.filter(outcome=Outcome.FAILED, last_at__gt=now - FORGOTTEN)
    is_over = Q(last_at__lt=now - SETTLED) & (Q(marked_at=None) | Q(marked_at__lt=F("last_at") + SETTLED))
    lasts = Q(first_at__lt=now - MARK_EVERY, last_at__gte=now - JOIN)
    is_due = lasts & (Q(marked_at=None) | Q(marked_at__lt=now - MARK_EVERY))
    runs = list(recent.filter(is_over | is_due).order_by("pk")[:1000])
    lives = NodeLive.objects.filter(node_id__in={run.node_id for run in runs})
    heard = dict(lives.values_list("node_id", "last_sample_at"))
    spans: dict[tuple[datetime, datetime], list[int]] = defaultdict(list)
    for run in runs:
        last = heard.get(run.node_id)
        if last is not None and _hour(last) >= _hour(run.first_at):
            spans[run.first_at, run.last_at + TOUCHES].append(run.node_id)
    with transaction.atomic():
        ProbeRun.objects.filter(pk__in=[run.pk for run in runs]).update(marked_at=now)
        for (first, end), nodes in spans.items():
            mark_dirty(nodes, first, end)
    return len(runs)


def _hour(at: datetime) -> int:
    return int(at.timestamp() * 1000) // HOUR_MS
