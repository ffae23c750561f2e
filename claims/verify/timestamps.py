"""RFC 3161 time stamps, checked with the standard library: what was stamped, when, and by which certificate's key."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from datetime import datetime

from claims.errors import ProofError
from claims.verify.signatures import HASHES, OCTETS, RSA, SET, Certificate, Piece, instant, oid, one, read_certificate

SIGNED_DATA, TST_INFO = "1.2.840.113549.1.7.2", "1.2.840.113549.1.9.16.1.4"
CONTENT_TYPE, MESSAGE_DIGEST = "1.2.840.113549.1.9.3", "1.2.840.113549.1.9.4"
SIGNING_CERTIFICATE, SIGNING_CERTIFICATE_V2 = "1.2.840.113549.1.9.16.2.12", "1.2.840.113549.1.9.16.2.47"
GRANTED = (0, 1)
#: Signature algorithms that name their hash; plain RSA takes the signer's digest algorithm.
SIGNATURES = {
    "1.2.840.113549.1.1.11": "sha256", "1.2.840.113549.1.1.12": "sha384", "1.2.840.113549.1.1.13": "sha512",
    "1.2.840.10045.4.3.2": "sha256", "1.2.840.10045.4.3.3": "sha384", "1.2.840.10045.4.3.4": "sha512",
}  # fmt: skip
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.S)


@dataclass(frozen=True)
class Stamp:
    """What an authority said: the instant (whole seconds, UTC), its policy and serial number."""

    at: datetime
    policy: str
    serial: int


def certificates_of(pem: str) -> list[Certificate]:
    """The certificates of a PEM text, in its order. Raises ProofError."""
    try:
        return [read_certificate(base64.b64decode("".join(body.split()), validate=True)) for body in _PEM.findall(pem)]
    except (binascii.Error, ValueError, IndexError) as error:
        raise ProofError(f"A certificate can't be read: {error}", "certificate") from error


def check_stamp(response: bytes, data: bytes, certificate: Certificate) -> Stamp:
    """The stamp of a TimeStampResp over `data`, signed by this certificate's key. Raises ProofError."""
    try:
        return _check(response, data, certificate)
    except (IndexError, ValueError, KeyError, UnicodeDecodeError) as error:
        raise ProofError(f"The time stamp can't be read: {type(error).__name__}: {error}", "stamp") from error


def _check(response: bytes, data: bytes, certificate: Certificate) -> Stamp:
    parts = one(response).parts()
    if int.from_bytes(parts[0].parts()[0].body, "big") not in GRANTED or len(parts) < 2:
        raise ProofError("The authority did not grant the time stamp.", "stamp")
    kind, content = parts[1].parts()
    if oid(kind) != SIGNED_DATA:
        raise ProofError("The time stamp is no signed data.", "stamp")
    signed = one(content.body).parts()
    kind, content = signed[2].parts()
    if oid(kind) != TST_INFO:
        raise ProofError("What is signed is no time stamp.", "stamp")
    info = one(content.body, OCTETS).body
    signers = signed[-1].parts()
    if signed[-1].tag != SET or len(signers) != 1:
        raise ProofError("A time stamp has one signer.", "stamp")
    _signer(signers[0], info, certificate)
    fields = one(info).parts()
    algorithm, imprint = fields[2].parts()
    hashed = HASHES[oid(algorithm.parts()[0])]
    if hashlib.new(hashed, data).digest() != imprint.body:
        raise ProofError("The time stamp is of something else.", "stamp")
    at = instant(fields[4])
    if not certificate.not_before <= at <= certificate.not_after:
        raise ProofError("The certificate was not valid at the time of the stamp.", "certificate")
    if not certificate.is_for_time_stamps():
        raise ProofError("The certificate is not one for time stamps.", "certificate")
    return Stamp(at, oid(fields[1]), int.from_bytes(fields[3].body, "big"))


def _signer(signer: Piece, info: bytes, certificate: Certificate) -> None:
    """Raise ProofError unless the certificate's key signed the info through its attributes."""
    fields = signer.parts()
    digest_algorithm, attributes, algorithm, signature = fields[2], fields[3], fields[4], fields[5]
    if attributes.tag != 0xA0:
        raise ProofError("The time stamp has no signed attributes.", "stamp")
    hashed = HASHES[oid(digest_algorithm.parts()[0])]
    found: dict[str, Piece] = {}
    for attribute in attributes.parts():
        kind, values = attribute.parts()
        found[oid(kind)] = values.parts()[0]
    if oid(found[CONTENT_TYPE]) != TST_INFO or found[MESSAGE_DIGEST].body != hashlib.new(hashed, info).digest():
        raise ProofError("The signature is over another time stamp.", "stamp")
    if not _names(found, certificate):
        raise ProofError("The time stamp was signed under another certificate than the pinned one.", "certificate")
    name = oid(algorithm.parts()[0])
    by = hashed if name == RSA else SIGNATURES.get(name)
    if by is None:
        raise ProofError(f"The signature algorithm {name} is not known here.", "stamp")
    if not certificate.key.verify(bytes([SET]) + attributes.whole[1:], signature.body, by):
        raise ProofError("The time stamp does not bear the signature of the pinned certificate's key.", "signature")


def _names(found: dict[str, Piece], certificate: Certificate) -> bool:
    """Whether the signed attributes name exactly this certificate (RFC 5816)."""
    if SIGNING_CERTIFICATE_V2 in found:
        first = found[SIGNING_CERTIFICATE_V2].parts()[0].parts()[0].parts()
        hashed = "sha256" if first[0].tag == OCTETS else HASHES[oid(first[0].parts()[0])]
        digest = first[0] if first[0].tag == OCTETS else first[1]
        return digest.body == hashlib.new(hashed, certificate.der).digest()
    if SIGNING_CERTIFICATE in found:
        first = found[SIGNING_CERTIFICATE].parts()[0].parts()[0].parts()
        return first[0].body == hashlib.sha1(certificate.der, usedforsecurity=False).digest()
    return False
