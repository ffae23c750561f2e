"""The API of contracts, reports and claims under /v1/. Keys read; whoever writes is signed in with the role for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import exceptions
from rest_framework.request import Request
from rest_framework.response import Response

from claims import selectors
from claims.downloads import pack_response
from claims.errors import ClaimsError
from claims.inputs import running_month
from claims.late import late_of
from claims.models import Claim, Contract, Report
from claims.pack import make_pack
from claims.scope import may_see
from claims.services import Actor, add_contract, add_overlay, get_contract, read_terms
from claims.services_claims import (
    acknowledge_claim,
    file_claim,
    get_claim,
    pay_claim,
    refuse_claim,
    write_off_claim,
)
from claims.services_reports import draft_report, issue_report
from claims.views import MONTH
from fleet import api_params as ask
from fleet.api import OrgView
from fleet.api_shapes import stamp
from orgs.access import get_access
from orgs.addresses import client_address
from orgs.authentication import Refused
from orgs.errors import KeyRefused
from orgs.models import Org

MONTH_PARAM = OpenApiParameter("month", str, description="Such as 2026-10; this month where none is named.")
OBJECT = {200: OpenApiTypes.OBJECT}


class _Problem(exceptions.APIException):
    """A ClaimsError for DRF: keeps its status, code and sentence."""

    def __init__(self, error: ClaimsError) -> None:
        super().__init__(str(error), error.code)
        self.status_code = 422 if error.status == 400 else error.status


class ClaimsView(OrgView):
    """A key or person of one cluster sees the contracts that lie wholly within it, and is refused others."""

    @property
    def clusters(self) -> tuple[str, ...]:
        """The cluster that the caller is restricted to; empty: all."""
        return (self.cluster,) if self.cluster else ()

    def seen(self, contract: Contract) -> Contract:
        """The contract, for whoever may see it. Raises Refused → 403."""
        if not may_see(contract, self.clusters):
            raise Refused(KeyRefused("This contract has nodes outside of the key's cluster.", "restricted", 403))
        return contract

    def unrestricted(self) -> None:
        """Raises Refused → 403 for a caller of one cluster."""
        if self.cluster:
            raise Refused(KeyRefused("This is the whole org's: this key sees one cluster.", "restricted", 403))

    def handle_exception(self, exc: Exception) -> Response:
        """A refusal of claims becomes a problem document."""
        return super().handle_exception(_Problem(exc) if isinstance(exc, ClaimsError) else exc)

    def actor(self, request: Request, may: str) -> Actor:
        """Who writes. Raises Refused → 403 for a key, and for a role that may not."""
        if self.key.prefix != "session" or self.key.id:
            raise Refused(KeyRefused("Keys only read here: sign in.", "session_needed", 403))
        access = get_access(request.user, self.key.org_slug)
        if not getattr(access, may):
            raise Refused(KeyRefused("Your role does not reach so far.", "role_needed", 403))
        return Actor(request.user.get_username(), Org.objects.get(pk=self.key.org_id), client_address(request.META))

    def body(self, request: Request, *allowed: str) -> dict[str, Any]:
        """The JSON object of the request with these keys at most."""
        if not isinstance(request.data, dict):
            ask.refuse("body", "A JSON object.")
        for name in request.data:
            if name not in allowed:
                ask.refuse(str(name)[:64], f"There is only {', '.join(allowed)}.")
        return dict(request.data)


def text_of(body: dict[str, Any], name: str) -> str:
    """A text of the body, '' where it is absent."""
    value = body.get(name, "")
    if not isinstance(value, str) or "\x00" in value:
        ask.refuse(name, "A text.")
    return str(value)


def month_in(params: Any, one: Contract) -> str:
    """The month that a request names, else the contract's running one, in its zone and by its billing day."""
    month = params.get("month") or running_month(one, timezone.now())
    if not isinstance(month, str) or not MONTH.fullmatch(month):
        ask.refuse("month", "A month such as 2026-10.")
    return str(month)


def plain_contract(one: Contract) -> dict[str, Any]:
    """A contract with its versions."""
    return {
        "id": one.pk,
        "name": one.name,
        "cluster": one.cluster,
        "versions": [
            {
                "number": version.number,
                "digest": version.digest,
                "valid_from": version.valid_from and version.valid_from.isoformat(),
                "valid_until": version.valid_until and version.valid_until.isoformat(),
                "author": version.author,
                "terms": json.loads(version.terms),
            }
            for version in one.versions.all()
        ],
    }


def plain_report(one: Report, in_full: bool = False) -> dict[str, Any]:
    """A report; `in_full` with what it rests on and result.json."""
    out = {
        "id": one.pk,
        "contract_id": one.contract_id,
        "contract": one.contract.name,
        "month": one.month,
        "version": one.number,
        "status": one.status,
        "digest": one.digest,
        "reason": one.reason,
        "difference": one.difference,
        "issued_at": one.issued_at and one.issued_at.isoformat(),
        "issued_by": one.issued_by,
        "result_status": one.result["assessment"]["status"],
        "claim": (one.result["assessment"].get("result") or {}).get("claim"),
    }
    return {**out, "inputs": one.inputs, "result": one.result} if in_full else out


def plain_claim(one: Claim, in_full: bool = False) -> dict[str, Any]:
    """A claim; `in_full` with its history."""
    out: dict[str, Any] = {
        "id": one.pk,
        "label": one.label,
        "report_id": one.report_id,
        "contract": one.report.contract.name,
        "month": one.report.month,
        "status": one.status,
        "amount": f"{one.amount:.2f}",
        "currency": one.currency,
        "received": f"{one.received:.2f}",
        "closes_at": one.closes_at and one.closes_at.isoformat(),
        "filed_at": one.filed_at and one.filed_at.isoformat(),
        "filed_where": one.filed_where,
        "filed_reference": one.filed_reference,
        "refusal": one.refusal,
        "disputed_at": one.disputed_at and one.disputed_at.isoformat(),
    }
    if in_full:
        out["events"] = [
            {
                "at": event.at.isoformat(),
                "actor": event.actor,
                "before": event.before,
                "after": event.after,
                "amount": None if event.amount is None else f"{event.amount:.2f}",
                "note": event.note,
                "side": event.side,
            }
            for event in one.events.all()
        ]
    return out


class Contracts(ClaimsView):
    """Contracts of the org."""

    @extend_schema(operation_id="list_contracts", responses=OBJECT)
    def get(self, request: Request) -> Response:
        """Contracts with their versions."""
        return Response({"results": [plain_contract(one) for one in selectors.list_contracts(self.clusters)]})

    @extend_schema(operation_id="add_contract", request=OpenApiTypes.OBJECT, responses={201: OpenApiTypes.OBJECT})
    def post(self, request: Request) -> Response:
        """Add a contract or its next version: `terms` (fields as in a contract file), `cluster`, `entitled_from`."""
        self.unrestricted()
        actor = self.actor(request, "may_write")
        body = self.body(request, "terms", "cluster", "entitled_from")
        terms = body.get("terms")
        if not isinstance(terms, dict | str):
            ask.refuse("terms", "A contract: a JSON object, or TOML as a text.")
        read = read_terms(terms if isinstance(terms, str) else json.dumps(terms))
        version = add_contract(
            read,
            actor,
            cluster=text_of(body, "cluster")[:256],
            entitled_from=text_of(body, "entitled_from"),
        )
        return Response(plain_contract(version.contract), status=201)


class OneContract(ClaimsView):
    """One contract."""

    @extend_schema(operation_id="get_contract_month", parameters=[MONTH_PARAM], responses=OBJECT)
    def get(self, request: Request, contract_id: int) -> Response:
        """A contract's month: the issued report, else the numbers of this moment, else the `problem`."""
        contract = self.seen(get_contract(contract_id))
        found = selectors.get_month(contract, month_in(request.query_params, contract), timezone.now())
        report = None if found.report is None else plain_report(found.report)
        document = {"month": found.month, "problem": found.problem, "report": report, "result": found.document}
        return Response({"contract": plain_contract(found.contract), **document})


class Rows(ClaimsView):
    """Dated rows of a contract."""

    @extend_schema(operation_id="add_contract_row", request=OpenApiTypes.OBJECT, responses={201: OpenApiTypes.OBJECT})
    def post(self, request: Request, contract_id: int) -> Response:
        """Add a row: kind, resource, starts_at, ends_at, acknowledged_at, notice_s, reference, provider_word."""
        actor, one = self.actor(request, "may_write"), self.seen(get_contract(contract_id))
        keys = ("kind", "resource", "starts_at", "ends_at", "acknowledged_at", "reference")
        body = self.body(request, *keys, "notice_s", "provider_word")
        more: dict[str, Any] = {key: text_of(body, key) for key in keys}
        notice = body.get("notice_s")
        if notice is not None and (type(notice) is not int or not 0 <= notice < 2**31):
            ask.refuse("notice_s", "Seconds.")
        row = add_overlay(
            actor, contract=one, **more, notice_s=notice, provider_word=body.get("provider_word", False) is True
        )
        return Response({"id": row.pk, "kind": row.kind, "resource": row.resource}, status=201)


class ContractReports(ClaimsView):
    """Issuing."""

    @extend_schema(operation_id="issue_report", request=OpenApiTypes.OBJECT, responses={201: OpenApiTypes.OBJECT})
    def post(self, request: Request, contract_id: int) -> Response:
        """Issue a `month` (`draft`: true only drafts it; `reason` restates an issued one)."""
        actor, one = self.actor(request, "may_write"), self.seen(get_contract(contract_id))
        body = self.body(request, "month", "draft", "reason")
        if body.get("draft") is True:
            return Response(plain_report(draft_report(one, month_in(body, one)), True), status=201)
        report = issue_report(one, month_in(body, one), actor, reason=text_of(body, "reason"))
        return Response(plain_report(report, True), status=201)


class Reports(ClaimsView):
    """Reports of the org."""

    @extend_schema(operation_id="list_reports", responses=OBJECT)
    def get(self, request: Request) -> Response:
        """Reports, the newest month first."""
        return Response({"results": [plain_report(one) for one in selectors.list_reports(self.clusters)]})


class OneReport(ClaimsView):
    """One report."""

    @extend_schema(operation_id="get_report", responses=OBJECT)
    def get(self, request: Request, report_id: int) -> Response:
        """A report with what it rests on and every number of it."""
        report = selectors.get_report(report_id)
        self.seen(report.contract)
        return Response(plain_report(report, True))


class LateFacts(ClaimsView):
    """What came late for a report."""

    @extend_schema(operation_id="get_late_facts", responses=OBJECT)
    def get(self, request: Request, report_id: int) -> Response:
        """Batches of the month that came after its issue, and the figures that a restatement would change."""
        report = selectors.get_report(report_id)
        self.seen(report.contract)
        found = late_of(report, timezone.now())
        return Response(
            {
                "report_id": report.pk,
                "nodes": []
                if found is None
                else [{**vars(one), "newest_at": stamp(one.newest_at)} for one in found.nodes],
                "changed_nodes": [] if found is None else list(found.changed),
                "difference": {} if found is None else found.difference,
                "problem": "" if found is None else found.problem,
            }
        )


class Claims(ClaimsView):
    """Claims of the org."""

    @extend_schema(operation_id="list_claims", responses=OBJECT)
    def get(self, request: Request) -> Response:
        """Claims, what closes first."""
        return Response({"results": [plain_claim(one) for one in selectors.list_claims(self.clusters)]})


class OneClaim(ClaimsView):
    """One claim."""

    @extend_schema(operation_id="get_claim", responses=OBJECT)
    def get(self, request: Request, claim_id: int) -> Response:
        """A claim with its history."""
        claim = get_claim(claim_id)
        self.seen(claim.report.contract)
        return Response(plain_claim(claim, True))


Step = Callable[[Claim, Actor, dict[str, Any]], Claim]
STEPS: dict[str, Step] = {
    "filed": lambda one, actor, body: file_claim(
        one, actor, where=text_of(body, "where"), reference=text_of(body, "reference")
    ),
    "acknowledged": lambda one, actor, body: acknowledge_claim(one, actor, note=text_of(body, "note")),
    "paid": lambda one, actor, body: pay_claim(one, actor, amount=text_of(body, "amount"), note=text_of(body, "note")),
    "refused": lambda one, actor, body: refuse_claim(one, actor, reason=text_of(body, "note")),
    "written_off": lambda one, actor, body: write_off_claim(one, actor, reason=text_of(body, "note")),
}


class ClaimSteps(ClaimsView):
    """What becomes of a claim."""

    @extend_schema(operation_id="step_claim", request=OpenApiTypes.OBJECT, responses=OBJECT)
    def post(self, request: Request, claim_id: int) -> Response:
        """Take a step: `to` filed (where, reference), acknowledged, paid (amount), refused or written_off (note)."""
        actor, one = self.actor(request, "may_claim"), get_claim(claim_id)
        self.seen(one.report.contract)
        body = self.body(request, "to", "where", "reference", "amount", "note")
        step = STEPS.get(text_of(body, "to"))
        if step is None:
            ask.refuse("to", f"One of {', '.join(STEPS)}.")
        return Response(plain_claim(step(one, actor, body), True))


class Pack(ClaimsView):
    """A claim's pack."""

    @extend_schema(operation_id="get_claim_pack", responses={(200, "application/zip"): OpenApiTypes.BINARY})
    def get(self, request: Request, claim_id: int) -> HttpResponse:
        """The pack: the computation, the exact batches, and how to check both offline."""
        one = get_claim(claim_id)
        self.seen(one.report.contract)
        org = Org.objects.get(pk=self.key.org_id)
        return pack_response(make_pack(one, org, with_pdf=True), one.label)
