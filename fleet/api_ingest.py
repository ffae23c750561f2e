"""`POST /v1/batches`: a lean DRF view. Served past all middleware (goodput_site/wsgi.py), so it does its own checks."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import renderers, serializers
from rest_framework.response import Response
from rest_framework.views import APIView

from agent import wire
from fleet import ingest
from fleet.errors import BatchRejected, FleetError
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
    signature = serializers.CharField(allow_null=True)


class Batches(APIView):
    """Takes uploads of agents."""

    authentication_classes = [KeyAuthentication]
    permission_classes: list[Any] = []
    parser_classes: list[Any] = []
    renderer_classes = [renderers.JSONRenderer]

    def perform_content_negotiation(self, request: Any, force: bool = False) -> tuple[Any, str]:
        """Always JSON: an agent negotiates nothing."""
        return self.renderer_classes[0](), "application/json"

    @extend_schema(
        operation_id="upload_batch",
        request={("application/msgpack", "gzip"): OpenApiTypes.BINARY},
        parameters=[
            OpenApiParameter(wire.HEADER_DROPPED, int, OpenApiParameter.HEADER, description="Cumulative evictions."),
            OpenApiParameter(wire.HEADER_SIGNATURE, str, OpenApiParameter.HEADER, description="Ed25519, base64."),
        ],
        responses={202: ReceiptSerializer},
    )
    def post(self, request: Any) -> Response:
        """Store one batch. 202 with a receipt once it is committed; 4xx and 5xx are problem documents."""
        try:
            request.auth.require("ingest")
            receipt = ingest.receive(_body(request._request), request.auth, request.headers)
        except (FleetError, KeyRefused) as error:
            return _refusal(error)
        return Response(receipt.as_json(), status=202)


def _body(request: HttpRequest) -> bytes:
    """The upload, at most `wire.MAX_BODY_BYTES`. Raises BatchRejected 413 or 415."""
    if request.META.get("CONTENT_TYPE", "").partition(";")[0].strip().lower() != wire.CONTENT_TYPE:
        raise BatchRejected(415, "bad_content_type", f"Send Content-Type: {wire.CONTENT_TYPE}.")
    if request.META.get("HTTP_CONTENT_ENCODING", "").strip().lower() != "gzip":
        raise BatchRejected(415, "bad_content_encoding", "Send Content-Encoding: gzip, once.")
    length = request.META.get("CONTENT_LENGTH") or "0"
    if length.isdigit() and int(length) > wire.MAX_BODY_BYTES:
        raise BatchRejected(413, "too_large", f"A batch is at most {wire.MAX_BODY_BYTES} bytes.")
    body = request.read(wire.MAX_BODY_BYTES + 1)
    if len(body) > wire.MAX_BODY_BYTES:
        raise BatchRejected(413, "too_large", f"A batch is at most {wire.MAX_BODY_BYTES} bytes.")
    return body


def _refusal(error: FleetError | KeyRefused) -> Response:
    """The problem document of a refused batch."""
    more = {"permanent": error.is_permanent} if isinstance(error, FleetError) else {"permanent": False}
    response = Response(
        problem_body(error.status, error.code, error.detail, **more), status=error.status, content_type=CONTENT_TYPE
    )
    if error.status in (429, 503):
        response["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return response
