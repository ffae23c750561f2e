"""Another e-mail address of a person: proved by a link that is mailed to it, told to the old one.

The link opens nothing by itself: only the person who asked, signed in, can use it, once and within a day. An address
that somebody has gets the same answer and no mail.
"""

from __future__ import annotations

from allauth.account.adapter import get_adapter
from allauth.account.models import EmailAddress
from django.core import signing
from django.db import IntegrityError, transaction
from django.urls import reverse
from django_tenants.utils import schema_context

from orgs.errors import LinkOver, OrgInvalid
from orgs.models import User
from orgs.services import record

SALT = "goodput.orgs.new-address"
VALID_SECONDS = 24 * 3600
OVER = "This link is over: it was used, a day has passed, or your address has changed since. Ask for a new one."


def ask(user: User, email: str, base_url: str, *, address: str | None = None) -> None:
    """Mail a link to `email`, unless somebody has it. Raises OrgInvalid for the person's own address."""
    email = User.objects.normalize_email(email.strip())
    if email.lower() == user.email.lower():
        raise OrgInvalid("This is your address already.", "same_address")
    with schema_context("public"), transaction.atomic():
        record("user.address_asked", actor=user.email, target=user.email, after={"email": email}, address=address)
        if User.objects.filter(email__iexact=email).exists():
            return
        token = signing.dumps({"user": user.pk, "from": user.email, "to": email}, salt=SALT)
        link = base_url.rstrip("/") + reverse("new_address_link", kwargs={"token": token})
        get_adapter().send_notification_mail("orgs/mail/new_address", user, {"link": link}, email)


def asked_for(user: User, token: str) -> str:
    """The address that this person's link is for. Raises LinkOver, for somebody else's link as well."""
    try:
        asked = signing.loads(token, salt=SALT, max_age=VALID_SECONDS)
    except signing.BadSignature as error:
        raise LinkOver(OVER) from error
    if asked["user"] != user.pk or asked["from"] != user.email:
        raise LinkOver(OVER)
    return str(asked["to"])


def confirm(user: User, token: str, *, address: str | None = None) -> None:
    """Give the person the address of the link, and tell the old one. Raises LinkOver."""
    try:
        with schema_context("public"), transaction.atomic():
            person = User.objects.select_for_update().get(pk=user.pk)
            new, old = asked_for(person, token), person.email
            if User.objects.filter(email__iexact=new).exclude(pk=person.pk).exists():
                raise LinkOver(OVER)
            person.email = new
            person.save(update_fields=["email"])
            EmailAddress.objects.filter(user=person).delete()  # what single sign-on vouched for is the old one's
            record("user.address", actor=old, target=new, before={"email": old}, after={"email": new}, address=address)
            get_adapter().send_notification_mail("orgs/mail/old_address", person, {"new": new}, old)
    except IntegrityError as error:  # somebody got it in this moment
        raise LinkOver(OVER) from error
    user.email = new
