"""Another e-mail address: proved by a link that was mailed to it, by the person who asked; told to the old one."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from django.core import mail
from django.utils import timezone

from orgs import new_address
from orgs.models import AuditEntry, User
from orgs.tests.test_forgot import _at_once
from orgs.tests.test_second_factor import age_of_login

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("lan", "_at_once")]
__all__ = ["_at_once"]
NEW = "ada@new.example"


def link_in(message: Any) -> str:
    """The path of the link in a mail."""
    found = re.search(r"http://localhost(/account/address/\S+)", message.body)
    assert found
    return found[1]


def ask(client: Any, email: str = NEW) -> Any:
    """POST the form."""
    return client.post("/account/address/", {"email": email})


def test_an_address_changes_when_its_own_link_is_confirmed(ada: User, client_of: Any) -> None:
    client, old = client_of(ada), ada.email
    assert ask(client).status_code == 302
    (sent,) = mail.outbox
    assert sent.to == [NEW]
    page = client.get(link_in(sent)).content.decode()
    assert NEW in page
    ada.refresh_from_db()
    assert ada.email == old  # looking changes nothing
    assert client.post(link_in(sent)).status_code == 302
    ada.refresh_from_db()
    assert ada.email == NEW
    assert mail.outbox[1].to == [old]
    assert NEW in mail.outbox[1].body
    assert client.get("/o/alpha/").status_code == 200  # who they are and where they belong has not changed
    entry = AuditEntry.objects.get(action="user.address")
    assert (entry.actor, entry.before, entry.after) == (old, {"email": old}, {"email": NEW})
    assert client.post(link_in(sent)).status_code == 410  # once


def test_an_address_that_somebody_has_gets_the_same_answer_and_no_mail(ada: User, bo: User, client_of: Any) -> None:
    client = client_of(ada)
    taken = ask(client, bo.email.upper())
    free = ask(client)
    assert (taken.status_code, taken["Location"]) == (free.status_code, free["Location"])
    assert [one.to for one in mail.outbox] == [[NEW]]
    assert ask(client, ada.email).status_code == 422
    assert ask(client, "no address").status_code == 422


def test_only_who_asked_can_use_a_link_and_only_for_a_day(ada: User, bo: User, client_of: Any) -> None:
    ask(client_of(ada))
    path = link_in(mail.outbox[0])
    assert client_of(bo).post(path).status_code == 410
    assert client_of(None).post(path).status_code == 302  # to the login
    assert client_of(ada).post(path.replace("/address/", "/address/x")).status_code == 410
    User.objects.filter(pk=bo.pk).update(email=NEW)
    assert client_of(ada).post(path).status_code == 410  # taken meanwhile
    User.objects.filter(pk=bo.pk).update(email="bo@beta.example")
    before, new_address.VALID_SECONDS = new_address.VALID_SECONDS, -1
    try:
        assert client_of(ada).get(path).status_code == 410
    finally:
        new_address.VALID_SECONDS = before
    assert not AuditEntry.objects.filter(action="user.address").exists()


def test_whoever_signed_in_long_ago_proves_again_who_they_are(ada: User, client_of: Any) -> None:
    client = client_of(None)
    ada.set_password("correct horse battery")
    ada.save()
    client.post("/login/", {"login": ada.email, "password": "correct horse battery"})
    age_of_login(client, 1860)
    answer = ask(client)
    assert answer.status_code == 302
    assert answer["Location"].startswith("/account/confirm/")
    assert mail.outbox == []


def test_sessions_say_when_they_were_last_used(ada: User, client_of: Any) -> None:
    ada.set_password("correct horse battery")
    ada.save()
    here, there = client_of(None), client_of(None)
    for client in (here, there):
        client.post("/login/", {"login": ada.email, "password": "correct horse battery"})
    UserSession.objects.update(last_seen_at=timezone.now() - timedelta(days=2))
    there.get("/o/alpha/")  # was used when it began, so nothing is written
    assert not UserSession.objects.filter(last_seen_at__gt=timezone.now() - timedelta(days=1)).exists()
    session = there.session
    session["seen"] -= 301
    session.save()
    there.get("/o/alpha/", REMOTE_ADDR="198.51.100.7")
    (used,) = UserSession.objects.filter(last_seen_at__gt=timezone.now() - timedelta(minutes=1))
    assert (used.session_key, used.ip) == (there.session.session_key, "198.51.100.7")
    page = here.get("/account/sessions/").content.decode()
    assert "Last active" in page
    assert page.count("198.51.100.7") == 1
