"""HTTP to one endpoint: a kept connection, no redirects, capped replies, proxies as the environment says.

`http://` is taken only for private addresses and for names given by hand; certificates are always verified.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple, Optional
from urllib.parse import unquote, urlsplit

from agent.errors import ConfigError

if TYPE_CHECKING:
    import ssl

REPLY_MOST_BYTES = 64 * 1024
CONNECT_TIMEOUT_S = 10.0
REQUEST_DEADLINE_S = 45.0


class Endpoint(NamedTuple):
    """A checked address. `plain` marks http://, which `doctor` warns about."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def plain(self) -> bool:
        """Whether batches travel unencrypted."""
        return self.scheme == "http"

    @property
    def url(self) -> str:
        """The address as text, without anything secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


class Reply(NamedTuple):
    """An HTTP answer: header names in lower case, the body cut at 64 kB."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class TransportError(Exception):
    """No answer: name, connection, TLS or time. The message holds no secret."""


def parse_endpoint(text: str) -> Endpoint:
    """The endpoint that a user typed; a bare host gets the path /v1/batches. Raises ConfigError."""
    parts = urlsplit(text.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"endpoint must be http(s)://HOST[:PORT]/v1/batches, not {text.strip()[:100]!r}")
    if parts.username or parts.password:
        raise ConfigError("endpoint must hold no user name or password; put the key into a file (--token-file)")
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise ConfigError("endpoint has an impossible port") from error
    if parts.scheme == "http" and not _http_allowed(parts.hostname):
        raise ConfigError(
            f"http:// is taken only for private addresses and host names, not for {parts.hostname}; use https://"
        )
    path = parts.path if parts.path not in ("", "/") else "/v1/batches"
    return Endpoint(parts.scheme, parts.hostname, port, path)


def _http_allowed(host: str) -> bool:
    import ipaddress

    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return True  # a name given by hand
    return address.is_private or address.is_loopback or address.is_link_local


def _spare_idna(host: str) -> str | bytes:
    """A name as bytes where it has no foreign letters: as text Python loads Unicode's tables (0.4 MB) to encode it."""
    return host.encode() if host.isascii() else host


def _dial(address: tuple[str, int], *more: Any) -> socket.socket:
    """As `socket.create_connection`."""
    return socket.create_connection((_spare_idna(address[0]), address[1]), *more)  # type: ignore[arg-type]


class _Plain(http.client.HTTPConnection):
    """HTTP."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(host, port, timeout=CONNECT_TIMEOUT_S)
        self._create_connection = _dial


class _Secure(_Plain):
    """HTTPS; http.client's own class is not there in a process that loaded `ssl` later than it."""

    default_port = 443

    def __init__(self, host: str, port: int, context: ssl.SSLContext) -> None:
        super().__init__(host, port)
        self._context = context

    def connect(self) -> None:
        """Connects, through a proxy's tunnel where one is set, and verifies who answers."""
        super().connect()
        name: str = getattr(self, "_tunnel_host", None) or self.host
        self.sock = self._context.wrap_socket(self.sock, server_hostname=_spare_idna(name))


class Transport:
    """Sends requests to one endpoint over a kept connection; one thread at a time."""

    def __init__(
        self, endpoint: Endpoint, deadline_s: float = REQUEST_DEADLINE_S, state_dir: Optional[Path] = None
    ) -> None:
        self.endpoint = endpoint
        self._state_dir = state_dir
        self._deadline_s = deadline_s
        self._connection: Optional[http.client.HTTPConnection] = None
        self._proxy_headers: dict[str, str] = {}  # of a proxy that sees each request
        self._target = endpoint.path

    def post(self, body: bytes, headers: Mapping[str, str], path: Optional[str] = None) -> Reply:
        """The answer to one POST, to the endpoint's own path unless another is given.

        A kept connection that the server closed meanwhile is opened anew, once. Raises TransportError when there is no
        answer.
        """
        kept = self._connection is not None
        try:
            return self._attempt(body, headers, path)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
            self.close()
            if not kept:
                raise TransportError(type(error).__name__) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise TransportError(_plain(error)) from None
        try:
            return self._attempt(body, headers, path)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise TransportError(_plain(error)) from None

    def _attempt(self, body: bytes, headers: Mapping[str, str], path: Optional[str]) -> Reply:
        if self._connection is None:
            self._connection = self._connect()
        # a socket's timeout begins anew with each byte: headers that drip would hold the sender for days
        watch = threading.Timer(self._deadline_s, _cut, (self._connection,))
        watch.daemon = True
        watch.start()
        try:
            return self._exchange(self._connection, body, headers, path)
        finally:
            watch.cancel()

    def _exchange(
        self, connection: http.client.HTTPConnection, body: bytes, headers: Mapping[str, str], path: Optional[str]
    ) -> Reply:
        until = time.monotonic() + self._deadline_s
        target = self._target
        if path is not None:
            target = target[: len(target) - len(self.endpoint.path)] + path  # a proxy is told the whole address
        connection.request("POST", target, body=body, headers={**headers, **self._proxy_headers})
        response = connection.getresponse()
        data = b""
        while len(data) <= REPLY_MOST_BYTES:
            if time.monotonic() > until:
                raise TimeoutError("reply too slow")
            chunk = response.read1(min(16384, REPLY_MOST_BYTES + 1 - len(data)))
            if not chunk:
                break
            data += chunk
        names = {name.lower(): value for name, value in response.getheaders()}
        whole = len(data) <= REPLY_MOST_BYTES and (response.isclosed() or not response.length)
        response.close()
        if not whole or response.will_close:
            self.close()  # never read on into an endless reply
        return Reply(response.status, names, data[:REPLY_MOST_BYTES])

    def _connect(self) -> http.client.HTTPConnection:
        endpoint = self.endpoint
        proxy = proxy_for(endpoint)
        if endpoint.scheme == "https":
            from agent.authorities import client_context

            context = client_context(self._state_dir)
            host, port = (proxy[0], proxy[1]) if proxy else (endpoint.host, endpoint.port)
            secure = _Secure(host, port, context)
            if proxy:
                secure.set_tunnel(endpoint.host, endpoint.port, headers=proxy[2])
            return secure
        if proxy:
            self._proxy_headers, self._target = proxy[2], endpoint.url
            return _Plain(proxy[0], proxy[1])
        return _Plain(endpoint.host, endpoint.port)

    def close(self) -> None:
        """Closes the kept connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def proxy_for(endpoint: Endpoint) -> Optional[tuple[str, int, dict[str, str]]]:
    """(host, port, headers) of the proxy that https_proxy/http_proxy/no_proxy name for the endpoint, else None."""
    import os

    names = (f"{endpoint.scheme}_proxy", f"{endpoint.scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY")
    value = next((os.environ[name] for name in names if os.environ.get(name)), "")
    if not value or _bypasses(endpoint.host, os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""):
        return None
    parts = urlsplit(value if "://" in value else f"http://{value}")
    if not parts.hostname:
        return None
    headers = {}
    if parts.username:
        import base64

        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Proxy-Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    return parts.hostname, parts.port or 3128, headers


def _bypasses(host: str, no_proxy: str) -> bool:
    with_loopback = host in ("localhost", "127.0.0.1", "::1")
    for entry in (item.strip().lower().lstrip(".") for item in no_proxy.split(",")):
        if entry == "*" or (entry and (host.lower() == entry or host.lower().endswith("." + entry))):
            return True
    return with_loopback


def _cut(connection: http.client.HTTPConnection) -> None:
    """Ends a connection under the thread that waits for it, which then sees its end."""
    found = connection.sock
    if found is not None:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(found, socket.SHUT_RDWR)  # past TLS, whose own shutdown is not for other threads


def _plain(error: BaseException) -> str:
    """A network error in a few words, without what the other side sent."""
    if isinstance(error, socket.gaierror):
        return "the host name cannot be resolved"
    if isinstance(error, (socket.timeout, TimeoutError)):
        return "no answer in time"
    if type(error).__name__ == "SSLCertVerificationError":
        return f"the certificate is refused: {getattr(error, 'verify_message', '') or 'not valid'}"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return type(error).__name__
