"""Contracts, reports and claims by API: keys read, people write within their role, outsiders get nothing."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django_tenants.utils import tenant_context

from claims.models import Claim, Contract
from claims.services_reports import issue_report
from claims.tests.conftest import NOW
from claims.tests.months import terms
from orgs.services import create_user, set_role

pytestmark = pytest.mark.django_db
JSON = "application/json"


@pytest.fixture
def keyed(alpha: Any, key_of: Any) -> Client:
    return Client(HTTP_HOST="localhost", HTTP_AUTHORIZATION=f"Bearer {key_of(alpha, 'read')}")


def test_a_month_goes_from_contract_to_payment_by_api(contract: Any, alpha: Any, ada: Any, client_of: Any) -> None:
    connection.set_schema_to_public()
    client = client_of(ada)
    body = {"terms": terms(name='"Second"'), "entitled_from": "2026-09-01T00:00:00Z"}
    made = client.post("/v1/contracts?org=alpha", body, JSON)
    assert made.status_code == 201, made.content
    number = made.json()["id"]
    rows = f"/v1/contracts/{number}/rows?org=alpha"
    row = {"kind": "ticket", "resource": "gpu-017", "starts_at": "2026-10-02T17:00:00Z", "reference": "48102"}
    assert client.post(rows, row, JSON).status_code == 201
    assert client.post(rows, {**row, "kind": "nonsense"}, JSON).status_code == 422
    issued = client.post(f"/v1/contracts/{number}/reports?org=alpha", {"month": "2026-10"}, JSON)
    assert issued.status_code == 201, issued.content
    assert issued.json()["claim"] == "719.60"
    again = client.post(f"/v1/contracts/{number}/reports?org=alpha", {"month": "2026-10"}, JSON)
    assert (again.status_code, again.json()["code"]) == (409, "reason_needed")
    claim = client.get("/v1/claims?org=alpha").json()["results"][0]
    steps = f"/v1/claims/{claim['id']}/steps?org=alpha"
    assert client.post(steps, {"to": "paid", "amount": "1"}, JSON).json()["code"] == "claim_state"
    client.post(steps, {"to": "filed", "where": "portal", "reference": "T-1"}, JSON)
    paid = client.post(steps, {"to": "paid", "amount": "719.60"}, JSON)
    assert (paid.json()["status"], paid.json()["received"]) == ("paid", "719.60")
    assert client.post(steps, {"to": "nowhere"}, JSON).status_code == 422


def test_a_contract_with_a_bad_beginning_leaves_nothing(alpha: Any, ada: Any, client_of: Any) -> None:
    body = {"terms": terms(name='"Half"'), "entitled_from": "yesterday"}
    assert client_of(ada).post("/v1/contracts?org=alpha", body, JSON).status_code == 422
    with tenant_context(alpha):
        assert not Contract.objects.filter(name="Half").exists()


def test_a_key_reads_and_does_not_write(contract: Any, actor: Any, keyed: Client) -> None:
    report = issue_report(contract, "2026-10", actor, now=NOW)
    claim = Claim.objects.get()
    connection.set_schema_to_public()
    assert keyed.get(f"/v1/reports/{report.pk}").json()["result"] == report.result
    found = keyed.get(f"/v1/contracts/{contract.pk}?month=2026-10").json()
    assert found["result"]["assessment"]["result"]["claim"] == "719.60"
    assert "No version" in keyed.get(f"/v1/contracts/{contract.pk}?month=2026-08").json()["problem"]
    assert keyed.get(f"/v1/contracts/{contract.pk}?month=October").status_code == 422
    assert keyed.get(f"/v1/claims/{claim.pk}").json()["events"][0]["after"] == "draft"
    for path in ("contracts", f"contracts/{contract.pk}/reports", f"claims/{claim.pk}/steps"):
        refused = keyed.post(f"/v1/{path}", {}, JSON)
        assert (refused.status_code, refused.json()["code"]) == (403, "session_needed"), path


def test_finance_files_and_does_not_issue(contract: Any, actor: Any, alpha: Any, client_of: Any) -> None:
    issue_report(contract, "2026-10", actor, now=NOW)
    claim = Claim.objects.get()
    connection.set_schema_to_public()
    user = create_user("fin@alpha.example", actor="test")
    set_role(user, alpha, "finance", actor="test")
    client = client_of(user)
    refused = client.post(f"/v1/contracts/{contract.pk}/reports?org=alpha", {"month": "2026-10"}, JSON)
    assert (refused.status_code, refused.json()["code"]) == (403, "role_needed")
    steps = f"/v1/claims/{claim.pk}/steps?org=alpha"
    assert client.post(steps, {"to": "filed", "where": "x"}, JSON).status_code == 200


def test_the_pack_of_a_claim_without_batches_is_made_and_says_what_is_missing(
    contract: Any, actor: Any, keyed: Client, settings: Any, tmp_path: Any
) -> None:
    import io

    from claims.verify.checks import check_pack
    from claims.verify.pack_file import read_pack

    settings.GOODPUT_VAR = tmp_path
    issue_report(contract, "2026-10", actor, now=NOW)
    claim = Claim.objects.get()
    connection.set_schema_to_public()
    body = keyed.get(f"/v1/claims/{claim.pk}/pack").content
    found = {one.check: one.verdict for one in check_pack(read_pack(io.BytesIO(body)))}
    assert found["result"] == "PASS"
    assert found["manifest"] == "PASS"
    assert found["checkpoints"] == "NOT PROVEN"
    assert found["fold"] == "FAIL"  # verdicts without batches prove nothing
    assert keyed.get(f"/v1/claims/{claim.pk}/pack").content == body


def test_outsiders_get_nothing(
    contract: Any, actor: Any, bo: Any, key_of: Any, beta: Any, alpha: Any, client_of: Any, lan: Any
) -> None:
    report = issue_report(contract, "2026-10", actor, now=NOW)
    claim = Claim.objects.get()
    connection.set_schema_to_public()
    others = Client(HTTP_HOST="localhost", HTTP_AUTHORIZATION=f"Bearer {key_of(beta, 'read')}")
    part = Client(HTTP_HOST="localhost", HTTP_AUTHORIZATION=f"Bearer {key_of(alpha, 'read', cluster='x')}")
    wrong = Client(HTTP_HOST="localhost", HTTP_AUTHORIZATION="Bearer gp_wrong")
    for path in (f"contracts/{contract.pk}", f"reports/{report.pk}", f"claims/{claim.pk}", f"claims/{claim.pk}/pack"):
        assert others.get(f"/v1/{path}").status_code == 404, path
        assert part.get(f"/v1/{path}").status_code == 403, path
        assert wrong.get(f"/v1/{path}").status_code == 401, path
        assert client_of(bo).get(f"/v1/{path}?org=alpha").status_code == 404, path
    assert others.get("/v1/claims").json() == {"results": []}
    with tenant_context(alpha):
        assert Claim.objects.get().status == "draft"
