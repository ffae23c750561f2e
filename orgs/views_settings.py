"""Settings of an org: members and invitations, keys, the audit trail. Parse, call a service, answer."""

from __future__ import annotations

import shlex
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from orgs import invitations, mails
from orgs.access import Access, is_open_to_all
from orgs.addresses import client_address
from orgs.errors import InvitationOver, OrgInvalid
from orgs.forms_settings import InviteForm, KeyForm, RoleForm, RollForm, roles_for
from orgs.middleware import honours_clusters, sensitive
from orgs.models import ApiKey, Invitation, Membership, Org
from orgs.rolling import roll_key
from orgs.selectors import (
    AUDIT_HEAD,
    AuditFilter,
    action_groups,
    audit_page,
    audit_rows,
    cluster_names,
    list_invitations,
    list_keys,
    list_members,
)
from orgs.services import issue_key, remove_member, revoke_key, set_role
from orgs.sheets import csv_response


def access_of(request: HttpRequest) -> Access:
    """What OrgMiddleware found."""
    access: Access = request.access  # type: ignore[attr-defined]
    return access


def may_write(request: HttpRequest) -> Access:
    """The access of somebody who may change settings. Raises PermissionDenied → 403."""
    access = access_of(request)
    if not access.may_write:
        raise PermissionDenied("Only an owner or admin may change this.")
    return access


def who(request: HttpRequest) -> dict[str, Any]:
    """Who acts and from where, as services take it."""
    actor = request.user.email if request.user.is_authenticated else access_of(request).role
    return {"actor": actor, "address": client_address(request.META)}


def base_url(request: HttpRequest) -> str:
    """The address for links that leave this page: the configured one, else the one that this visitor uses."""
    return settings.GOODPUT_PUBLIC_URL or request.build_absolute_uri("/").rstrip("/")


@honours_clusters
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """`settings/`: to the first section."""
    return redirect("members", org_slug=access_of(request).org.slug)


# Members and invitations


@honours_clusters
@require_safe
def members(request: HttpRequest) -> HttpResponse:
    """Who belongs to this org, and who is invited."""
    return _members(request, InviteForm(access_of(request)))


def _members(request: HttpRequest, form: InviteForm, status: int = 200) -> HttpResponse:
    access = access_of(request)
    now = timezone.now()
    shows_links = access.may_write and not invitations.mail_is_configured()
    rows = list_invitations(access.org) if access.may_write else []
    listed = [
        (one, one.state(now), invitations.link_of(one) if shows_links and one.state(now) == "open" else "")
        for one in rows
    ]
    people = list_members(access.org)
    context = {
        "section": "members",
        "form": form,
        "members": people,
        "roles": roles_for(access, told=False),
        "invitations": listed,
        "has_mail": invitations.mail_is_configured(),
        "clusters": cluster_names(access.org) if access.may_write else [],
        "is_open": is_open_to_all(access.org.slug),
        "me": next((one for one in people if one.user_id == getattr(request.user, "pk", None)), None),
    }
    return render(request, "orgs/settings/members.html", context, status=status)


@sensitive
@require_POST
def invite(request: HttpRequest) -> HttpResponse:
    """Invite somebody. The answer is the same whether or not the address is known on this server."""
    access = may_write(request)
    form = InviteForm(access, request.POST)
    if form.is_valid():
        data = form.cleaned_data
        try:
            invitation = invitations.invite(
                access.org,
                data["email"],
                data["role"],
                clusters=data["clusters"],
                base_url=base_url(request),
                **who(request),
            )
        except OrgInvalid as error:
            form.add_error(None, error.detail)
        else:
            _send(request, invitation)
            return redirect("members", org_slug=access.org.slug)
    return _members(request, form, status=422)


def _send(request: HttpRequest, invitation: Invitation) -> None:
    """Mail an invitation where mail is configured, and say what happened."""
    if not invitations.mail_is_configured():
        messages.success(request, f"{invitation.email} is invited. Hand over the link below; it works once.")
    elif mails.send_invitation(invitation):
        messages.success(request, f"{invitation.email} is invited; the mail is on its way.")
    else:
        messages.error(request, f"{invitation.email} is invited, but the mail could not be sent. It is tried again.")


def _invitation(access: Access, invitation_id: int) -> Invitation:
    found = Invitation.objects.select_related("org").filter(org=access.org, pk=invitation_id).first()
    if found is None:
        raise Http404("There is no such invitation.")
    if found.role == Membership.Role.OWNER and not access.may_own:
        raise PermissionDenied("Only an owner may do this with an owner's invitation.")
    return found


@require_POST
def resend_invitation(request: HttpRequest, invitation_id: int) -> HttpResponse:
    """A new link, a new week, a new mail."""
    access = may_write(request)
    try:
        invitation = invitations.renew(_invitation(access, invitation_id), base_url=base_url(request), **who(request))
        _send(request, invitation)
    except InvitationOver as error:
        messages.error(request, error.detail)
    return redirect("members", org_slug=access.org.slug)


@require_POST
def revoke_invitation(request: HttpRequest, invitation_id: int) -> HttpResponse:
    """Withdraw an invitation."""
    access = may_write(request)
    invitation = _invitation(access, invitation_id)
    invitations.revoke(invitation, **who(request))
    messages.success(request, f"The invitation of {invitation.email} is withdrawn.")
    return redirect("members", org_slug=access.org.slug)


def _member(access: Access, membership_id: int) -> Membership:
    found = Membership.objects.select_related("user", "org").filter(org=access.org, pk=membership_id).first()
    if found is None:
        raise Http404("There is no such member.")
    return found


@sensitive
@require_POST
def change_role(request: HttpRequest, membership_id: int) -> HttpResponse:
    """Give a member another role or other clusters."""
    access = may_write(request)
    member = _member(access, membership_id)
    if member.role == Membership.Role.OWNER and not access.may_own:
        raise PermissionDenied("Only an owner may change an owner.")
    form = RoleForm(access, request.POST)
    if form.is_valid():
        data = form.cleaned_data
        try:
            set_role(member.user, access.org, data["role"], clusters=data["clusters"], **who(request))
            messages.success(request, f"{member.user.email} is {data['role']} now, from the next click on.")
        except OrgInvalid as error:
            messages.error(request, error.detail)
    else:
        messages.error(request, " ".join(str(text) for texts in form.errors.values() for text in texts))
    return redirect("members", org_slug=access.org.slug)


@honours_clusters
@require_POST
def remove(request: HttpRequest, membership_id: int) -> HttpResponse:
    """Take a member out; everybody may leave."""
    access = access_of(request)
    member = _member(access, membership_id)
    is_leaving = member.user_id == getattr(request.user, "pk", None) and not access.is_viewing
    if not is_leaving:
        may_write(request)
        if member.role == Membership.Role.OWNER and not access.may_own:
            raise PermissionDenied("Only an owner may remove an owner.")
    try:
        remove_member(member.user, access.org, **who(request))
    except OrgInvalid as error:
        messages.error(request, error.detail)
        return redirect("members", org_slug=access.org.slug)
    messages.success(request, f"You left {access.org.slug}." if is_leaving else f"{member.user.email} is removed.")
    return redirect("home") if is_leaving else redirect("members", org_slug=access.org.slug)


# Keys


def _keys(request: HttpRequest, form: KeyForm, status: int = 200, **more: Any) -> HttpResponse:
    access = access_of(request)
    now = timezone.now()
    context = {
        "section": "keys",
        "form": form,
        "roll_form": RollForm(),
        "keys": [(key, key.state(now)) for key in list_keys(access.org)],
        "clusters": cluster_names(access.org) if access.may_write else [],
        **more,
    }
    return render(request, "orgs/settings/keys.html", context, status=status)


def _fresh(request: HttpRequest, key: ApiKey, token: str) -> HttpResponse:
    """The page with a new secret, shown this once. No redirect: the secret is kept nowhere, not even in a session."""
    context = {"section": "keys", "key": key, "token": token, **install_lines(request, key, token)}
    response = render(request, "orgs/settings/key_made.html", context)
    response["Cache-Control"] = "private, no-store"
    return response


def install_lines(request: HttpRequest, key: ApiKey, token: str) -> dict[str, str]:
    """Commands for whoever holds a new key, with the address that this visitor uses; quoted for a shell."""
    endpoint = request.build_absolute_uri("/v1/batches")
    cluster = shlex.quote(key.cluster or "my-cluster")
    return {
        "save_line": f"printf '%s\\n' {shlex.quote(token)} | sudo install -D -m 600 /dev/stdin /etc/goodput/token",
        "run_line": f"./goodput agent run --endpoint {endpoint} --cluster {cluster} --token-file /etc/goodput/token",
        "read_line": f"curl -H 'Authorization: Bearer {token}' {request.build_absolute_uri('/v1/fleet')}",
    }


@sensitive
@require_http_methods(["GET", "HEAD", "POST"])
def keys(request: HttpRequest) -> HttpResponse:
    """The org's keys; POST makes one and shows its secret once."""
    access = access_of(request)
    if request.method != "POST":
        return _keys(request, KeyForm(initial={"cluster": request.GET.get("cluster", "")[:256]}))
    may_write(request)
    form = KeyForm(request.POST)
    if form.is_valid():
        data, lives = form.cleaned_data, form.lives()
        try:
            key, token = issue_key(
                access.org,
                data["name"],
                [data["scope"]],
                cluster=data["cluster"],
                expires_at=timezone.now() + lives if lives else None,
                **who(request),
            )
        except OrgInvalid as error:
            form.add_error(None, error.detail)
        else:
            return _fresh(request, key, token)
    return _keys(request, form, status=422)


def _key(org: Org, key_id: int) -> ApiKey:
    found = ApiKey.objects.select_related("org").filter(org=org, pk=key_id).first()
    if found is None:
        raise Http404("There is no such key.")
    return found


@sensitive
@require_POST
def roll(request: HttpRequest, key_id: int) -> HttpResponse:
    """A successor, its secret shown once; the old key works on for the overlap."""
    access = may_write(request)
    form = RollForm(request.POST)
    old = _key(access.org, key_id)
    if not form.is_valid():
        messages.error(request, "Choose when the old key stops.")
        return redirect("keys", org_slug=access.org.slug)
    try:
        key, token = roll_key(old, form.span(), **who(request))
    except OrgInvalid as error:
        messages.error(request, error.detail)
        return redirect("keys", org_slug=access.org.slug)
    return _fresh(request, key, token)


@require_POST
def revoke(request: HttpRequest, key_id: int) -> HttpResponse:
    """End a key, everywhere within half a minute."""
    access = may_write(request)
    key = _key(access.org, key_id)
    revoke_key(key, **who(request))
    messages.success(request, f"{key.prefix}… is revoked. It stops everywhere within 30 seconds.")
    return redirect("keys", org_slug=access.org.slug)


# The audit trail


def _may_audit(request: HttpRequest) -> Access:
    access = access_of(request)
    if not access.may_audit:
        raise PermissionDenied("Only owners, admins and finance read the audit trail.")
    return access


@require_safe
def audit(request: HttpRequest) -> HttpResponse:
    """Who did what, newest first."""
    access = _may_audit(request)
    wanted = AuditFilter.of(request.GET)
    entries, following = audit_page(access.org, wanted)
    context = {
        "section": "audit",
        "trail": entries,
        "following": following,
        "filter": wanted,
        "groups": action_groups(),
    }
    return render(request, "orgs/settings/audit.html", context)


@require_safe
def audit_csv(request: HttpRequest) -> HttpResponse:
    """What the page shows, all pages of it."""
    access = _may_audit(request)
    rows = audit_rows(access.org, AuditFilter.of(request.GET))
    return csv_response(f"goodput-{access.org.slug}-audit.csv", AUDIT_HEAD, rows)
