"""`POST /v1/batches` as a WSGI application of its own (goodput_site/wsgi.py).

Neither Django's handler nor DRF stands in the way of an upload: it has no session, no form, no page and negotiates
nothing, and both together took about a quarter of its CPU (ADR 0014). What they did for it is done here:
the connection's age, refusals as problem documents, an unexpected error told in the log and nowhere else.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from django import db
from django.db import connection
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import renderers, serializers
from rest_framework.views import APIView

from agent import wire
from fleet import ingest, quotas
from fleet.errors import BatchRejected, FleetError, NotStored
from fleet.refusals import keep_refusal
from fleet.turns import turns
from goodput_site import counters
from goodput_site.problems import CONTENT_TYPE, problem_body
from orgs.authentication import key_of_meta
from orgs.errors import KeyRefused
from orgs.keys import KeyInfo

RETRY_AFTER_SECONDS = 5
KEY_HOLDS_S = 0.5  # an agent's body comes at once; the key of one that took longer is asked for again
REASONS = {status.value: f"{status.value} {status.phrase}" for status in HTTPStatus}
BACKLOG = "HTTP_" + wire.HEADER_BACKLOG.upper().replace("-", "_")
Read = Callable[[int], bytes]

log = logging.getLogger(__name__)


class ReceiptSerializer(serializers.Serializer[Any]):
    """The server's word that a batch is on disk."""

    batch_sha256 = serializers.CharField(help_text="Lower-case hex SHA-256 of the MessagePack bytes.")
    node = serializers.CharField()
    seq = serializers.IntegerField(allow_null=True)
    received_at = serializers.DateTimeField()
    duplicate = serializers.BooleanField(help_text="Whether the same bytes had been received before.")
    signature = serializers.CharField(
        allow_null=True, help_text="Ed25519 of the log's key over tag, hash, node, seq and received_at, base64."
    )


@dataclass(frozen=True)
class Answer:
    """What an upload is answered: the status, a JSON document, its type and what else its head says."""

    status: int
    document: dict[str, Any]
    content_type: str = "application/json"
    headers: list[tuple[str, str]] = field(default_factory=list)

    def body(self) -> bytes:
        """The document's bytes."""
        return json.dumps(self.document, separators=(",", ":"), ensure_ascii=False).encode()


class Upload:
    """The WSGI application. It answers one route; who calls it has looked at path and method."""

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Take one upload, answer it, and count what came of it."""
        began = time.perf_counter()
        if not connection.in_atomic_block:  # as Django does before each request: not past its age, not broken
            connection.close_if_unusable_or_obsolete()
        said = answer(environ, environ["wsgi.input"].read)
        _count(said, time.perf_counter() - began)
        body = said.body()
        head = [("Content-Type", said.content_type), ("Content-Length", str(len(body))), *said.headers]
        start_response(REASONS[said.status], head)
        return [body]


def answer(meta: Mapping[str, Any], read: Read) -> Answer:
    """Store one upload: 202 with a receipt once it is committed; 4xx and 5xx are problem documents.

    The headers are looked at before the key and the key before the body: a body that trickles in holds a thread of the
    server, so nobody without a key may make it wait for one.
    """
    try:
        return _take(meta, read)
    except (FleetError, KeyRefused) as error:
        return _refusal(error)
    except db.Error:
        connection.close()  # a dead connection must not refuse the next upload too
        return _refusal(NotStored("The database does not answer right now. Keep this batch and try again."))
    except Exception:  # whatever it is: no receipt, no word of the inside, and the next upload is served
        log.exception("an upload failed in an unexpected way")
        problem = problem_body(500, "internal_error", "Something broke on the server. It is logged; try again later.")
        return Answer(500, {**problem, "permanent": False}, CONTENT_TYPE)


def _take(meta: Mapping[str, Any], read: Read) -> Answer:
    length = _check_headers(meta)
    key = _key(meta)
    is_backlog = meta.get(BACKLOG) == "1"
    quotas.check(key, length, is_backlog)
    with turns.turn(key.org_id, is_backlog):
        began = time.monotonic()
        body = _body(read, length)
        if time.monotonic() - began > KEY_HOLDS_S:
            key = _key(meta)  # revoked meanwhile: else a body that trickles in for an hour were stored an hour later
        try:
            return Answer(202, ingest.receive(body, key, _own_headers(meta)).as_json())
        except FleetError as error:
            keep_refusal(key, body, error)
            raise


def _key(meta: Mapping[str, Any]) -> KeyInfo:
    """The key of an upload. Raises KeyRefused, BatchRejected → 503 where it can't be asked for."""
    try:
        key = key_of_meta(meta)
    except db.DatabaseError as error:
        connection.close()
        raise BatchRejected(503, "unavailable", "The database does not answer right now. Try again.") from error
    key.require("ingest")
    return key


def _count(said: Answer, seconds: float) -> None:
    if said.status == 202:
        counters.count("goodput_ingest_batches_total", "duplicate" if said.document["duplicate"] else "stored")
    else:
        counters.count("goodput_ingest_refusals_total", str(said.document["code"]))
    counters.count("goodput_ingest_seconds_total", "", seconds)


def _own_headers(meta: Mapping[str, str]) -> dict[str, str]:
    """The two headers of the wire that belong to the batch."""
    names = (wire.HEADER_DROPPED, wire.HEADER_SIGNATURE)
    return {name: meta[key] for name in names if (key := "HTTP_" + name.upper().replace("-", "_")) in meta}


def _check_headers(meta: Mapping[str, str]) -> int:
    """The length of the body. Raises BatchRejected 415, 411 or 413: what can be refused without reading a byte."""
    if meta.get("CONTENT_TYPE", "").partition(";")[0].strip().lower() != wire.CONTENT_TYPE:
        raise BatchRejected(415, "bad_content_type", f"Send Content-Type: {wire.CONTENT_TYPE}.")
    if meta.get("HTTP_CONTENT_ENCODING", "").strip().lower() != "gzip":
        raise BatchRejected(415, "bad_content_encoding", "Send Content-Encoding: gzip, once.")
    length = meta.get("CONTENT_LENGTH") or ""
    if not (length.isascii() and length.isdigit()):
        raise BatchRejected(411, "length_required", "Send Content-Length; a chunked upload is not read.")
    if int(length[:20]) > wire.MAX_BODY_BYTES:
        raise BatchRejected(413, "too_large", f"A batch is at most {wire.MAX_BODY_BYTES} bytes.")
    return int(length)


def _body(read: Read, length: int) -> bytes:
    """The upload, as long as its Content-Length. Raises BatchRejected 408 when it broke off.

    Which error the server's stream raises for a sender that went away is its own affair.
    """
    try:
        body = read(length)
        while len(body) < length and (more := read(length - len(body))):
            body += more
    except Exception as error:
        raise BatchRejected(408, "cut_short", "The upload broke off.") from error
    if len(body) < length:  # the transport's doing, so unlike a cut gzip member it is worth another try
        raise BatchRejected(408, "cut_short", "The upload broke off.")
    return body


def _refusal(error: FleetError | KeyRefused) -> Answer:
    """The problem document of a refused batch."""
    is_permanent = isinstance(error, FleetError) and error.is_permanent
    headers = []
    if error.status in (429, 503):
        wait = getattr(error, "wait_seconds", None) or RETRY_AFTER_SECONDS
        headers.append(("Retry-After", str(wait)))
    if error.status == 401:
        headers.append(("WWW-Authenticate", "Bearer"))
    document = problem_body(error.status, error.code, error.detail, permanent=is_permanent)
    return Answer(error.status, document, CONTENT_TYPE, headers)


class Batches(APIView):
    """The same under Django's own routes: for its schema, and for a server that does not start by our wsgi.py."""

    authentication_classes: list[Any] = []
    permission_classes: list[Any] = []
    parser_classes: list[Any] = []
    renderer_classes = [renderers.JSONRenderer]

    def perform_content_negotiation(self, request: Any, force: bool = False) -> tuple[Any, str]:
        """Always JSON: an agent negotiates nothing."""
        return self.renderer_classes[0](), "application/json"

    @extend_schema(
        operation_id="upload_batch",
        request={"application/msgpack": OpenApiTypes.BINARY},
        parameters=[
            OpenApiParameter(wire.HEADER_DROPPED, int, OpenApiParameter.HEADER, description="Cumulative evictions."),
            OpenApiParameter(wire.HEADER_SIGNATURE, str, OpenApiParameter.HEADER, description="Ed25519, base64."),
            OpenApiParameter(
                wire.HEADER_BACKLOG, str, OpenApiParameter.HEADER, description="1: live ones may go first."
            ),
        ],
        responses={202: ReceiptSerializer},
    )
    def post(self, request: Any) -> HttpResponse:
        """Store one batch. 202 with a receipt once it is committed; 4xx and 5xx are problem documents."""
        said = answer(request.META, request._request.read)
        headers = {**dict(said.headers), "Content-Type": said.content_type}
        return HttpResponse(said.body(), status=said.status, headers=headers)
