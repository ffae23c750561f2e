"""Routes of the provider's console."""

from __future__ import annotations

from django.urls import path

from fleet.summary import views, views_jobs, views_rules

urlpatterns = [
    path("", views.overview, name="provider"),
    path("orgs.csv", views.orgs_csv, name="provider_orgs_csv"),
    path("orgs.json", views.orgs_json, name="provider_orgs_json"),
    path("orgs/new/", views.new_org, name="provider_new"),
    path("orgs/<int:org_id>/", views.org_page, name="provider_org"),
    path("orgs/<int:org_id>/status/", views.set_status, name="provider_status"),
    path("orgs/<int:org_id>/export/", views.start_export, name="provider_export"),
    path("orgs/<int:org_id>/delete/", views.delete, name="provider_delete"),
    path("orgs/<int:org_id>/view/", views.begin_view, name="provider_view"),
    path("orgs/<int:org_id>/retry/", views_jobs.retry, name="provider_retry"),
    path("view/end/", views.end_view, name="provider_view_end"),
    path("exports/<slug:file_name>/", views.download, name="provider_download"),
    path("jobs/", views_jobs.jobs, name="provider_jobs"),
    path("jobs/tasks/<int:failed_id>/retry/", views_jobs.retry_task, name="provider_task_retry"),
    path("rules/", views_rules.rules, name="provider_rules"),
    path("rules.csv", views_rules.rules_csv, name="provider_rules_csv"),
    path("audit/", views.audit, name="provider_audit"),
    path("audit.csv", views.audit_csv, name="provider_audit_csv"),
]
