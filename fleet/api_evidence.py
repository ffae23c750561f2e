"""Evidence and rules of the API: a batch by its hash, its exact bytes, the rule set; availability of any period."""

from __future__ import annotations

import re
from typing import Any

from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from fleet import api_params as ask
from fleet import api_schemas as schema
from fleet import api_shapes as shapes
from fleet.api import ListView, OrgView
from fleet.api_nodes import NONE_SUCH
from fleet.api_parquet import JSON_CSV_OR_PARQUET
from fleet.domain.rules import Rules
from fleet.evidence import Batch as StoredBatch
from fleet.selectors_api import TooMuch, Wanted
from fleet.selectors_api_availability import GROUPS, get_availability
from fleet.selectors_api_evidence import get_batch, is_waiting
from fleet.selectors_live import to_ms
from fleet.selectors_rules import find_rules, rules_now

AVAILABILITY_LIMIT_HOURS = 400 * 24
BYTES_DROPPED = "The bytes of this batch were dropped after the raw horizon; its hash and its verdicts are kept."
SHA256 = re.compile(r"[0-9a-f]{64}")
VERSION = re.compile(r"\d{4}-\d\d-\d\d[a-z]?(\+[0-9a-f]{12})?")
RULES_PARAM = schema.param("version", "Version of the rule set; the newest unless said.")


class BatchView(OrgView):
    """One received batch that the key may see."""

    def batch(self, sha256: str, *, with_body: bool = False) -> StoredBatch:
        """It. Raises NotFound → 404; what is no hash in lower-case hex is none."""
        found = get_batch(bytes.fromhex(sha256), self.cluster, with_body) if SHA256.fullmatch(sha256) else None
        if found is None:
            raise NotFound(NONE_SUCH)
        return found


class Batch(BatchView):
    """A batch by its hash."""

    @extend_schema(operation_id="get_batch", responses=schema.answers(schema.BatchInFull, 404))
    def get(self, request: Request, sha256: str) -> Response:
        """What was kept of a batch: who sent it, when it was received, the hours that it touched."""
        ask.allow(request.query_params, ())
        found = self.batch(sha256)
        return Response(shapes.batch(found, is_waiting(found)))


class GzipRenderer(BaseRenderer):
    """Lets a client ask for application/gzip; the bytes never pass through it, errors do."""

    media_type = "application/gzip"
    format = "gz"
    render_style = "binary"

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        """An error as JSON."""
        return bytes(JSONRenderer().render(data))


class BatchBody(BatchView):
    """A batch's bytes."""

    renderer_classes = [GzipRenderer, JSONRenderer]

    @extend_schema(
        operation_id="get_batch_body",
        responses={
            **{key: value for key, value in schema.answers(schema.Problem, 404).items() if key != 200},
            (200, "application/gzip"): OpenApiTypes.BINARY,
        },
    )
    def get(self, request: Request, sha256: str) -> HttpResponse:
        """The exact gzip member as it was received; its content hashes to the batch's SHA-256.

        404 as well where the bytes were dropped after the raw horizon: the batch's line then says what is left.
        """
        ask.allow(request.query_params, ())
        found = self.batch(sha256, with_body=True)
        if not found.has_bytes:
            raise NotFound(BYTES_DROPPED)
        response = HttpResponse(found.member(), content_type="application/gzip")
        response["Content-Disposition"] = f'attachment; filename="{sha256}.msgpack.gz"'
        response["ETag"] = f'"{sha256}"'
        response["Cache-Control"] = "private, max-age=31536000, immutable"
        return response


def rules_of(request: Request) -> Rules:
    """The rules that are asked for, the org's own unless said. Raises Unprocessable → 422 for what is not here."""
    version = ask.text(request.query_params, "version").replace(" ", "+")  # a plus that a query lost
    if not version:
        return rules_now()
    if not VERSION.fullmatch(version):
        ask.refuse("version", "A version is the day of its adoption, such as 2026-11-30.")
    found = find_rules(version)
    return found.rules if found.is_found else ask.refuse("version", "There is no such rule set.")


class RuleList(ListView):
    """The rule set."""

    columns = tuple(schema.Rule().fields)

    @extend_schema(
        operation_id="list_rules",
        parameters=[RULES_PARAM],
        responses=schema.answers(
            schema.listing(schema.Rule, version=schema.text(), digest=schema.text()), 422, csv=True
        ),
    )
    def get(self, request: Request, format: str | None = None) -> Response:
        """Every reason: party, weight, what it needs, what ends it, where that is said."""
        ask.allow(request.query_params, ("version",))
        rules = rules_of(request)
        reasons = [shapes.rule(rules.reasons[code]) for code in sorted(rules.reasons)]
        return self.page(request, reasons, version=rules.version, digest=rules.digest)


class OneRule(OrgView):
    """One reason."""

    @extend_schema(operation_id="get_rule", parameters=[RULES_PARAM], responses=schema.answers(schema.Rule, 404, 422))
    def get(self, request: Request, code: str) -> Response:
        """A reason by its code, such as XID_79."""
        ask.allow(request.query_params, ("version",))
        reason = rules_of(request).reasons.get(code)
        if reason is None:
            raise NotFound(NONE_SUCH)
        return Response(shapes.rule(reason))


class Availability(ListView):
    """Availability of a period."""

    renderer_classes = JSON_CSV_OR_PARQUET
    row = schema.AvailabilityGroup
    columns = schema.GROUP_COLUMNS

    @extend_schema(
        operation_id="get_availability",
        parameters=[
            *schema.RANGE,
            schema.param("group", "One line per what.", enum=GROUPS, default="cluster"),
            schema.param("cluster", "Only this cluster, by name."),
            schema.param("node", "Only the node with this name."),
        ],
        responses=schema.answers(
            schema.ranged(schema.AvailabilityGroup, total=schema.Figures()), 422, csv=True, parquet=True
        ),
    )
    def get(self, request: Request, format: str | None = None) -> Response:
        """Availability with bounds, coverage and seconds per state, exact to the slot. At most 400 days at a time."""
        params = request.query_params
        ask.allow(params, ("from", "to", "group", "cluster", "node"))
        group = ask.choice(params, "group", GROUPS, "cluster")
        now = timezone.now()
        span = ask.span(params, to_ms(now), limit_hours=AVAILABILITY_LIMIT_HOURS)
        wanted = Wanted(self.cluster, ask.text(params, "cluster"), ask.text(params, "node"))
        try:
            found = get_availability(now, span, group, wanted)
        except TooMuch as error:
            ask.refuse("group", str(error))
        return self.page(
            request,
            [shapes.group(one, span) for one in found.groups],
            **span.as_json(),
            total=shapes.figures(found.whole),
        )
