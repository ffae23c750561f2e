"""Pages of people: where `/` leads, the ways in, the password."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login, update_session_auth_hash
from django.contrib.auth import views as auth
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from kombu.exceptions import OperationalError

from orgs import attempts, invitations, links
from orgs.access import list_orgs
from orgs.addresses import client_address
from orgs.errors import InvitationOver, NotAllowed, TooManyAttempts
from orgs.forms import ForgotForm, LoginForm, PasswordForm
from orgs.forms_settings import AcceptForm
from orgs.models import User
from orgs.services import record, set_password, use_link
from orgs.tasks import mail_link

CAME_BY_LINK = "came_by_link"  # in the session: this person may set a password without the old one


def home(request: HttpRequest) -> HttpResponse:
    """`/`: the only or last org of this person, a choice of orgs, or the way in."""
    orgs = list_orgs(request.user)
    is_staff = getattr(request.user, "is_staff", False)
    last = request.session.get("last_org")
    if len(orgs) == 1 and not is_staff:
        return redirect("fleet", org_slug=orgs[0].slug)
    if any(org.slug == last for org in orgs):
        return redirect("fleet", org_slug=last)
    if is_staff and not request.user.memberships.exists():  # type: ignore[union-attr]
        return redirect("provider")
    if not orgs and not request.user.is_authenticated:
        return redirect("login")
    return render(request, "orgs/choose.html", {"orgs": orgs})


class LoginView(auth.LoginView):
    """The login page; 429 with Retry-After when too many passwords were tried."""

    template_name = "orgs/login.html"
    form_class = LoginForm

    def get_context_data(self, **more: Any) -> dict[str, Any]:
        """Whether a link can be mailed."""
        return super().get_context_data(has_mail=invitations.mail_is_configured(), **more)

    def form_valid(self, form: LoginForm) -> HttpResponse:  # type: ignore[override]
        """Enter, with an audit entry in the same transaction."""
        user: Any = form.get_user()
        with transaction.atomic():
            record("user.login", actor=user.email, target=user.email, address=client_address(self.request.META))
            return super().form_valid(form)

    def form_invalid(self, form: LoginForm) -> HttpResponse:  # type: ignore[override]
        """The page again, with what was wrong."""
        response = super().form_invalid(form)
        if form.wait_seconds:
            response.status_code = 429
            response["Retry-After"] = str(form.wait_seconds)
        return response


@never_cache
def forgot(request: HttpRequest) -> HttpResponse:
    """Ask for a one-time link by mail. One answer, as quick, whether or not the address is known."""
    if not invitations.mail_is_configured():
        raise Http404("This server sends no mail.")
    form = ForgotForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        email = form.cleaned_data["email"]
        try:
            attempts.begin(client_address(request.META), email)
        except TooManyAttempts as error:
            form.add_error(None, error.detail)
            response = render(request, "orgs/forgot.html", {"form": form}, status=429)
            response["Retry-After"] = str(error.wait_seconds)
            return response
        base = settings.GOODPUT_PUBLIC_URL or request.build_absolute_uri("/")
        try:
            mail_link.apply_async(args=[email, base], expires=3600, retry=False)
        except OperationalError:
            form.add_error(None, "Mail can't be sent right now. Try again in a minute.")
            return render(request, "orgs/forgot.html", {"form": form}, status=503)
        return render(request, "orgs/forgot.html", {"sent_to": email})
    return render(request, "orgs/forgot.html", {"form": form})


@never_cache
def one_time_link(request: HttpRequest, uid: str, token: str) -> HttpResponse:
    """A link that lets its owner in once. Opening it only asks; the button enters, so no preview can use it up."""
    if request.method != "POST":
        person = links.user_of(uid, token)
        if person is not None:
            return render(request, "orgs/link.html", {"person": person})
    else:
        user = use_link(uid, token, address=client_address(request.META))
        if user is not None:
            login(request, user, backend="django.contrib.auth.backends.ModelBackend")
            request.session[CAME_BY_LINK] = True
            return redirect("home" if user.has_usable_password() else "password_change")
    return render(request, "orgs/link_invalid.html", status=410)


@never_cache
def invitation(request: HttpRequest, token: str) -> HttpResponse:
    """A link from an invitation. Opening it only asks: to sign in, or to choose a password."""
    try:
        found = invitations.find(token)
    except InvitationOver:
        return render(request, "orgs/invitation_over.html", status=410)
    user = request.user if isinstance(request.user, User) else None
    form = AcceptForm(request.POST if request.method == "POST" and user is None else None)
    refused = ""
    if request.method == "POST" and (user is not None or form.is_valid()):
        try:
            password, name = (None, "") if user else (form.cleaned_data["password"], form.cleaned_data["name"])
            person, org = invitations.accept(
                token, user=user, password=password, name=name, address=client_address(request.META)
            )
        except ValidationError as error:
            form.add_error("password", error)
        except InvitationOver:
            return render(request, "orgs/invitation_over.html", status=410)
        except NotAllowed as error:
            refused = error.detail
        else:
            if user is None:
                login(request, person, backend="django.contrib.auth.backends.ModelBackend")
            messages.success(request, f"Welcome to {org.name}.")
            return redirect("fleet", org_slug=org.slug)
    context = {
        "invitation": found,
        "form": form,
        "refused": refused,
        "is_another": user is not None and user.email.lower() != found.email.lower(),
        "invited_to": found.org,
    }
    return render(request, "orgs/invitation.html", context, status=422 if request.method == "POST" else 200)


@never_cache
@login_required
def change_password(request: HttpRequest) -> HttpResponse:
    """Set the password of the person who is signed in."""
    user = request.user
    assert isinstance(user, User)
    needs_old = user.has_usable_password() and not request.session.get(CAME_BY_LINK)
    form = PasswordForm(user, request.POST or None, needs_old=needs_old)
    if request.method == "POST" and form.is_valid():
        new = form.cleaned_data["new_password1"]
        set_password(user, new, actor=user.email, address=client_address(request.META))
        update_session_auth_hash(request, user)
        request.session.pop(CAME_BY_LINK, None)
        messages.success(request, "Your password is set.")
        return redirect("home")
    return render(request, "orgs/password.html", {"form": form})
