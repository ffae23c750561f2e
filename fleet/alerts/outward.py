"""HTTP to addresses that customers typed: resolved once, every address checked, connected to exactly what was checked.

A customer must not reach through this server what only this server reaches. So no redirect is followed, no proxy of the
environment is used, nothing of the answer's body is shown, and times and sizes are bounded.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException, RemoteDisconnected
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

import urllib3
from django.conf import settings
from urllib3 import BaseHTTPResponse
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.util.ssl_match_hostname import CertificateError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Where clouds tell a machine its own secrets; no setting opens these.
METADATA: tuple[Network, ...] = (
    *(ip_network(one) for one in ("169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128", "100.100.100.200/32")),
    ip_network("168.63.129.16/32"),  # Azure's, a public address
)
NEVER: tuple[Network, ...] = tuple(
    ip_network(one) for one in ("0.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4", "::/128", "ff00::/8")
)
NAT64 = ip_network("64:ff9b::/96")
TIMEOUT_SECONDS = 10.0
WHOLE_SECONDS = 20.0
MAX_URL_CHARS = 1000


class TargetRefused(Exception):
    """This address may not be called from here."""


class CallFailed(Exception):
    """The call did not come through, in words without anything secret; `answer` is the HTTP status, if one came."""

    def __init__(self, words: str, answer: int | None = None, wait_seconds: int | None = None):
        super().__init__(words)
        self.answer, self.wait_seconds = answer, wait_seconds


@dataclass(frozen=True)
class Target:
    """Where a URL leads: scheme, host as typed, port, path with query, and the address to connect to."""

    scheme: str
    host: str
    port: int
    path: str
    address: Address


def check_url(url: str) -> str:
    """What of a URL may be shown: scheme, host and port. Raises TargetRefused for what is no plain http(s) URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise TargetRefused("This is not a URL.") from error
    if len(url) > MAX_URL_CHARS or not url.isprintable() or " " in url or not url.isascii():
        raise TargetRefused(f"A URL of at most {MAX_URL_CHARS} ASCII characters, without spaces.")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise TargetRefused("A URL that begins with https:// (or http://) and a host.")
    if parts.username is not None or parts.password is not None:
        raise TargetRefused("No name or password in the URL: use the Authorization header.")
    if port == 0:
        raise TargetRefused("Port 0 is none.")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}"


def is_allowed(address: Address) -> bool:
    """Whether this server may call an address: any public one, and what GOODPUT_ALERT_NETWORKS opens."""
    for inner in _embedded(address):
        if any(inner.version == net.version and inner in net for net in (*METADATA, *NEVER)):
            return False
        opened = any(inner.version == net.version and inner in net for net in settings.GOODPUT_ALERT_NETWORKS)
        if not opened and not inner.is_global:
            return False
    return True


def _embedded(address: Address) -> list[Address]:
    """The address and those that it stands for: mapped, NAT64, 6to4 and Teredo lead to IPv4."""
    found: list[Address] = [address]
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped:
            return [address.ipv4_mapped]  # the same address, written otherwise
        if address in NAT64:
            found.append(IPv4Address(int(address) & 0xFFFFFFFF))
        if address.sixtofour:
            found.append(address.sixtofour)
        if address.teredo:
            found += list(address.teredo)
    return found


def resolve(url: str) -> Target:
    """Where a URL leads now. Raises TargetRefused if any address of its host is not allowed, CallFailed for none."""
    check_url(url)
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise CallFailed(f"The name {host} can't be resolved.") from error
    addresses = [ip_address(str(info[4][0]).partition("%")[0]) for info in found]
    if not addresses or not all(is_allowed(one) for one in addresses):
        raise TargetRefused(
            f"{host} leads to an address that alerts may not reach from here (private, local or reserved)."
        )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(parts.scheme, host, port, path, addresses[0])


def post(url: str, body: bytes, headers: Mapping[str, str]) -> int:
    """POST to a URL; the status, which is 2xx. Raises TargetRefused, and CallFailed for whatever is no success.

    Of the answer nothing but its head is read: what it says may be another's, and is shown to nobody.
    """
    with _call(url, "POST", body, headers) as answer:
        return int(answer.status)


def exchange(url: str, body: bytes | None, headers: Mapping[str, str], most_bytes: int = 65_536) -> bytes:
    """The body of the answer to a POST, or to a GET where `body` is None, for programs that check what it is.

    Raises as `post`, and CallFailed for an answer of more than `most_bytes`.
    """
    with _call(url, "GET" if body is None else "POST", body, headers) as answer:
        found: bytes = answer.read(most_bytes + 1, decode_content=False)
    if len(found) > most_bytes:
        raise CallFailed(f"Its answer is longer than {most_bytes} bytes.", answer.status)
    return found


@contextmanager
def _call(url: str, method: str, body: bytes | None, headers: Mapping[str, str]) -> Iterator[BaseHTTPResponse]:
    """The answer to one request, its body unread, if it is a success; the connection ends with the block."""
    target = resolve(url)
    connection = _connection(target)
    late = threading.Timer(WHOLE_SECONDS, lambda: _cut(connection))
    late.daemon = True
    late.start()
    try:
        sent = {"Host": _host_header(target), "User-Agent": "Goodput", **headers}
        connection.request(method, target.path, body=body, headers=sent, preload_content=False)
        answer = connection.getresponse()
        _refuse_failure(answer)
        yield answer
    except (urllib3.exceptions.HTTPError, HTTPException, OSError, ValueError) as error:
        raise CallFailed(_words(error)) from None  # the error's own words would hold the path, and the path the secret
    finally:
        late.cancel()
        connection.close()


def _refuse_failure(answer: BaseHTTPResponse) -> None:
    """Raise CallFailed for an answer that is no success."""
    if not 200 <= answer.status < 300:
        told = " A redirect is not followed." if 300 <= answer.status < 400 else ""
        wait = answer.headers.get("Retry-After", "")
        seconds = int(wait) if wait.isdecimal() and len(wait) < 6 else None
        raise CallFailed(f"It answered {answer.status}.{told}", answer.status, seconds)


def _connection(target: Target) -> HTTPConnection:
    """A connection to the checked address and nothing else, with the host's name in TLS and its certificate."""
    address = str(target.address)
    if target.scheme == "http":
        return HTTPConnection(address, target.port, timeout=TIMEOUT_SECONDS)
    return HTTPSConnection(
        address,
        target.port,
        timeout=TIMEOUT_SECONDS,
        server_hostname=target.host,
        assert_hostname=target.host,
        cert_reqs="CERT_REQUIRED",
        ssl_context=ssl.create_default_context(),
    )


def _cut(connection: HTTPConnection) -> None:
    """End a call that takes too long: a receiver that sends a byte now and then is never idle."""
    if isinstance(connection.sock, socket.socket):
        with suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)


def _host_header(target: Target) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    is_usual = target.port == (443 if target.scheme == "https" else 80)
    return host if is_usual else f"{host}:{target.port}"


def _words(error: Exception) -> str:
    """A failure in our own words."""
    cause = error
    while isinstance(cause.__cause__ or cause.__context__, Exception):
        cause = cause.__cause__ or cause.__context__  # type: ignore[assignment]
    if isinstance(error, urllib3.exceptions.SSLError) or isinstance(cause, ssl.SSLError | CertificateError):
        return "TLS failed: its certificate is not valid for this name, or it speaks no TLS."
    if isinstance(cause, ConnectionRefusedError):
        return "The connection was refused."
    if isinstance(error, urllib3.exceptions.TimeoutError | TimeoutError | RemoteDisconnected):
        return "It did not answer in time."
    return f"The connection failed ({type(cause).__name__})."
