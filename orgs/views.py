"""Pages of people: where `/` leads, the one-time link, the password."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth import login, update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import SetPasswordForm
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache

from orgs import links
from orgs.access import list_orgs
from orgs.services import record


def home(request: HttpRequest) -> HttpResponse:
    """`/`: the only or last org of this person, a choice of orgs, or the way in."""
    orgs = list_orgs(request.user)
    last = request.session.get("last_org")
    if len(orgs) == 1:
        return redirect("fleet", org_slug=orgs[0].slug)
    if any(org.slug == last for org in orgs):
        return redirect("fleet", org_slug=last)
    if not orgs and not request.user.is_authenticated:
        return redirect("login")
    return render(request, "orgs/choose.html", {"orgs": orgs})


@never_cache
def one_time_link(request: HttpRequest, uid: str, token: str) -> HttpResponse:
    """A link that lets its owner in once. Opening it only asks; the button enters, so no preview can use it up."""
    user = links.user_of(uid, token)
    if user is None:
        return render(request, "orgs/link_invalid.html", status=410)
    if request.method != "POST":
        return render(request, "orgs/link.html", {"person": user})
    login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    record("user.login_by_link", actor=user.email, target=user.email, address=request.META.get("REMOTE_ADDR"))
    if not user.has_usable_password():
        return redirect("password_change")
    return redirect("home")


@login_required
def change_password(request: HttpRequest) -> HttpResponse:
    """Set the password of the person who is signed in."""
    assert request.user.is_authenticated
    form = SetPasswordForm(request.user, request.POST or None)
    if request.method == "POST" and form.is_valid():
        form.save()
        update_session_auth_hash(request, form.user)
        record("user.password", actor=request.user.email, target=request.user.email)
        messages.success(request, "Your password is set.")
        return redirect("home")
    return render(request, "orgs/password.html", {"form": form})
