"""Who may reach this server: one setting, never guessed from a request (architecture 8)."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable
from enum import Enum
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any
from urllib.parse import urlsplit

import psutil
from django.core.exceptions import ImproperlyConfigured

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
DEFAULT_SECRETS = ("devtoken", "devpassword", "devsecret")
# Headers that only a proxy adds: behind one, "local" would be open to whoever reaches the proxy.
FORWARDING_PREFIX = "HTTP_X_FORWARDED"  # X-Forwarded-For, -Host, -Proto, -Ssl, …
FORWARDING = frozenset(
    {
        "HTTP_FORWARDED",
        "HTTP_VIA",
        "HTTP_X_REAL_IP",
        "HTTP_X_CLIENT_IP",
        "HTTP_X_CLUSTER_CLIENT_IP",
        "HTTP_X_ORIGINAL_HOST",
        "HTTP_X_ORIGINAL_FORWARDED_FOR",
        "HTTP_X_PROXY_USER_IP",
        "HTTP_TRUE_CLIENT_IP",
        "HTTP_CF_CONNECTING_IP",
        "HTTP_FASTLY_CLIENT_IP",
        "HTTP_X_AZURE_CLIENTIP",
        "HTTP_CDN_LOOP",
    }
)

PRIVATE_NETWORKS = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
LOOPBACK_NETWORKS = ("127.0.0.0/8", "::1/128")
HOST = re.compile(r"(?P<host>\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::[0-9]{1,5})?")
Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Exposure(Enum):
    """`local`: loopback only, org `local` stands open. `lan`: keys and login. `public`: as lan, and HTTPS."""

    LOCAL = "local"
    LAN = "lan"
    PUBLIC = "public"

    @classmethod
    def _missing_(cls, value: object) -> Exposure:
        raise ImproperlyConfigured(f"GOODPUT_EXPOSE is local, lan or public, not {value!r}.")

    @property
    def is_open(self) -> bool:
        """Whether the org `local` may be read and written without a key."""
        return self is Exposure.LOCAL


def own_hosts(public_url: str) -> list[str]:
    """The Host values that this server answers to: loopback, this machine's addresses and name, the public URL."""
    hosts = [*LOOPBACK, socket.gethostname()]
    for addresses in psutil.net_if_addrs().values():
        for address in addresses:
            if address.family == socket.AF_INET:
                hosts.append(address.address)
            elif address.family == socket.AF_INET6:
                hosts.append(f"[{address.address.split('%')[0]}]")
    name = urlsplit(public_url).hostname
    if name:
        hosts.append(name)
    return sorted(set(hosts))


def networks(text: str, exposure: Exposure) -> list[IPv4Network | IPv6Network]:
    """Networks beside the public ones that alerts may be sent to, of a comma-separated list.

    `auto`: loopback and private ones in local mode, private ones in lan mode, none on a public server, where customers
    type the addresses. `private` and `loopback` stand for those. Raises ImproperlyConfigured for what is no network.
    """
    chosen = {Exposure.LOCAL: "loopback,private", Exposure.LAN: "private", Exposure.PUBLIC: ""}[exposure]
    names = [name.strip() for name in (chosen if text.strip() == "auto" else text).split(",")]
    known = {"private": PRIVATE_NETWORKS, "loopback": LOOPBACK_NETWORKS}
    try:
        return [ip_network(one) for name in names if name for one in known.get(name, (name,))]
    except ValueError as error:
        raise ImproperlyConfigured(f"GOODPUT_ALERT_NETWORKS: {error}.") from error


def refuse_default_secrets(exposure: Exposure, *secrets: str) -> None:
    """Raise ImproperlyConfigured when a published default secret would protect anything but loopback."""
    if exposure.is_open:
        return
    if any(default in secret for secret in secrets for default in DEFAULT_SECRETS):
        raise ImproperlyConfigured(
            f"GOODPUT_EXPOSE={exposure.value} with a default secret. Set GOODPUT_SECRET_KEY and the database password "
            "to values of your own, or use `./goodput up --lan`, which makes them."
        )


def refuse_plain_http(exposure: Exposure, public_url: str) -> None:
    """Raise ImproperlyConfigured when a public server would not know its HTTPS address: links and cookies need it."""
    if exposure is Exposure.PUBLIC and not (public_url.startswith("https://") and urlsplit(public_url).hostname):
        raise ImproperlyConfigured(
            "GOODPUT_EXPOSE=public wants GOODPUT_PUBLIC_URL, such as https://goodput.example.com"
        )


def host_of(environ: dict[str, Any]) -> str:
    """The Host header without its port, lower case; IPv6 keeps its brackets. Empty when it is no host and port."""
    match = HOST.fullmatch(environ.get("HTTP_HOST", "").lower())
    return match["host"] if match else ""


def local_guard(app: Wsgi, hosts: Iterable[str]) -> Wsgi:
    """`app` behind a check that a request of the local mode really is local: own Host, no forwarding header.

    Anything else gets 421, whatever its path, so that neither DNS rebinding nor a forgotten proxy opens the org.
    """
    allowed = {host.lower() for host in hosts}
    body = (
        b'{"type":"about:blank","title":"Misdirected Request","status":421,"code":"not_local",'
        b'"detail":"This server is in local mode and answers only direct requests to its own address. '
        b'To serve others, start it with --lan or --public."}'
    )

    def is_forwarded(environ: dict[str, Any]) -> bool:
        return any(name in FORWARDING or name.startswith(FORWARDING_PREFIX) for name in environ)

    def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if host_of(environ) not in allowed or is_forwarded(environ):
            headers = [("Content-Type", "application/problem+json"), ("Content-Length", str(len(body)))]
            start_response("421 Misdirected Request", headers)
            return [body]
        return app(environ, start_response)

    return guarded
