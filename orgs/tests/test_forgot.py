"""A one-time link by mail for who forgot the password: to the person alone, and without telling who is known."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.core import mail

from orgs import attempts
from orgs.models import AuditEntry

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("lan")]


@pytest.fixture(autouse=True)
def _at_once() -> Any:
    """Tasks run where they are sent from."""
    from goodput_site.celery import app

    eager, app.conf.task_always_eager = app.conf.task_always_eager, True
    yield
    app.conf.task_always_eager = eager


def ask(client: Any, email: str, **more: Any) -> Any:
    """POST the form."""
    return client.post("/login/forgot/", {"email": email}, **more)


def test_the_link_comes_by_mail_and_lets_in_once(ada: Any, client_of: Any) -> None:
    assert ask(client_of(None), "ADA@alpha.example").status_code == 200
    assert mail.outbox[0].to == [ada.email]
    path = re.search(r"http://localhost(/login/link/\S+)", mail.outbox[0].body)[1]  # type: ignore[index]
    client = client_of(None)
    assert client.post(path)["Location"] == "/password/"
    assert client_of(None).post(path).status_code == 410
    assert AuditEntry.objects.filter(action="user.link", target=ada.email).exists()


def test_an_unknown_address_gets_the_same_answer_and_no_mail(ada: Any, client_of: Any) -> None:
    pages = [
        ask(client_of(None), email).content.decode().replace(email, "ADDRESS")
        for email in (ada.email, "nobody@x.example")
    ]
    plain = [re.sub(r'value="\w{64}"', "", page) for page in pages]
    assert plain[0] == plain[1]
    assert len(mail.outbox) == 1


def test_a_foreign_host_gets_no_link_made(ada: Any, client_of: Any) -> None:
    assert ask(client_of(None), ada.email, headers={"host": "evil.example"}).status_code == 400
    assert ask(client_of(None), ada.email, headers={"x-forwarded-host": "evil.example"}).status_code == 200
    assert "evil" not in mail.outbox[0].body


def test_asking_is_limited(ada: Any, client_of: Any) -> None:
    for _ in range(attempts.PER_SENDER):
        ask(client_of(None), "x@x.example")
    response = ask(client_of(None), ada.email)
    assert response.status_code == 429
    assert int(response["Retry-After"]) > 0
    assert mail.outbox == []


def test_without_mail_there_is_no_such_page(client_of: Any, settings: Any) -> None:
    assert "login/forgot" in client_of(None).get("/login/").content.decode()
    settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
    assert client_of(None).get("/login/forgot/").status_code == 404
    assert "login/forgot" not in client_of(None).get("/login/").content.decode()
