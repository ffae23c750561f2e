"""Routes of contracts, reports and claims under /v1/."""

from __future__ import annotations

from django.urls import path

from claims import api, api_anchors

urlpatterns = [
    path("log-key", api_anchors.LogKeyView.as_view(), name="api-log-key"),
    path("anchors", api_anchors.Anchors.as_view(), name="api-anchors"),
    path("contracts", api.Contracts.as_view(), name="api-contracts"),
    path("contracts/<int:contract_id>", api.OneContract.as_view(), name="api-contract"),
    path("contracts/<int:contract_id>/rows", api.Rows.as_view(), name="api-contract-rows"),
    path("contracts/<int:contract_id>/reports", api.ContractReports.as_view(), name="api-contract-reports"),
    path("reports", api.Reports.as_view(), name="api-reports"),
    path("reports/<int:report_id>", api.OneReport.as_view(), name="api-report"),
    path("reports/<int:report_id>/late", api.LateFacts.as_view(), name="api-report-late"),
    path("claims", api.Claims.as_view(), name="api-claims"),
    path("claims/<int:claim_id>", api.OneClaim.as_view(), name="api-claim"),
    path("claims/<int:claim_id>/steps", api.ClaimSteps.as_view(), name="api-claim-steps"),
    path("claims/<int:claim_id>/pack", api.Pack.as_view(), name="api-claim-pack"),
]
