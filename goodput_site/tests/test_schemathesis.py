"""Every operation of the API against its own schema, with parameters and bodies that nobody would think of.

A fixed seed; `full`, as it takes a minute. Answers must be as described: status, media type and body.
"""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from django.test import Client
from django.utils import timezone
from django_tenants.utils import tenant_context
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from fleet.tests.bodies import packed

CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)
EXAMPLES = 12
pytestmark = [pytest.mark.full, pytest.mark.slow, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def headers(alpha: Any, key_of: Any) -> dict[str, str]:
    """Of a key with every scope that reads, in an org with some facts."""
    from fleet.folding import fold_waiting

    token = key_of(alpha, "ingest", "read", "admin-read")
    bearer = {"Authorization": f"Bearer {token}"}
    body, _ = packed()
    sent = Client(HTTP_HOST="localhost", headers={**bearer, "Content-Encoding": "gzip"}).post(
        "/v1/batches", body, "application/msgpack"
    )
    assert sent.status_code == 202, sent.content
    with tenant_context(alpha):
        fold_waiting(timezone.now())
    return bearer


def test_every_answer_is_as_described(headers: dict[str, str]) -> None:
    from goodput_site.wsgi import build

    api = schemathesis.openapi.from_wsgi("/v1/openapi.json", build())
    wrong: list[str] = []
    tried = 0
    for found in api.get_all_operations():
        operation = found.ok()
        if operation.label == "POST /v1/batches":
            continue  # MessagePack: fleet/tests/ingest/test_fuzz.py

        @settings(
            max_examples=EXAMPLES, deadline=None, derandomize=True, database=None,
            phases=(Phase.explicit, Phase.generate), suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=operation.as_strategy())
        def ask(case: Any) -> None:
            case.call_and_validate(headers=headers, checks=CHECKS)

        tried += 1
        try:
            ask()
        except (Exception, BaseExceptionGroup) as error:  # all of them in one list
            wrong.append(f"{operation.label}: {_why(error)}")
    assert wrong == [], "\n\n".join(wrong)
    assert tried > 20


def _why(error: BaseException) -> str:
    """Each failure of a group in a few lines."""
    parts = error.exceptions if isinstance(error, BaseExceptionGroup) else (error,)
    return "\n".join(f"{type(part).__name__}: {str(part)[:500]}" for part in parts)
