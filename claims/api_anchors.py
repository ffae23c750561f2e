"""The API of the evidence log: its key, its newest checkpoint, and who else saw it."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from claims.anchors.making import newest_note
from claims.anchors.plan import FIELDS, get_plan, set_plan
from claims.api import OBJECT, ClaimsView, text_of
from claims.models import Anchor
from fleet.api import OrgView
from fleet.log_key import load_key

SHOWN = 200


def plain_anchor(one: Anchor) -> dict[str, Any]:
    """An anchor without its evidence, which stands in packs."""
    return {
        "kind": one.kind,
        "state": one.state,
        "size": one.checkpoint.size,
        "at": one.at and one.at.isoformat(),
        "who": one.who,
        "reference": one.reference,
        "attempts": one.attempts,
        "error": one.error,
    }


class LogKeyView(OrgView):
    """The key that signs receipts, checkpoints and packs."""

    @extend_schema(operation_id="get_log_key", responses=OBJECT)
    def get(self, request: Request) -> Response:
        """`log`: the verifier key (C2SP); `checkpoint`: the newest signed note of the org's log, or null."""
        note = newest_note()
        return Response({"log": load_key().verifier(), "checkpoint": None if note is None else note.note})


class Anchors(ClaimsView):
    """Outside anchors."""

    @extend_schema(operation_id="list_anchors", responses=OBJECT)
    def get(self, request: Request) -> Response:
        """The plan, and the newest anchors."""
        self.unrestricted()
        plan = get_plan()
        return Response(
            {
                "plan": None if plan is None else {name: getattr(plan, name) for name in FIELDS},
                "results": [plain_anchor(one) for one in Anchor.objects.select_related("checkpoint")[:SHOWN]],
            }
        )

    @extend_schema(operation_id="plan_anchors", request=OpenApiTypes.OBJECT, responses=OBJECT)
    def post(self, request: Request) -> Response:
        """Plan them: notice_address, finance_address, tsa_url, tsa_certificate, token_adapter, token_keys."""
        self.unrestricted()
        actor = self.actor(request, "may_write")
        body = self.body(request, *FIELDS)
        plan = set_plan(actor, {name: text_of(body, name) for name in FIELDS})
        return Response({"plan": {name: getattr(plan, name) for name in FIELDS}})
