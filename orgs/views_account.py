"""A person's own address: the form, and the page that the mailed link leads to."""

from __future__ import annotations

from typing import Any

from allauth.core import ratelimit
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from orgs import new_address
from orgs.addresses import client_address
from orgs.errors import LinkOver, OrgInvalid
from orgs.forms import NewAddressForm
from orgs.invitations import mail_is_configured
from orgs.middleware import sensitive
from orgs.models import User
from orgs.views_settings import base_url

SENT = "If nobody has that address yet, a link is on its way to it. Open it in a browser where you are signed in."


def person_of(request: HttpRequest) -> User:
    """Who is signed in."""
    assert isinstance(request.user, User)
    return request.user


@never_cache
@sensitive
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def address(request: HttpRequest) -> HttpResponse:
    """Ask for a link to another address; whoever did not sign in lately proves again who they are."""
    form = NewAddressForm(request.POST or None)
    context: dict[str, Any] = {"form": form, "has_mail": mail_is_configured()}
    if request.method == "POST" and context["has_mail"] and form.is_valid():
        refused: HttpResponse | None = ratelimit.consume_or_429(request, action="manage_email", user=request.user)
        if refused is not None:
            return refused
        who = client_address(request.META)
        try:
            new_address.ask(person_of(request), form.cleaned_data["email"], base_url(request), address=who)
            messages.success(request, SENT)
            return redirect("new_address")
        except OrgInvalid as error:
            form.add_error("email", error.detail)
    status = 422 if request.method == "POST" else 200
    return render(request, "account/address.html", context, status=status)


@never_cache
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def confirm_address(request: HttpRequest, token: str) -> HttpResponse:
    """The page of the mailed link; only the button changes anything, so that no preview of a mail does."""
    user = person_of(request)
    try:
        if request.method == "POST":
            new_address.confirm(user, token, address=client_address(request.META))
            messages.success(request, f"Your address is {user.email} now.")
            return redirect("new_address")
        return render(request, "account/address_confirm.html", {"new": new_address.asked_for(user, token)})
    except LinkOver as error:
        return render(request, "account/address_over.html", {"why": error.detail}, status=410)
