"""Real receivers: an HTTP server and a mail server that keep the bytes they get."""

from __future__ import annotations

import email
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.message import Message as Mail
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from django.utils import timezone
from django_tenants.utils import tenant_context

from fleet.alerts.models import Channel
from fleet.alerts.services import create_channel
from fleet.services_incidents import Actor


@dataclass
class Received:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Its body, parsed."""
        return json.loads(self.body)


@dataclass
class HttpSink:
    """A receiver. `answers` are given in turn, then 200; `hold` keeps a request unanswered until it is set."""

    url: str = ""
    received: list[Received] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    hold: threading.Event | None = None

    def wait(self, count: int, seconds: float = 20) -> None:
        """Until so many requests came."""
        until = time.monotonic() + seconds
        while len(self.received) < count:
            assert time.monotonic() < until, f"{len(self.received)} of {count} requests came"
            time.sleep(0.02)


@pytest.fixture
def http_sink() -> Iterator[HttpSink]:
    """A web server on loopback."""
    sink = HttpSink()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            sink.received.append(Received(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            if sink.hold is not None:
                sink.hold.wait(30)
            status, more = sink.answers.pop(0) if sink.answers else (200, {})
            self.send_response(status)
            for name, value in {"Content-Length": "2", **more}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sink.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield sink
    if sink.hold:
        sink.hold.set()
    server.shutdown()
    server.server_close()


@dataclass
class MailSink:
    """A mail server's inbox; addresses in `refused` it does not take."""

    raw: list[bytes] = field(default_factory=list)
    envelopes: list[tuple[str, list[str]]] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)

    @property
    def mails(self) -> list[Mail]:
        """What came, parsed."""
        return [email.message_from_bytes(raw) for raw in self.raw]

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if address in self.refused:
            return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.raw.append(envelope.content)
        self.envelopes.append((envelope.mail_from, list(envelope.rcpt_tos)))
        return "250 taken"


@pytest.fixture
def mail_sink(settings: Any) -> Iterator[MailSink]:
    """An SMTP server on loopback, and the settings that lead there."""
    sink = MailSink()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    controller = Controller(sink, hostname="127.0.0.1", port=port)
    controller.start()
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", port
    settings.EMAIL_HOST_USER = settings.EMAIL_HOST_PASSWORD = ""
    settings.EMAIL_USE_TLS = settings.EMAIL_USE_SSL = False
    yield sink
    controller.stop()


@pytest.fixture
def inside(alpha: Any) -> Iterator[Any]:
    """The test runs inside alpha's schema."""
    with tenant_context(alpha):
        yield alpha


@pytest.fixture
def actor(alpha: Any) -> Actor:
    """Ada, who sets channels up."""
    return Actor("ada@alpha.example", alpha)


@pytest.fixture
def channel_of(inside: Any, actor: Actor) -> Callable[..., Channel]:
    """A function: a channel of a kind, which tells at once unless said otherwise; its addresses have confirmed."""

    def make(kind: str, is_confirmed: bool = True, **more: Any) -> Channel:
        values: dict[str, Any] = {"name": f"my {kind}", "least_severity": "info", "hold_seconds": 0, **more}
        made = create_channel({"kind": kind, **values}, actor)[0]
        if is_confirmed:
            made.addresses.update(confirmed_at=timezone.now())
            made.deliveries.filter(what="confirm").delete()
        return made

    return make


@pytest.fixture
def break_gpu(inside: Any) -> Callable[..., Any]:
    """A function: an incident as the fold writes it, with its row in the outbox."""
    from fleet.alerts.outbox import tell_of_incident
    from fleet.models import Cluster, Incident, Node

    def make(node: str = "node-17", cluster: str = "main", slots_ago: int = 40, **more: Any) -> Incident:
        found = Cluster.objects.get_or_create(name=cluster)[0]
        place = Node.objects.get_or_create(cluster=found, identity=f"name:{node}", defaults={"name": node})[0]
        slot = int(timezone.now().timestamp()) // 15
        first = slot - slots_ago
        part = {"subject": "g3", "first_slot": first, "end_slot": slot, "bad_slots": 40, "lost": 4000, "weight": 0}
        values: dict[str, Any] = {
            "scope": "gpu",
            "code": "GPU_MISSING",
            "party": "infrastructure",
            "weight": 0,
            "first_slot": first,
            "end_slot": slot,
            "is_open": True,
            "lost_gpu_seconds": 600,
            "parts": [{**part, "codes": {"GPU_MISSING": [first, slot - 1, 0]}, "settled": None}],
            **more,
        }
        incident = Incident.objects.create(node=place, cluster=found, **values)
        tell_of_incident(incident, "opened")
        return incident

    return make


@pytest.fixture
def mend(inside: Any) -> Callable[[Any], None]:
    """A function: the end of an incident as the fold writes it."""
    from fleet.alerts.outbox import tell_of_incident
    from fleet.models import Incident

    def end(incident: Incident) -> None:
        incident.is_open = False
        incident.save()
        tell_of_incident(incident, "resolved")

    return end


@pytest.fixture
def tell(inside: Any) -> Callable[[], int]:
    """A function: what the worker does at each sweep; the number of deliveries sent."""
    from fleet.alerts.delivery import deliver_to
    from fleet.alerts.tasks import prepare

    def run() -> int:
        return sum(deliver_to(inside, channel) for channel in prepare(inside))

    return run
