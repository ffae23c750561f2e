"""One-time links: in once, and only for whom they were made."""

from __future__ import annotations

import logging
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import Client
from django.utils import timezone

from orgs.logs import HideLinks
from orgs.models import AuditEntry, Membership, User
from orgs.services import create_user, issue_link, set_password, use_link

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


@pytest.fixture
def path(ada: Any) -> str:
    """Where Ada's link leads."""
    return urlsplit(issue_link(ada, "http://localhost:8080", actor="test")).path


def is_in(client: Any) -> bool:
    """Whether this client is signed in."""
    return "_auth_user_id" in client.session


def test_opening_the_link_uses_nothing_up_and_the_button_lets_in_once(path: str, ada: Any, client_of: Any) -> None:
    client = client_of(None)
    for _ in range(3):  # previews of chats and mail scanners
        response = client.get(path)
        assert response.status_code == 200
        assert "no-store" in response["Cache-Control"]
    assert not is_in(client)

    response = client.post(path)
    assert response.status_code == 302
    assert response["Location"] == "/password/"  # she has none yet
    assert is_in(client)
    assert AuditEntry.objects.filter(action="user.login_by_link", actor=ada.email).count() == 1

    other = client_of(None)
    assert other.get(path).status_code == 410
    assert other.post(path).status_code == 410
    assert not is_in(other)


def test_the_button_works_in_a_browser(path: str) -> None:
    """A page that forbids the referrer sends `Origin: null` with its form, which Django's CSRF check refuses.

    The site's own policy, same-origin, keeps the link from other sites and lets the form through.
    """
    client = Client(enforce_csrf_checks=True, HTTP_HOST="localhost")
    page = client.get(path)
    assert page["Referrer-Policy"] == "same-origin"
    text = page.content.decode()
    assert "no-referrer" not in text
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', text)
    assert token is not None
    form = {"csrfmiddlewaretoken": token[1]}
    assert client.post(path, form, headers={"origin": "null"}).status_code == 403
    assert client.post(path, form, headers={"origin": "http://localhost"}).status_code == 302


def test_whoever_has_a_password_goes_on_to_their_org(ada: Any, client_of: Any) -> None:
    set_password(ada, PASSWORD, actor="test")
    client = client_of(None)
    assert client.post(urlsplit(issue_link(ada, "http://x", actor="test")).path)["Location"] == "/"


def test_a_link_is_dead_after_three_days(path: str, client_of: Any, monkeypatch: Any) -> None:
    from orgs import links

    now = links._tokens._now()
    monkeypatch.setattr(links._tokens, "_now", lambda: now + timedelta(days=3, minutes=1))
    assert client_of(None).post(path).status_code == 410


@pytest.mark.parametrize("end", ["password", "login", "inactive", "e-mail"])
def test_a_link_is_dead_after(end: str, path: str, ada: Any, client_of: Any) -> None:
    match end:
        case "password":
            set_password(ada, PASSWORD, actor="test")
        case "login":
            client_of(ada)
        case "inactive":
            User.objects.filter(pk=ada.pk).update(is_active=False)
        case "e-mail":
            User.objects.filter(pk=ada.pk).update(email="ada@elsewhere.example")
    client = client_of(None)
    assert client.get(path).status_code == 410
    assert client.post(path).status_code == 410
    assert not is_in(client)


def test_two_links_within_one_second_end_with_the_first_use(ada: Any, client_of: Any) -> None:
    """Django's own token cuts the last login to seconds."""
    now = timezone.now().replace(microsecond=100_000)
    User.objects.filter(pk=ada.pk).update(last_login=now)
    ada.refresh_from_db()
    path = urlsplit(issue_link(ada, "http://x", actor="test")).path
    User.objects.filter(pk=ada.pk).update(last_login=now.replace(microsecond=200_000))
    assert client_of(None).post(path).status_code == 410


def test_a_changed_link_opens_nothing(path: str, bo: Any, client_of: Any) -> None:
    uid, token = path.strip("/").split("/")[2:]
    other = urlsplit(issue_link(bo, "http://x", actor="test")).path.strip("/").split("/")[2]
    made_up = ["x", "AAAA", "_-_-", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5", "%00", "gICA", "9" * 5000]
    for changed in [
        (other, token),
        (uid, token[:-1]),
        (uid, token + "0"),
        (uid, "x"),
        *((odd, token) for odd in made_up),
    ]:
        response = client_of(None).post("/login/link/{}/{}/".format(*changed))
        assert response.status_code in (404, 410), changed


def test_a_log_does_not_hold_the_link(path: str, settings: Any) -> None:
    """Whoever reads the log of a refused request must not be let in by it."""
    record = logging.LogRecord("django.request", logging.WARNING, "", 0, "Forbidden (%s): %s", ("CSRF", path), None)
    assert HideLinks().filter(record)
    assert path.split("/")[4] not in record.getMessage()
    assert record.getMessage().startswith("Forbidden (CSRF): /login/link/")
    assert all("hide_links" in handler["filters"] for handler in settings.LOGGING["handlers"].values())


@pytest.mark.django_db(transaction=True)
def test_two_clicks_at_once_let_in_one(ada: Any) -> None:
    uid, token = issue_link(ada, "http://x", actor="test").strip("/").split("/")[-2:]

    def click(_: int) -> bool:
        try:
            return use_link(uid, token) is not None
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(click, range(4))) == [False, False, False, True]


def test_the_command_makes_the_person_once_and_prints_a_link(alpha: Any, client_of: Any, settings: Any) -> None:
    for _ in range(2):
        out = StringIO()
        call_command("create_user", "--email=Cy@Example.COM", "--owner-of=alpha", stdout=out)
        link = out.getvalue().removeprefix("link: ").strip()
        assert link.startswith(f"http://localhost:{settings.GOODPUT_PORT}/login/link/")
    assert User.objects.filter(email__iexact="cy@example.com").count() == 1
    person = User.objects.get(email__iexact="cy@example.com")
    assert not person.has_usable_password()
    assert not person.is_staff
    assert Membership.objects.get(user=person, org=alpha).role == "owner"
    client = client_of(None)
    client.post(urlsplit(link).path)
    assert is_in(client)


def test_the_command_makes_provider_staff_and_takes_the_address_of_the_server() -> None:
    out = StringIO()
    call_command("create_user", "--email=pat@p.example", "--provider", "--base-url=http://192.0.2.1:8080/", stdout=out)
    assert out.getvalue().startswith("link: http://192.0.2.1:8080/login/link/")
    assert User.objects.get(email="pat@p.example").is_staff


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [(["--email=nonsense"], "not an e-mail address"), (["--email=a@b.example", "--owner-of=nobody"], "no org nobody")],
)
def test_the_command_says_what_is_wrong(arguments: list[str], sentence: str) -> None:
    with pytest.raises(CommandError, match=sentence):
        call_command("create_user", *arguments, stdout=StringIO())
    assert not User.objects.exists()


def test_one_address_is_one_person_whatever_its_case() -> None:
    first = create_user("Ada@Example.com", actor="test")
    assert create_user(" ada@example.COM ", actor="test").pk == first.pk
