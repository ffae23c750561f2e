"""Verification of Ed25519 signatures (RFC 8032, section 6): `cryptography` where it is present, else plain integers."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any

P = 2**255 - 19
Q = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT = pow(2, (P - 1) // 4, P)
Point = tuple[int, int, int, int]


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the signature is this key's over the message."""
    try:
        from cryptography.exceptions import InvalidSignature
    except ImportError:
        return verify_plain(public, message, signature)
    try:
        _loaded(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@lru_cache(maxsize=1024)
def _loaded(public: bytes) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return Ed25519PublicKey.from_public_bytes(public)


def verify_plain(public: bytes, message: bytes, signature: bytes) -> bool:
    """The same with integers alone; some two milliseconds."""
    if len(public) != 32 or len(signature) != 64:
        return False
    key, point = _key(public), _decompress(signature[:32])
    scalar = int.from_bytes(signature[32:], "little")
    if key is None or point is None or scalar >= Q:
        return False
    hashed = int.from_bytes(hashlib.sha512(signature[:32] + public + message).digest(), "little") % Q
    return _equal(_sum(scalar, BASE, hashed, _negative(key)), point)


def _add(one: Point, other: Point) -> Point:
    a = (one[1] - one[0]) * (other[1] - other[0]) % P
    b = (one[1] + one[0]) * (other[1] + other[0]) % P
    c, d = 2 * one[3] * other[3] * D % P, 2 * one[2] * other[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def _double(one: Point) -> Point:
    """Twice a point (RFC 8032, 5.1.4)."""
    a, b = one[0] * one[0] % P, one[1] * one[1] % P
    h = a + b
    e = h - (one[0] + one[1]) ** 2 % P
    g = a - b
    f = 2 * one[2] * one[2] % P + g
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def _negative(point: Point) -> Point:
    return (P - point[0], point[1], point[2], P - point[3])


@lru_cache(maxsize=1024)
def _multiples(point: Point) -> tuple[Point, ...]:
    """0 to 15 times a point."""
    out: list[Point] = [(0, 1, 1, 0)]
    for _ in range(15):
        out.append(_add(out[-1], point))
    return tuple(out)


def _sum(first: int, one: Point, second: int, other: Point) -> Point:
    """first * one + second * other, four bits at a time, the doublings shared (Straus)."""
    ones, others = _multiples(one), _multiples(other)
    out: Point = (0, 1, 1, 0)
    for shift in range(252, -1, -4):
        out = _double(_double(_double(_double(out))))
        if digit := first >> shift & 15:
            out = _add(out, ones[digit])
        if digit := second >> shift & 15:
            out = _add(out, others[digit])
    return out


def _equal(one: Point, other: Point) -> bool:
    return (one[0] * other[2] - other[0] * one[2]) % P == 0 and (one[1] * other[2] - other[1] * one[2]) % P == 0


def _x_of(y: int, sign: int) -> int | None:
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    if square == 0:
        return None if sign else 0
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT % P
    if (x * x - square) % P:
        return None
    return P - x if x & 1 != sign else x


def _decompress(raw: bytes) -> Point | None:
    number = int.from_bytes(raw, "little")
    sign, y = number >> 255, number & ((1 << 255) - 1)
    x = _x_of(y, sign)
    return None if x is None else (x, y, 1, x * y % P)


@lru_cache(maxsize=1024)
def _key(public: bytes) -> Point | None:
    return _decompress(public)


_Y = 4 * pow(5, P - 2, P) % P
_X = _x_of(_Y, 0) or 0
BASE: Point = (_X, _Y, 1, _X * _Y % P)
