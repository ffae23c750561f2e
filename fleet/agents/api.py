"""`POST /v1/enrol`: an installation brings its public key. `GET /v1/agents`: the installations of the org."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, NoReturn, cast

from django.db import connection
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import renderers, serializers
from rest_framework.exceptions import NotFound, ParseError, UnsupportedMediaType
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agent import wire
from agent.wire import fingerprint
from fleet import api_params as ask
from fleet import api_schemas as schema
from fleet.agents import services
from fleet.agents.errors import EnrolmentRefused
from fleet.agents.selectors import FLAGS, Agent, get_key, list_agents
from fleet.agents.signatures import PUBLIC_BYTES, SIGNATURE_BYTES, is_by
from fleet.api import ListView, OrgView
from fleet.api_shapes import stamp
from fleet.errors import WrongCluster
from fleet.log_key import load_key
from goodput_site.problems import CONTENT_TYPE, problem_body
from orgs.access import get_access
from orgs.addresses import client_address
from orgs.authentication import KeyOrSessionAuthentication, Refused
from orgs.errors import KeyRefused
from orgs.keys import KeyInfo
from orgs.models import ApiKey, Org

MOST_BODY_BYTES = 4096
SCOPES = (ApiKey.Scope.ENROL, ApiKey.Scope.INGEST)

Enrolled = schema.shape(
    "Enrolled",
    agent_id=serializers.CharField(),
    fingerprint=serializers.CharField(help_text="SHA-256 of the public key, its first 16 hex digits."),
    state=serializers.ChoiceField(("active", "waiting", "revoked")),
    token=schema.text(help_text="The node's own ingest key, shown once; only for a token that may only enrol."),
    log_key=serializers.CharField(help_text="Verifier key (C2SP) of the log that signs receipts."),
)
OneAgent = schema.shape(
    "Agent",
    id=serializers.IntegerField(allow_null=True, help_text="Of the enrolled key; null where none is enrolled."),
    agent_id=serializers.CharField(),
    state=serializers.ChoiceField(("active", "waiting", "revoked", "not enrolled")),
    fingerprint=schema.text(),
    cluster=serializers.CharField(),
    node=serializers.CharField(),
    node_id=serializers.IntegerField(allow_null=True),
    agent_version=serializers.CharField(),
    enrolled_at=schema.at(),
    enrolled_with=schema.text(help_text="Prefix of the key that it came with."),
    received_at=schema.at(help_text="When its newest batch came."),
    signed=schema.whole(help_text="Batches that its enrolled key signed."),
    unsigned=schema.whole(),
    unknown_key=schema.whole(help_text="Signed before any key was enrolled."),
    bad=schema.whole(help_text="Signed, but not by an enrolled key, or not these bytes."),
    revoked=schema.whole(help_text="Signed by a key that was revoked before they came."),
    flags=serializers.ListField(child=serializers.ChoiceField(tuple(FLAGS))),
)


class Enrol(APIView):
    """Takes the public keys of agents."""

    authentication_classes = [KeyOrSessionAuthentication]  # a session has neither scope: it is refused below
    permission_classes: list[Any] = []
    parser_classes: list[Any] = []
    renderer_classes = [renderers.JSONRenderer]

    @extend_schema(
        operation_id="enrol_agent",
        request={"application/json": OpenApiTypes.OBJECT},
        parameters=[
            OpenApiParameter(
                wire.HEADER_SIGNATURE, str, OpenApiParameter.HEADER, required=True,
                description="Ed25519 by the key that is enrolled, over a domain tag and the body's SHA-256, base64.",
            )
        ],
        responses={
            200: Enrolled,
            **{
                (status, "application/problem+json"): OpenApiResponse(schema.Problem())
                for status in (400, 401, 403, 409, 415, 422)
            },
        },
    )  # fmt: skip
    def post(self, request: Request) -> Response:
        """Enrol a public key. The same key again is the same enrolment; refuses nothing that carries a proof."""
        key = cast(KeyInfo, request.auth)
        if not any(scope in key.scopes for scope in SCOPES):
            raise Refused(KeyRefused("This key lacks the scope enrol.", "missing_scope", 403))
        raw = _body(request)
        wanted = _wanted(raw, request.META.get("HTTP_" + wire.HEADER_SIGNATURE.upper().replace("-", "_"), ""))
        if (key.cluster and wanted.cluster != key.cluster) or (key.node and wanted.node != key.node):
            raise Refused(KeyRefused("This key is good for another cluster or node.", WrongCluster.code, 403))
        connection.set_schema(key.schema_name)  # type: ignore[attr-defined]  # OrgMiddleware leaves it again
        try:
            done = services.enrol(wanted, key, client_address(request.META))
        except EnrolmentRefused as error:
            body = problem_body(error.status, error.code, error.detail)
            return Response(body, status=error.status, content_type=CONTENT_TYPE)
        answer = {
            "agent_id": done.row.agent_id,
            "fingerprint": fingerprint(bytes(done.row.public_key)),
            "state": done.row.state,
            "token": done.token,
            "log_key": load_key().verifier(),
        }
        return Response(answer, headers={"Cache-Control": "private, no-store"})


def _body(request: Request) -> bytes:
    """The JSON as sent. Raises 400, 413 and 415."""
    if request.META.get("CONTENT_TYPE", "").partition(";")[0].strip().lower() != "application/json":
        raise UnsupportedMediaType(request.META.get("CONTENT_TYPE", "")[:64], "Send Content-Type: application/json.")
    length = request.META.get("CONTENT_LENGTH") or ""
    if not (length.isascii() and length.isdigit()):
        raise ParseError("Send Content-Length; a chunked request is not read.")
    if int(length[:20]) > MOST_BODY_BYTES:
        raise ask.Unprocessable({"body": [f"An enrolment is at most {MOST_BODY_BYTES} bytes."]})
    return request._request.read(int(length))


def _wanted(raw: bytes, signature: str) -> services.Wanted:
    """The enrolment, proved. Raises Unprocessable → 422 that names the field, ParseError → 400."""
    try:
        said = json.loads(raw, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise ParseError("The body is not a JSON object with each key once.") from None
    if not isinstance(said, dict):
        raise ParseError("The body is not a JSON object.")
    for name in said:
        if name not in wire.ENROLMENT:
            ask.refuse(str(name)[:64], f"There is no such field here. Known: {', '.join(wire.ENROLMENT)}.")
    for name in wire.ENROLMENT:
        value = said.get(name)
        if name == "hw_id" and value is None:
            continue
        if not _is_name(value):
            ask.refuse(name, f"A text of 1 to {wire.MAX_STRING_BYTES} bytes that prints.")
    public_key = _bytes("public_key", said["public_key"], PUBLIC_BYTES)
    proof = _bytes(wire.HEADER_SIGNATURE, signature, SIGNATURE_BYTES)
    if not is_by(public_key, proof, wire.enrolment_message(raw)):
        ask.refuse(wire.HEADER_SIGNATURE, "This body was not signed by the key that it enrols.")
    return services.Wanted(
        said["agent_id"], public_key, said["cluster_id"], said["node_id"], said.get("hw_id"), said["agent_version"]
    )


def _is_name(value: Any) -> bool:
    """Whether this is a text as the wire takes it, and not an empty one."""
    fits = isinstance(value, str) and value.isprintable() and value.strip() != ""
    return fits and len(value.encode("utf-8", "surrogatepass")) <= wire.MAX_STRING_BYTES


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def _bytes(name: str, value: str, size: int) -> bytes:
    try:
        data = base64.b64decode(value.strip(), validate=True)
    except (binascii.Error, ValueError):
        data = b""
    if len(data) != size:
        _odd(name, size)
    return data


def _odd(name: str, size: int) -> NoReturn:
    ask.refuse(name, f"Base64 of {size} bytes.")


def as_json(agent: Agent) -> dict[str, Any]:
    """One installation as the API tells it."""
    key, counts = agent.key, agent.counts
    return {
        "id": key.pk if key else None,
        "agent_id": agent.agent_id,
        "state": agent.state,
        "fingerprint": agent.fingerprint or None,
        "cluster": agent.cluster,
        "node": agent.node,
        "node_id": agent.node_id,
        "agent_version": agent.agent_version,
        "enrolled_at": stamp(key.enrolled_at) if key else None,
        "enrolled_with": key.enrolled_with if key else None,
        "received_at": stamp(agent.received_at),
        "signed": counts["valid"],
        **{name: counts[name] for name in ("unsigned", "unknown_key", "bad", "revoked")},
        "flags": list(agent.flags),
    }


class Agents(ListView):
    """Installations of the agent."""

    columns = tuple(OneAgent().fields)

    @extend_schema(
        operation_id="list_agents",
        parameters=[schema.param("search", "Part of a node, cluster, identity or fingerprint."), *schema.PAGING],
        responses=schema.answers(schema.listing(OneAgent), 422, csv=True),
    )
    def get(self, request: Request, format: str | None = None) -> Response:
        """Installations with their keys and how their batches were signed; flagged ones first."""
        ask.allow(request.query_params, ("search", "cursor", "page_size"))
        found = list_agents([self.cluster] if self.cluster else [], ask.text(request.query_params, "search"))
        after, size = self.paging(request, 1)
        start = after[0] if after else 0
        following = ask.cursor_for(start + size) if start + size < len(found) else None
        return self.page(request, [as_json(one) for one in found[start : start + size]], following)


class AgentChange(OrgView):
    """Revoking and accepting keys, for owners and admins who are signed in."""

    def change(self, request: Request, key_id: int, how: Any) -> Response:
        """Do it. Raises Refused → 403, NotFound → 404."""
        ask.allow(request.query_params, ())
        if self.key.prefix != "session" or self.key.id:
            raise Refused(KeyRefused("Keys only read here: sign in as owner or admin.", "session_needed", 403))
        if not get_access(request.user, self.key.org_slug).may_write:
            raise Refused(KeyRefused("Only owner and admin write here.", "role_needed", 403))
        row = get_key(key_id, [self.cluster] if self.cluster else [])
        if row is None:
            raise NotFound("There is no such resource, or it is not yours.")
        org = Org.objects.get(pk=self.key.org_id)
        how(row, org, actor=request.user.get_username(), address=client_address(request.META))
        (changed,) = [one for one in list_agents() if one.key is not None and one.key.pk == row.pk]
        return Response(as_json(changed))


class Revoke(AgentChange):
    """Ends a key."""

    @extend_schema(operation_id="revoke_agent", request=None, responses=schema.answers(OneAgent, 404, 422))
    def post(self, request: Request, key_id: int) -> Response:
        """Revoke an enrolled key; its own ingest key stops within 30 seconds. Audited."""
        return self.change(request, key_id, services.revoke)


class Accept(AgentChange):
    """Takes a key."""

    @extend_schema(operation_id="accept_agent", request=None, responses=schema.answers(OneAgent, 404, 422))
    def post(self, request: Request, key_id: int) -> Response:
        """Accept a waiting or revoked key. Audited."""
        return self.change(request, key_id, services.accept)
