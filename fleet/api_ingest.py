"""`POST /v1/batches`: a lean DRF view. Served past all middleware (goodput_site/wsgi.py), so it does its own checks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import db
from django.http import HttpRequest
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import renderers, serializers
from rest_framework.response import Response
from rest_framework.views import APIView

from agent import wire
from fleet import ingest, quotas
from fleet.errors import BatchRejected, FleetError, NotStored
from fleet.refusals import keep_refusal
from goodput_site.problems import CONTENT_TYPE, problem_body
from orgs.authentication import KeyAuthentication
from orgs.errors import KeyRefused

RETRY_AFTER_SECONDS = 5


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


class Batches(APIView):
    """Takes uploads of agents."""

    authentication_classes = [KeyAuthentication]
    permission_classes: list[Any] = []
    parser_classes: list[Any] = []
    renderer_classes = [renderers.JSONRenderer]

    def perform_content_negotiation(self, request: Any, force: bool = False) -> tuple[Any, str]:
        """Always JSON: an agent negotiates nothing."""
        return self.renderer_classes[0](), "application/json"

    def initial(self, request: Any, *args: Any, **kwargs: Any) -> None:
        """Look at the headers before the key, and at the key before the body.

        A body that trickles in holds a thread of the server, so nobody without a key may make it wait for one.
        """
        _check_headers(request.META)
        super().initial(request, *args, **kwargs)

    def finalize_response(self, request: Any, response: Any, *args: Any, **kwargs: Any) -> Any:
        """With a Content-Length: no middleware sets it here, and the answer would travel in chunks."""
        response = super().finalize_response(request, response, *args, **kwargs)
        response.add_post_render_callback(_set_length)
        return response

    def handle_exception(self, exc: Exception) -> Response:
        """A refusal as a problem document. A database that can't be asked for the key is a 503, never a 500."""
        if isinstance(exc, db.Error):
            db.connection.close()
            exc = NotStored("The database does not answer right now. Keep this batch and try again.")
        if isinstance(exc, (FleetError, KeyRefused)):
            return _refusal(exc)
        return super().handle_exception(exc)

    @extend_schema(
        operation_id="upload_batch",
        request={"application/msgpack": OpenApiTypes.BINARY},
        parameters=[
            OpenApiParameter(wire.HEADER_DROPPED, int, OpenApiParameter.HEADER, description="Cumulative evictions."),
            OpenApiParameter(wire.HEADER_SIGNATURE, str, OpenApiParameter.HEADER, description="Ed25519, base64."),
        ],
        responses={202: ReceiptSerializer},
    )
    def post(self, request: Any) -> Response:
        """Store one batch. 202 with a receipt once it is committed; 4xx and 5xx are problem documents."""
        request.auth.require("ingest")
        quotas.check(request.auth, int(request.META["CONTENT_LENGTH"]))
        body = _body(request._request)
        try:
            receipt = ingest.receive(body, request.auth, _own_headers(request.META))
        except FleetError as error:
            keep_refusal(request.auth, body, error)
            raise
        return Response(receipt.as_json(), status=202)


def _set_length(response: Any) -> None:
    response["Content-Length"] = str(len(response.content))


def _own_headers(meta: Mapping[str, str]) -> dict[str, str]:
    """The two headers of the wire, without making Django's map of all of them."""
    names = (wire.HEADER_DROPPED, wire.HEADER_SIGNATURE)
    return {name: meta[key] for name in names if (key := "HTTP_" + name.upper().replace("-", "_")) in meta}


def _check_headers(meta: Mapping[str, str]) -> None:
    """Raises BatchRejected 415, 411 or 413: what can be refused without reading a byte of the body."""
    if meta.get("CONTENT_TYPE", "").partition(";")[0].strip().lower() != wire.CONTENT_TYPE:
        raise BatchRejected(415, "bad_content_type", f"Send Content-Type: {wire.CONTENT_TYPE}.")
    if meta.get("HTTP_CONTENT_ENCODING", "").strip().lower() != "gzip":
        raise BatchRejected(415, "bad_content_encoding", "Send Content-Encoding: gzip, once.")
    length = meta.get("CONTENT_LENGTH") or ""
    if not (length.isascii() and length.isdigit()):
        raise BatchRejected(411, "length_required", "Send Content-Length; a chunked upload is not read.")
    if int(length[:20]) > wire.MAX_BODY_BYTES:
        raise BatchRejected(413, "too_large", f"A batch is at most {wire.MAX_BODY_BYTES} bytes.")


def _body(request: HttpRequest) -> bytes:
    """The upload, as long as its Content-Length (checked before). Raises BatchRejected 408 when it broke off."""
    length = int(request.META["CONTENT_LENGTH"])
    try:
        body = request.read(length)
    except OSError as error:
        raise BatchRejected(408, "cut_short", "The upload broke off.") from error
    if len(body) < length:  # the transport's doing, so unlike a cut gzip member it is worth another try
        raise BatchRejected(408, "cut_short", "The upload broke off.")
    return body


def _refusal(error: FleetError | KeyRefused) -> Response:
    """The problem document of a refused batch."""
    more = {"permanent": error.is_permanent} if isinstance(error, FleetError) else {"permanent": False}
    response = Response(
        problem_body(error.status, error.code, error.detail, **more), status=error.status, content_type=CONTENT_TYPE
    )
    if error.status in (429, 503):
        response["Retry-After"] = str(getattr(error, "wait_seconds", RETRY_AFTER_SECONDS))
    return response
