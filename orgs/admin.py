"""Staff's door: people, orgs, memberships, keys, and the audit trail to read.

The admin's own login and password pages lead to ours, so that limits and audit hold for staff too.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from allauth.account.models import EmailAddress, EmailConfirmation
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from allauth.usersessions.models import UserSession
from django.contrib import admin
from django.contrib.auth.models import Group
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse

from orgs import second_factor
from orgs.middleware import ask_for_second_factor
from orgs.models import ApiKey, AuditEntry, Membership, Org, OrgTombstone, User


def login(request: HttpRequest, extra_context: Any = None) -> HttpResponseBase:
    """`/admin/login/`: to the login page; staff go on to the index, anybody else who is signed in gets 404."""
    if not request.user.is_authenticated:
        return redirect_to_login(request.GET.get("next") or reverse("admin:index"))
    if request.user.is_staff and second_factor.is_missing(request.user):
        return ask_for_second_factor(request)
    if not admin.site.has_permission(request):
        raise Http404
    return redirect("admin:index")


def password_change(request: HttpRequest, extra_context: Any = None) -> HttpResponse:
    """`/admin/password_change/`: to our page."""
    return redirect("password_change")


def has_permission(request: HttpRequest) -> bool:
    """Provider staff, with a second factor where one is wanted."""
    user = request.user
    return bool(user.is_active and user.is_staff) and not second_factor.is_missing(user)


admin.site.has_permission = has_permission  # type: ignore[method-assign]
admin.site.login = login  # type: ignore[method-assign,assignment]
admin.site.password_change = password_change  # type: ignore[method-assign,assignment]


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


@admin.register(OrgTombstone)
class OrgTombstoneAdmin(ReadOnly):
    """Orgs that were."""

    list_display = ("slug", "name", "org_id", "deleted_at")


@admin.register(AuditEntry)
class AuditAdmin(ReadOnly):
    """The audit trail."""

    list_display = ("at", "actor", "action", "target", "org_slug", "address")
    list_filter = ("action",)
    search_fields = ("actor", "target", "org_slug")


# What django-allauth and Django register themselves could be changed there: secrets of factors, identity providers,
# groups. It is shown without secrets and changed by the pages of its owner, or not at all.
for _name in ("allauth.account", "allauth.mfa", "allauth.socialaccount", "allauth.usersessions", "django.contrib.auth"):
    import_module(f"{_name}.admin")  # registers, so that it can be taken back
for _model in (
    EmailAddress,
    EmailConfirmation,
    SocialApp,
    SocialAccount,
    SocialToken,
    Group,
    Authenticator,
    UserSession,
):
    if admin.site.is_registered(_model):
        admin.site.unregister(_model)


@admin.register(Authenticator)
class AuthenticatorAdmin(ReadOnly):
    """Second factors, without what is secret of them."""

    list_display = ("user", "type", "created_at", "last_used_at")
    exclude = ("data",)


@admin.register(UserSession)
class UserSessionAdmin(ReadOnly):
    """Who is signed in where, without the key of the session."""

    list_display = ("user", "ip", "user_agent", "created_at")
    exclude = ("session_key", "data")


@admin.register(SocialAccount)
class SocialAccountAdmin(ReadOnly):
    """Identities of single sign-on."""

    list_display = ("user", "provider", "uid", "last_login")
    exclude = ("extra_data",)
