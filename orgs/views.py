"""Pages of people: where `/` leads, the ways in, the password."""

from __future__ import annotations

import logging
from typing import Any

from allauth.account.internal.flows.login import perform_login, record_authentication
from allauth.account.models import Login
from allauth.account.views import LoginView as AllauthLogin
from allauth.account.views import PasswordChangeView, PasswordResetView, PasswordSetView
from allauth.socialaccount.providers.openid_connect import views as oidc
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.generic.edit import FormView
from kombu.exceptions import OperationalError
from requests.exceptions import RequestException

from orgs import attempts, invitations, links
from orgs.access import list_orgs
from orgs.addresses import client_address
from orgs.errors import InvitationOver, NotAllowed, TooManyAttempts
from orgs.forms import LoginForm
from orgs.forms_settings import AcceptForm
from orgs.models import User
from orgs.services import use_link
from orgs.tasks import mail_reset

log = logging.getLogger(__name__)
CAME_BY_LINK = "came_by_link"  # in the session: who may set a password without the old one


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


class LoginView(AllauthLogin):
    """The login page; 429 with Retry-After when too many passwords were tried."""

    def get_context_data(self, **more: Any) -> dict[str, Any]:
        """Whether a password can be reset by mail."""
        return super().get_context_data(has_mail=invitations.mail_is_configured(), **more)

    def form_invalid(self, form: LoginForm) -> HttpResponse:
        """The page again, with what was wrong."""
        response: HttpResponse = super().form_invalid(form)
        for error in form.non_field_errors().as_data():
            if error.code == TooManyAttempts.code:
                response.status_code = 429
                response["Retry-After"] = str((error.params or {})["seconds"])
        return response


class ForgotView(PasswordResetView):
    """Ask for a link to a new password. One answer, as quick, whether or not the address is known."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """404 where no mail can be sent."""
        if not invitations.mail_is_configured():
            raise Http404("This server sends no mail.")
        return super().dispatch(request, *args, **kwargs)

    def form_valid(self, form: Any) -> HttpResponse:
        """Count the request, hand it to a worker: the link is made there and never queued."""
        request, email = self.request, form.cleaned_data["email"]
        try:
            attempts.begin(client_address(request.META), email)
            base = settings.GOODPUT_PUBLIC_URL or request.build_absolute_uri("/")
            mail_reset.apply_async(args=[email, base], expires=3600, retry=False)
        except TooManyAttempts as error:
            form.add_error(None, error.detail)
            response: HttpResponse = self.render_to_response(self.get_context_data(form=form), status=429)
            response["Retry-After"] = str(error.wait_seconds)
            return response
        except OperationalError:
            form.add_error(None, "Mail can't be sent right now. Try again in a minute.")
            return self.render_to_response(self.get_context_data(form=form), status=503)
        return redirect(self.get_success_url())


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
            request.session[CAME_BY_LINK] = user.pk
            way_on = reverse("home" if user.has_usable_password() else "password_change")
            record_authentication(request, user, method="link")
            return perform_login(request, Login(user=user, redirect_url=way_on))  # asks for a second factor
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
            messages.success(request, f"Welcome to {org.name}.")
            way_on = reverse("fleet", kwargs={"org_slug": org.slug})
            if user is None:
                record_authentication(request, person, method="password")
                return perform_login(request, Login(user=person, redirect_url=way_on))
            return redirect(way_on)
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
def password(request: HttpRequest) -> HttpResponseBase:
    """Set a password; the old one is asked for unless there is none, or the person came by a one-time link."""
    user = request.user
    assert isinstance(user, User)
    came_by_link = request.session.get(CAME_BY_LINK) == user.pk
    if came_by_link or not user.has_usable_password():
        return FirstPasswordView.as_view()(request)
    return PasswordChangeView.as_view()(request)


class FirstPasswordView(PasswordSetView):
    """A new password without the old one, for whom `password` lets through to here."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Past the library's own check, which knows of no one-time links."""
        return FormView.dispatch(self, request, *args, **kwargs)

    def form_valid(self, form: Any) -> HttpResponse:
        """Set it; the link is used up for this too."""
        self.request.session.pop(CAME_BY_LINK, None)
        return super().form_valid(form)


@never_cache
def single_sign_on(request: HttpRequest, provider_id: str) -> HttpResponseBase:
    """On to the identity provider, by a page of ours: the content policy lets no form lead to another site."""
    try:
        response: HttpResponseBase = oidc.login(request, provider_id=provider_id)
    except RequestException as error:
        log.warning("the identity provider does not answer: %s", error)
        return render(request, "socialaccount/authentication_error.html", status=503)
    if isinstance(response, HttpResponseRedirect) and request.method == "POST":
        where = {"redirect_to": response.url, "provider": settings.GOODPUT_OIDC_NAME}
        return render(request, "socialaccount/login_redirect.html", where)
    return response
