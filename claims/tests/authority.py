"""A time-stamping authority and a cloud's metadata server that really sign, on loopback, for the tests of anchors.

Their clocks are the tests' to set; everything else is as RFC 3161 and Google's identity tokens have it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from asn1crypto import algos, cms, core, tsp
from asn1crypto import x509 as asn1_x509
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DER, PEM = serialization.Encoding.DER, serialization.Encoding.PEM


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


class Authority:
    """A root, and a certificate for time stamps under it. `kind`: rsa or ec. `now`: its clock."""

    def __init__(self, common: str = "Test TSA", kind: str = "rsa") -> None:
        self.key: Any = (
            rsa.generate_private_key(65537, 2048) if kind == "rsa" else ec.generate_private_key(ec.SECP256R1())
        )
        root_key = ec.generate_private_key(ec.SECP256R1())
        first, last = datetime(2026, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)
        self.root = (
            x509.CertificateBuilder(_name(f"{common} root"), _name(f"{common} root"), root_key.public_key())
            .serial_number(1).not_valid_before(first).not_valid_after(last)
            .add_extension(x509.BasicConstraints(True, None), True).sign(root_key, hashes.SHA256())
        )  # fmt: skip
        self.certificate = (
            x509.CertificateBuilder(_name(f"{common} root"), _name(common), self.key.public_key())
            .serial_number(2).not_valid_before(first).not_valid_after(last)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING]), True)
            .sign(root_key, hashes.SHA256())
        )  # fmt: skip
        self.now: datetime | None = None
        self.is_away = False
        self.serial = 0

    @property
    def pem(self) -> str:
        """What an org pins: the signing certificate, then its root."""
        return (self.certificate.public_bytes(PEM) + self.root.public_bytes(PEM)).decode()

    def answer(self, query: bytes) -> bytes:
        """A TimeStampResp to a TimeStampReq."""
        asked = tsp.TimeStampReq.load(query)
        self.serial += 1
        info = tsp.TSTInfo(
            {
                "version": "v1",
                "policy": "1.2.3.4.1",
                "message_imprint": asked["message_imprint"],
                "serial_number": self.serial,
                "gen_time": (self.now or datetime.now(UTC)).replace(microsecond=0),
                "nonce": asked["nonce"],
            }
        ).dump()
        certificate = asn1_x509.Certificate.load(self.certificate.public_bytes(DER))
        named = tsp.SigningCertificateV2(
            {"certs": [{"cert_hash": hashlib.sha256(self.certificate.public_bytes(DER)).digest()}]}
        )
        attributes = cms.CMSAttributes(
            [
                {"type": "content_type", "values": ["tst_info"]},
                {"type": "message_digest", "values": [hashlib.sha256(info).digest()]},
                {"type": "signing_certificate_v2", "values": [named]},
            ]
        )
        is_rsa = isinstance(self.key, rsa.RSAPrivateKey)
        how: Any = (padding.PKCS1v15(), hashes.SHA256()) if is_rsa else (ec.ECDSA(hashes.SHA256()),)
        signer = cms.SignerInfo(
            {
                "version": "v1",
                "sid": cms.SignerIdentifier(
                    "issuer_and_serial_number",
                    {"issuer": certificate.issuer, "serial_number": certificate.serial_number},
                ),
                "digest_algorithm": algos.DigestAlgorithm({"algorithm": "sha256"}),
                "signed_attrs": attributes,
                "signature_algorithm": {"algorithm": "rsassa_pkcs1v15" if is_rsa else "sha256_ecdsa"},
                "signature": self.key.sign(attributes.dump(), *how),
            }
        )
        signed = cms.SignedData(
            {
                "version": "v3",
                "digest_algorithms": [algos.DigestAlgorithm({"algorithm": "sha256"})],
                "encap_content_info": {"content_type": "tst_info", "content": core.ParsableOctetString(info)},
                "certificates": [certificate],
                "signer_infos": [signer],
            }
        )
        token = cms.ContentInfo({"content_type": "signed_data", "content": signed})
        return bytes(tsp.TimeStampResp({"status": {"status": "granted"}, "time_stamp_token": token}).dump())


class Metadata:
    """A metadata server of Google's kind: it signs identity tokens for the audience asked for."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(65537, 2048)
        self.now: datetime | None = None
        self.is_away = False

    @property
    def jwks(self) -> str:
        """The public keys that an org pins."""
        numbers = self.key.public_key().public_numbers()
        one = {"kty": "RSA", "kid": "k1", "n": _url(_integer(numbers.n)), "e": _url(_integer(numbers.e))}
        return json.dumps({"keys": [one]})

    def answer(self, audience: str) -> bytes:
        """A JWT."""
        machine = {"project_id": "acme", "instance_name": "gpu-017", "instance_id": "4711"}
        said = {
            "iss": "https://accounts.google.com", "aud": audience, "sub": "1", "google": {"compute_engine": machine},
            "iat": int((self.now or datetime.now(UTC)).timestamp()),
        }  # fmt: skip
        text = ".".join(_url(json.dumps(one).encode()) for one in ({"alg": "RS256", "kid": "k1"}, said))
        signature = self.key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{text}.{_url(signature)}".encode()


def _integer(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def _url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


@contextmanager
def served(party: Authority | Metadata) -> Iterator[str]:
    """Its address while it answers on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self._answer(party.answer(self.rfile.read(int(self.headers["Content-Length"]))))

        def do_GET(self) -> None:
            asked = parse_qs(urlsplit(self.path).query)
            assert self.headers["Metadata-Flavor"] == "Google"
            self._answer(party.answer(asked["audience"][0]))

        def _answer(self, raw: bytes) -> None:
            self.send_response(503 if party.is_away else 200)
            body = b"" if party.is_away else raw
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


SECOND = timedelta(seconds=1)
