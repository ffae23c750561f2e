"""Routes of contracts, reports and claims, under /o/<slug>/."""

from __future__ import annotations

from django.urls import path

from claims import views, views_anchors, views_claims, views_packs, views_reports

urlpatterns = [
    path("sla/", views.contracts, name="sla"),
    path("sla/catalog/", views.catalog, name="sla_catalog"),
    path("sla/new/", views.new_contract, name="sla_new"),
    path("sla/<int:contract_id>/", views.contract, name="sla_contract"),
    path("sla/<int:contract_id>/result.json", views.contract_json, name="sla_json"),
    path("sla/<int:contract_id>/counted.csv", views.contract_csv, name="sla_csv"),
    path("sla/<int:contract_id>/rows/", views.add_row, name="sla_row"),
    path("sla/<int:contract_id>/rows/<int:overlay_id>/withdraw/", views.withdraw_row, name="sla_row_withdraw"),
    path("sla/<int:contract_id>/invoice/", views.set_invoice, name="sla_invoice"),
    path("sla/<int:contract_id>/issue/", views.issue, name="sla_issue"),
    path("reports/", views_reports.reports, name="reports"),
    path("reports/late/", views_reports.late, name="reports_late"),
    path("reports/<int:report_id>/", views_reports.report, name="report"),
    path("reports/<int:report_id>/result.json", views_reports.report_json, name="report_json"),
    path("reports/<int:report_id>/counted.csv", views_reports.report_csv, name="report_csv"),
    path("reports/<int:report_id>/report.pdf", views_packs.report_pdf, name="report_pdf"),
    path("claims/", views_claims.claims, name="claims"),
    path("claims/claims.csv", views_claims.claims_csv, name="claims_csv"),
    path("claims/anchors/", views_anchors.anchors, name="anchors"),
    path("claims/calendar/", views_claims.new_feed, name="claims_calendar"),
    path("claims/calendar/end/", views_claims.end_feeds, name="claims_calendar_end"),
    path("claims/<int:claim_id>/", views_claims.claim, name="claim"),
    path("claims/<int:claim_id>/pack.zip", views_packs.pack_zip, name="claim_pack"),
    path("claims/<int:claim_id>/<slug:to>/", views_claims.step, name="claim_step"),
]
