"""RFC 3161: ask a time-stamping authority for a stamp over a checkpoint's note, and check it twice before it counts."""

from __future__ import annotations

from datetime import datetime

from cryptography import x509
from rfc3161_client import (
    HashAlgorithm,
    TimestampRequestBuilder,
    VerificationError,
    VerifierBuilder,
    decode_timestamp_response,
)

from claims.errors import AnchorError, ProofError
from claims.verify.timestamps import certificates_of, check_stamp
from fleet.alerts.outward import CallFailed, TargetRefused, exchange

HEADERS = {"Content-Type": "application/timestamp-query", "Accept": "application/timestamp-reply"}
MOST_BYTES = 64 * 1024


def ask_stamp(url: str, pem: str, data: bytes) -> tuple[bytes, datetime, str]:
    """(the response's bytes, the stamp's instant, the authority's name). Raises AnchorError.

    Checked by the library against the pinned certificate and its issuers, and by the offline verifier's own code.
    """
    request = TimestampRequestBuilder().data(data).hash_algorithm(HashAlgorithm.SHA256).build()
    try:
        raw = exchange(url, request.as_bytes(), HEADERS, MOST_BYTES)
    except (CallFailed, TargetRefused) as error:
        raise AnchorError(f"The time-stamping authority: {error}") from error
    try:
        response = decode_timestamp_response(raw)
        chain = x509.load_pem_x509_certificates(pem.encode())
        builder = VerifierBuilder.from_request(request).tsa_certificate(chain[0])
        for one in chain[1:] or chain[:1]:
            builder = builder.add_root_certificate(one)
        builder.build().verify_message(response, data)
        pinned = certificates_of(pem)[0]
        stamp = check_stamp(raw, data, pinned)
    except (VerificationError, ValueError, ProofError) as error:
        raise AnchorError(f"The time stamp is refused: {error}") from error
    return raw, stamp.at, pinned.subject
