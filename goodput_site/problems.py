"""Errors for programs: RFC 9457 problem+json with a machine-readable `code`, told in one place."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from django.http import Http404, HttpRequest, JsonResponse
from rest_framework import exceptions
from rest_framework.response import Response

CONTENT_TYPE = "application/problem+json"


def problem_body(status: int, code: str, detail: str, **more: Any) -> dict[str, Any]:
    """The members of a problem document."""
    return {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
        **more,
    }


def problem(status: int, code: str, detail: str, **more: Any) -> JsonResponse:
    """A problem document as a response of a plain view."""
    response = JsonResponse(problem_body(status, code, detail, **more), status=status, content_type=CONTENT_TYPE)
    if status in (429, 503):
        response["Retry-After"] = str(more.get("retry_after", 5))
    return response


def exception_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """DRF's hook: every refusal of the API becomes a problem document; anything unexpected stays a 500."""
    if isinstance(error, Http404):
        error = exceptions.NotFound("There is no such resource, or it is not yours.")
    if not isinstance(error, exceptions.APIException):
        return None
    codes = error.get_codes()
    code = codes if isinstance(codes, str) else "invalid"
    detail = error.detail if isinstance(error.detail, str) else "The request has invalid values."
    body = problem_body(error.status_code, code, str(detail))
    if not isinstance(error.detail, str):
        body["errors"] = error.detail
    headers = {}
    if getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = error.auth_header  # type: ignore[attr-defined]
    if getattr(error, "wait", None):
        headers["Retry-After"] = str(int(error.wait) + 1)  # type: ignore[attr-defined]
    elif error.status_code == 503:
        headers["Retry-After"] = "5"
    return Response(body, status=error.status_code, headers=headers, content_type=CONTENT_TYPE)


def not_found(request: HttpRequest, exception: Exception) -> Any:
    """404: a problem document under /v1/, a page elsewhere."""
    if request.path.startswith("/v1/"):
        return problem(404, "not_found", "There is no such resource, or it is not yours.")
    from django.views.defaults import page_not_found

    return page_not_found(request, exception)


def server_error(request: HttpRequest) -> Any:
    """500: a problem document under /v1/, a page elsewhere. Neither says what broke; the log does."""
    if request.path.startswith("/v1/"):
        return problem(500, "internal_error", "Something broke on the server. It is logged; try again later.")
    from django.views.defaults import server_error as page

    return page(request)
