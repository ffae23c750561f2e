"""A link to a new password by mail: to the person alone, and without telling who is known."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.core import mail

from orgs import attempts
from orgs.models import AuditEntry

PASSWORD = "correct horse battery"
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
    return client.post("/password/forgot/", {"email": email}, **more)


def test_the_link_comes_by_mail_and_sets_a_password_once(ada: Any, client_of: Any) -> None:
    elsewhere = client_of(ada)
    assert ask(client_of(None), "ADA@alpha.example").status_code == 302
    assert mail.outbox[0].to == [ada.email]
    path = re.search(r"http://localhost(/password/new/\S+)", mail.outbox[0].body)[1]  # type: ignore[index]
    client = client_of(None)
    form = client.get(path)["Location"]  # the key goes into the session and out of the address
    assert "set-password" in form
    assert client.post(form, {"password1": "short", "password2": "short"}).status_code == 200
    done = client.post(form, {"password1": PASSWORD, "password2": PASSWORD})
    assert (done.status_code, done["Location"]) == (302, "/")
    assert "_auth_user_id" in client.session
    assert "no longer valid" in client_of(None).get(path).content.decode()
    assert elsewhere.get("/password/").status_code == 302  # other sessions have ended
    trail = set(AuditEntry.objects.filter(target=ada.email).values_list("action", flat=True))
    assert {"user.reset_link", "user.password", "user.login"} <= trail


def test_a_reset_password_does_not_replace_the_second_factor(pat: Any, client_of: Any) -> None:
    ask(client_of(None), pat.email)
    path = re.search(r"http://localhost(/password/new/\S+)", mail.outbox[0].body)[1]  # type: ignore[index]
    client = client_of(None)
    done = client.post(client.get(path)["Location"], {"password1": PASSWORD, "password2": PASSWORD})
    assert done["Location"] == "/account/second-factor/authenticate/"
    assert "_auth_user_id" not in client.session


def test_an_unknown_address_gets_the_same_answer_and_no_mail(ada: Any, client_of: Any) -> None:
    answers = [ask(client_of(None), email, follow=True) for email in (ada.email, "nobody@x.example")]
    plain = [re.sub(r'value="\w{64}"', "", answer.content.decode()) for answer in answers]
    assert plain[0] == plain[1]
    assert [answer.redirect_chain for answer in answers] == [[("/password/forgot/sent/", 302)]] * 2
    assert len(mail.outbox) == 1


def test_a_foreign_host_gets_no_link_made(ada: Any, client_of: Any) -> None:
    assert ask(client_of(None), ada.email, headers={"host": "evil.example"}).status_code == 400
    assert ask(client_of(None), ada.email, headers={"x-forwarded-host": "evil.example"}).status_code == 302
    assert "evil" not in mail.outbox[0].body


def test_asking_is_limited(ada: Any, client_of: Any) -> None:
    for _ in range(attempts.PER_SENDER):
        ask(client_of(None), "x@x.example")
    response = ask(client_of(None), ada.email)
    assert response.status_code == 429
    assert int(response["Retry-After"]) > 0
    assert mail.outbox == []


def test_without_mail_there_is_no_such_page(client_of: Any, settings: Any) -> None:
    assert "password/forgot" in client_of(None).get("/login/").content.decode()
    settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
    assert client_of(None).get("/password/forgot/").status_code == 404
    assert "password/forgot" not in client_of(None).get("/login/").content.decode()
