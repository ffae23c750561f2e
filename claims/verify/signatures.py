"""RSA (PKCS #1 v1.5) and ECDSA signatures with plain integers, and public keys out of X.509 certificates.

Enough to check a time stamp or an instance token offline with the standard library alone; nothing here makes one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from claims.errors import ProofError

SEQUENCE, SET, INTEGER, OCTETS, BITS, OID = 0x30, 0x31, 0x02, 0x04, 0x03, 0x06
RSA, EC = "1.2.840.113549.1.1.1", "1.2.840.10045.2.1"
HASHES = {
    "2.16.840.1.101.3.4.2.1": "sha256",
    "2.16.840.1.101.3.4.2.2": "sha384",
    "2.16.840.1.101.3.4.2.3": "sha512",
}
#: What stands before the hash in a PKCS #1 v1.5 signature (RFC 8017, 9.2).
_PREFIX = {
    "sha256": bytes.fromhex("3031300d060960864801650304020105000420"),
    "sha384": bytes.fromhex("3041300d060960864801650304020205000430"),
    "sha512": bytes.fromhex("3051300d060960864801650304020305000440"),
}
MIN_RSA_BITS = 2048


@dataclass(frozen=True)
class Piece:
    """One DER value: its tag, its content, and both together."""

    tag: int
    body: bytes
    whole: bytes

    def parts(self) -> list[Piece]:
        """The values in it."""
        return list(pieces(self.body))


def pieces(raw: bytes) -> Iterator[Piece]:
    """The DER values that follow each other. Raises ProofError."""
    at = 0
    while at < len(raw):
        if at + 2 > len(raw):
            raise ProofError("A DER value ends too early.", "der")
        tag, length, start = raw[at], raw[at + 1], at + 2
        if length & 0x80:
            count = length & 0x7F
            if not 1 <= count <= 4:
                raise ProofError("A DER value has no definite length.", "der")
            length, start = int.from_bytes(raw[start : start + count], "big"), start + count
        if start + length > len(raw):
            raise ProofError("A DER value ends too early.", "der")
        yield Piece(tag, raw[start : start + length], raw[at : start + length])
        at = start + length


def one(raw: bytes, tag: int = SEQUENCE) -> Piece:
    """The only DER value of these bytes. Raises ProofError."""
    found = list(pieces(raw))
    if len(found) != 1 or found[0].tag != tag:
        raise ProofError("The bytes are not the one DER value that was expected.", "der")
    return found[0]


def oid(piece: Piece) -> str:
    """An object identifier as text."""
    numbers, value = [], 0
    for byte in piece.body:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(str(number) for number in (first, numbers[0] - 40 * first, *numbers[1:]))


def instant(piece: Piece) -> datetime:
    """A UTCTime or GeneralizedTime in UTC; fractions of a second are dropped."""
    text = piece.body.decode("ascii")
    if not text.endswith("Z"):
        raise ProofError("A time is not in UTC.", "time")
    digits = text[:-1].partition(".")[0]
    if piece.tag == 0x17:
        digits = ("19" if digits[:2] >= "50" else "20") + digits
    return datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC)


@dataclass(frozen=True)
class Certificate:
    """What is needed of an X.509 certificate; `der` is all of it."""

    der: bytes
    subject: str
    not_before: datetime
    not_after: datetime
    key: Key

    @property
    def fingerprint(self) -> str:
        """SHA-256, hex."""
        return hashlib.sha256(self.der).hexdigest()

    def is_for_time_stamps(self) -> bool:
        """Whether its extended key usage names time stamping."""
        return bytes.fromhex("06082b06010505070308") in self.der


def read_certificate(der: bytes) -> Certificate:
    """Raises ProofError."""
    fields = one(der).parts()[0].parts()
    if fields[0].tag == 0xA0:
        fields = fields[1:]
    validity, subject, info = fields[3].parts(), fields[4], fields[5]
    return Certificate(der, _name(subject), instant(validity[0]), instant(validity[1]), read_key(info))


def _name(subject: Piece) -> str:
    """The common name, else the organisation's."""
    found = {}
    for part in subject.parts():
        for attribute in part.parts():
            key, value = attribute.parts()
            found[oid(key)] = value.body.decode("utf-8", "replace")
    return found.get("2.5.4.3") or found.get("2.5.4.10") or "a nameless certificate"


@dataclass(frozen=True)
class Key:
    """A public key: (n, e) of RSA, or a point of `curve`."""

    numbers: tuple[int, int]
    curve: str = ""

    def verify(self, message: bytes, signature: bytes, hashed: str) -> bool:
        """Whether the signature over the message, hashed so, is this key's."""
        digest = hashlib.new(hashed, message).digest()
        if self.curve:
            return _ecdsa(self, digest, signature)
        return _rsa(self.numbers, digest, signature, hashed)


def read_key(info: Piece) -> Key:
    """A SubjectPublicKeyInfo. Raises ProofError."""
    algorithm, bits = info.parts()
    kinds = algorithm.parts()
    raw = bits.body[1:]
    if oid(kinds[0]) == RSA:
        n, e = (int.from_bytes(part.body, "big") for part in one(raw).parts())
        return Key((n, e))
    curve = oid(kinds[1]) if oid(kinds[0]) == EC else ""
    if curve not in _CURVES:
        raise ProofError("The key is neither RSA nor of the curves P-256 and P-384.", "key")
    size = (len(raw) - 1) // 2
    if raw[0] != 4 or len(raw) != 1 + 2 * size:
        raise ProofError("A point of the curve is not written out.", "key")
    return Key((int.from_bytes(raw[1 : 1 + size], "big"), int.from_bytes(raw[1 + size :], "big")), curve)


def _rsa(numbers: tuple[int, int], digest: bytes, signature: bytes, hashed: str) -> bool:
    n, e = numbers
    size = (n.bit_length() + 7) // 8
    if n.bit_length() < MIN_RSA_BITS or e < 3 or len(signature) != size:
        return False
    tail = _PREFIX[hashed] + digest
    wanted = b"\x00\x01" + b"\xff" * (size - len(tail) - 3) + b"\x00" + tail
    return pow(int.from_bytes(signature, "big"), e, n) == int.from_bytes(wanted, "big")


#: p, a, b, order, base point (FIPS 186-4, D.1.2).
_CURVES = {
    "1.2.840.10045.3.1.7": (
        0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF,
        -3,
        0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B,
        0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
        (
            0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
            0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
        ),
    ),
    "1.3.132.0.34": (
        0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEFFFFFFFF0000000000000000FFFFFFFF,
        -3,
        0xB3312FA7E23EE7E4988E056BE3F82D19181D9C6EFE8141120314088F5013875AC656398D8A2ED19D2A85C8EDD3EC2AEF,
        0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFC7634D81F4372DDF581A0DB248B0A77AECEC196ACCC52973,
        (
            0xAA87CA22BE8B05378EB1C71EF320AD746E1D3B628BA79B9859F741E082542A385502F25DBF55296C3A545E3872760AB7,
            0x3617DE4A96262C6F5D9E98BF9292DC29F8F41DBD289A147CE9DA3113B5F0B8C00A60B1CE1D7E819D7A431D7C90EA0E5F,
        ),
    ),
}
_Point = tuple[int, int] | None


def _ecdsa(key: Key, digest: bytes, signature: bytes) -> bool:
    p, a, b, order, base = _CURVES[key.curve]
    x, y = key.numbers
    if not (0 <= x < p and 0 <= y < p) or (y * y - x * x * x - a * x - b) % p:
        return False
    try:
        r, s = (int.from_bytes(part.body, "big") for part in one(signature).parts())
    except (ProofError, ValueError):
        return False
    if not (0 < r < order and 0 < s < order):
        return False
    number = int.from_bytes(digest, "big") >> max(0, len(digest) * 8 - order.bit_length())
    back = pow(s, -1, order)
    point = _add(p, a, _times(p, a, number * back % order, base), _times(p, a, r * back % order, (x, y)))
    return point is not None and point[0] % order == r


def _add(p: int, a: int, first: _Point, second: _Point) -> _Point:
    if first is None:
        return second
    if second is None:
        return first
    if first[0] == second[0]:
        if (first[1] + second[1]) % p == 0:
            return None
        slope = (3 * first[0] * first[0] + a) * pow(2 * first[1], -1, p) % p
    else:
        slope = (second[1] - first[1]) * pow(second[0] - first[0], -1, p) % p
    x = (slope * slope - first[0] - second[0]) % p
    return x, (slope * (first[0] - x) - first[1]) % p


def _times(p: int, a: int, scalar: int, point: _Point) -> _Point:
    out: _Point = None
    while scalar:
        if scalar & 1:
            out = _add(p, a, out, point)
        point = _add(p, a, point, point)
        scalar >>= 1
    return out
