"""Routes of an org's settings."""

from __future__ import annotations

from django.urls import path

from orgs import views_settings as views

urlpatterns = [
    path("", views.index, name="settings"),
    path("members/", views.members, name="members"),
    path("members/<int:membership_id>/role/", views.change_role, name="member_role"),
    path("members/<int:membership_id>/remove/", views.remove, name="member_remove"),
    path("invitations/", views.invite, name="invite"),
    path("invitations/<int:invitation_id>/resend/", views.resend_invitation, name="invitation_resend"),
    path("invitations/<int:invitation_id>/revoke/", views.revoke_invitation, name="invitation_revoke"),
    path("keys/", views.keys, name="keys"),
    path("keys/<int:key_id>/roll/", views.roll, name="key_roll"),
    path("keys/<int:key_id>/revoke/", views.revoke, name="key_revoke"),
    path("audit/", views.audit, name="audit"),
    path("audit.csv", views.audit_csv, name="audit_csv"),
]
