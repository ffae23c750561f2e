"""Where a request comes from: the peer, or what the trusted proxies in front of this server say of it."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Any

from django.conf import settings

IPV6_SITE_BITS = 64  # a household or a rack gets at least a /64; its 2^64 addresses are one sender


def client_address(meta: Mapping[str, Any]) -> str | None:
    """The sender's address from a request's META, None where it is not an IP address (a Unix socket).

    Behind n proxies (`GOODPUT_PROXIES`) it is the n-th entry of X-Forwarded-For from the right: each proxy appends the
    peer that it saw, so entries further left are the sender's own words and are never believed.
    """
    hops = [hop.strip() for hop in str(meta.get("HTTP_X_FORWARDED_FOR", "")).split(",")]
    trusted: int = settings.GOODPUT_PROXIES
    if 0 < trusted <= len(hops) and (address := _normal(hops[-trusted])):
        return address
    return _normal(str(meta.get("REMOTE_ADDR") or ""))


def sender_of(address: str | None) -> str:
    """What counts as one sender: an IPv4 address, an IPv6 /64, or the empty string for all whose address is unknown."""
    if address is None:
        return ""
    parsed = ip_address(address)
    return str(IPv6Network((parsed, IPV6_SITE_BITS), strict=False)) if isinstance(parsed, IPv6Address) else address


def _normal(text: str) -> str | None:
    try:
        parsed = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return str(parsed.ipv4_mapped or parsed) if isinstance(parsed, IPv6Address) else str(parsed)
