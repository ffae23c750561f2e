"""Staff's door: people, orgs, memberships, keys, and the audit trail to read."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from orgs.models import ApiKey, AuditEntry, Membership, Org, User


class ReadOnly(admin.ModelAdmin):  # type: ignore[type-arg]
    """Rows that are made and changed by services only."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never."""
        return False


@admin.register(User)
class UserAdmin(ReadOnly):
    """People."""

    list_display = ("email", "name", "is_staff", "is_active", "last_login")
    search_fields = ("email", "name")
    exclude = ("password",)


@admin.register(Org)
class OrgAdmin(ReadOnly):
    """Organisations."""

    list_display = ("slug", "name", "status", "schema_name", "created_at")
    search_fields = ("slug", "name")


@admin.register(Membership)
class MembershipAdmin(ReadOnly):
    """Who is what in which org."""

    list_display = ("user", "org", "role")


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnly):
    """Keys; their secrets are not kept."""

    list_display = ("prefix", "name", "org", "scopes", "cluster", "expires_at", "revoked_at", "last_used_at")
    exclude = ("secret_hash",)


@admin.register(AuditEntry)
class AuditAdmin(ReadOnly):
    """The audit trail."""

    list_display = ("at", "actor", "action", "target", "org_slug", "address")
    list_filter = ("action",)
    search_fields = ("actor", "target", "org_slug")
