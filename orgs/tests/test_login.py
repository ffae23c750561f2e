"""Login, logout, passwords: who gets in, how often may be guessed, what a browser keeps."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone

from orgs import attempts
from orgs.models import AuditEntry, LoginAttempt, User
from orgs.services import create_user, issue_link, set_password

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"


@pytest.fixture
def owner(ada: Any) -> Any:
    """Ada, with a password."""
    set_password(ada, PASSWORD, actor="test")
    return ada


def try_login(client: Any, email: str, password: str, **more: Any) -> Any:
    """POST the login form."""
    return client.post("/login/", {"login": email, "password": password}, **more)


def is_in(client: Any) -> bool:
    """Whether this client is signed in."""
    return "_auth_user_id" in client.session


def test_login_and_logout(owner: Any, client_of: Any, lan: Any) -> None:
    client = client_of(None)
    assert client.get("/")["Location"] == "/login/"
    response = try_login(client, " ADA@alpha.EXAMPLE", PASSWORD, REMOTE_ADDR="192.0.2.7")
    assert response.status_code == 302
    assert response["Location"] == "/"
    assert client.get("/")["Location"] == "/o/alpha/"
    entry = AuditEntry.objects.get(action="user.login")
    assert (entry.actor, entry.address) == (owner.email, "192.0.2.7")

    assert client.get("/logout/").status_code == 405  # a link or an image must not sign anybody out
    assert is_in(client)
    assert client.post("/logout/").status_code == 302
    assert not is_in(client)


@pytest.mark.parametrize(
    ("email", "password"),
    [
        ("ada@alpha.example", "wrong password"),
        ("nobody@alpha.example", PASSWORD),
        ("ada@alpha.example", ""),
        ("", PASSWORD),
        ("ada@alpha.example\x00", PASSWORD),
        ("x" * 10_000, PASSWORD),
        ("' or 1=1 --", PASSWORD),
    ],
)
def test_a_wrong_pair_is_refused_without_saying_which(email: str, password: str, owner: Any, client_of: Any) -> None:
    client = client_of(None)
    response = try_login(client, email, password)
    assert response.status_code == 200
    assert not is_in(client)


def test_the_answer_is_the_same_for_wrong_unknown_and_inactive(owner: Any, client_of: Any) -> None:
    create_user("gone@alpha.example", actor="test", password=PASSWORD)
    User.objects.filter(email="gone@alpha.example").update(is_active=False)
    pairs = [("ada@alpha.example", "wrong"), ("nobody@alpha.example", "wrong"), ("gone@alpha.example", PASSWORD)]
    told = {str(try_login(client_of(None), *pair).context["form"].non_field_errors()) for pair in pairs}
    assert len(told) == 1


def test_somebody_without_a_password_cannot_log_in_with_none(ada: Any, client_of: Any) -> None:
    client = client_of(None)
    for password in ("", "!", ada.password):
        try_login(client, ada.email, password)
        assert not is_in(client)


def test_next_leads_nowhere_else(owner: Any, client_of: Any) -> None:
    for target in ("https://evil.example/", "//evil.example/", "javascript:alert(1)", "/\\evil.example"):
        response = client_of(None).post("/login/", {"login": owner.email, "password": PASSWORD, "next": target})
        assert response["Location"] == "/"
    response = client_of(None).post(
        "/login/?next=/o/alpha/", {"login": owner.email, "password": PASSWORD, "next": "/o/alpha/"}
    )
    assert response["Location"] == "/o/alpha/"


def test_login_wants_the_csrf_token(owner: Any) -> None:
    from django.test import Client

    client = Client(enforce_csrf_checks=True, HTTP_HOST="localhost")
    assert try_login(client, owner.email, PASSWORD).status_code == 403


def test_the_session_is_a_new_one_after_login(owner: Any, client_of: Any) -> None:
    client = client_of(None)
    session = client.session
    session["planted"] = "by somebody"
    session.save()
    client.cookies["goodput_session"] = session.session_key
    try_login(client, owner.email, PASSWORD)
    assert client.cookies["goodput_session"].value != session.session_key


@pytest.mark.parametrize("is_public", [False, True])
def test_cookies_are_first_party_and_out_of_reach(is_public: bool, owner: Any, client_of: Any, settings: Any) -> None:
    settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = is_public
    client = client_of(None)
    response = client.get("/login/")
    csrf = response.cookies["goodput_csrf"]
    session = try_login(client, owner.email, PASSWORD).cookies["goodput_session"]
    for cookie in (csrf, session):
        assert cookie["httponly"] is True
        assert cookie["samesite"] == "Lax"
        assert cookie["path"] == "/"
        assert cookie["domain"] == ""
        assert bool(cookie["secure"]) is is_public
    assert session["max-age"] == 30 * 24 * 3600


# Guessing


def test_one_sender_is_stopped_and_told_how_long(owner: Any, client_of: Any) -> None:
    client = client_of(None)
    for number in range(attempts.PER_SENDER):
        assert try_login(client, f"someone{number}@alpha.example", "wrong").status_code == 200
    response = try_login(client, owner.email, PASSWORD)
    assert response.status_code == 429
    assert 0 < int(response["Retry-After"]) <= 15 * 60
    assert "Too many tries" in str(response.context["form"].errors)
    assert not is_in(client)
    assert try_login(client_of(None), owner.email, PASSWORD, REMOTE_ADDR="192.0.2.9").status_code == 302
    assert LoginAttempt.objects.count() == attempts.PER_SENDER  # refused tries leave nothing behind


def test_one_account_is_guarded_against_many_senders(owner: Any, client_of: Any) -> None:
    for number in range(attempts.PER_ACCOUNT):
        try_login(client_of(None), owner.email.upper(), "wrong", REMOTE_ADDR=f"198.51.100.{number}")
    assert try_login(client_of(None), owner.email, PASSWORD, REMOTE_ADDR="192.0.2.9").status_code == 429
    create_user("cy@alpha.example", actor="test", password=PASSWORD)
    assert try_login(client_of(None), "cy@alpha.example", PASSWORD, REMOTE_ADDR="192.0.2.9").status_code == 302
    assert client_of(None).post(issue_link(owner, "", actor="test")).status_code == 302  # a link still lets in


def test_an_ipv6_network_is_one_sender(owner: Any, client_of: Any) -> None:
    for number in range(attempts.PER_SENDER):
        try_login(client_of(None), f"a{number}@x.example", "wrong", REMOTE_ADDR=f"2001:db8:1:2:{number}::{number}")
    assert try_login(client_of(None), owner.email, PASSWORD, REMOTE_ADDR="2001:db8:1:2:ffff::1").status_code == 429
    assert try_login(client_of(None), owner.email, PASSWORD, REMOTE_ADDR="2001:db8:1:3::1").status_code == 302


def test_the_limit_passes(owner: Any, client_of: Any) -> None:
    old = timezone.now() - attempts.WINDOW - timedelta(seconds=1)
    LoginAttempt.objects.bulk_create([LoginAttempt(at=old, sender="127.0.0.1", account="x") for _ in range(100)])
    assert try_login(client_of(None), owner.email, PASSWORD).status_code == 302
    assert not LoginAttempt.objects.exists()  # the old ones are swept, the successful one is forgotten


def test_success_forgives_only_the_own_typing_errors(owner: Any, client_of: Any) -> None:
    """Whoever owns one account can't use it to go on guessing at others."""
    for email in (owner.email, "bo@beta.example", "bo@beta.example"):
        try_login(client_of(None), email, "wrong")
    assert try_login(client_of(None), owner.email, PASSWORD).status_code == 302
    assert LoginAttempt.objects.count() == 2


def test_what_was_typed_is_not_kept(client_of: Any) -> None:
    try_login(client_of(None), "my-password-in-the-wrong-field", "x")
    assert "my-password" not in str([vars(row) for row in LoginAttempt.objects.all()])


def test_login_needs_no_cache(owner: Any, client_of: Any, settings: Any) -> None:
    settings.CACHES = {
        **settings.CACHES,
        "default": {**settings.CACHES["default"], "LOCATION": "redis://127.0.0.1:1/0"},
    }
    client = client_of(None)
    assert try_login(client, owner.email, "wrong").status_code == 200
    assert try_login(client, owner.email, PASSWORD).status_code == 302


@pytest.mark.parametrize(
    ("proxies", "forwarded", "sender"),
    [
        (0, "203.0.113.5", "127.0.0.1"),
        (1, "203.0.113.5", "203.0.113.5"),
        (1, "198.51.100.1, 203.0.113.5", "203.0.113.5"),  # the sender's own words stand on the left
        (2, "198.51.100.1, 203.0.113.5, 10.0.0.1", "203.0.113.5"),
        (2, "203.0.113.5", "127.0.0.1"),
        (1, "nonsense", "127.0.0.1"),
        (1, "", "127.0.0.1"),
    ],
)
def test_only_trusted_proxies_name_the_sender(
    proxies: int, forwarded: str, sender: str, client_of: Any, settings: Any
) -> None:
    settings.GOODPUT_PROXIES = proxies
    try_login(client_of(None), "a@x.example", "wrong", HTTP_X_FORWARDED_FOR=forwarded)
    assert LoginAttempt.objects.get().sender == sender


# Passwords


def test_a_password_is_set_after_a_link_without_an_old_one(ada: Any, client_of: Any) -> None:
    client, elsewhere = client_of(None), client_of(ada)
    ada.refresh_from_db()
    client.post(issue_link(ada, "", actor="test"))
    assert client.get("/password/").status_code == 200
    response = client.post("/password/", {"password1": PASSWORD, "password2": PASSWORD})
    assert response.status_code == 302
    assert is_in(client)
    assert client.get("/password/").status_code == 200
    assert elsewhere.get("/password/").status_code == 302  # other sessions of hers have ended
    assert AuditEntry.objects.filter(action="user.password", actor=ada.email).count() == 1
    assert try_login(client_of(None), ada.email, PASSWORD).status_code == 302


def test_whoever_sits_down_at_an_open_browser_needs_the_old_password(owner: Any, client_of: Any) -> None:
    client = client_of(None)
    try_login(client, owner.email, PASSWORD)
    new = {"password1": "another long one", "password2": "another long one"}
    assert client.post("/password/", new).status_code == 200
    assert client.post("/password/", {**new, "oldpassword": "wrong"}).status_code == 200
    owner.refresh_from_db()
    assert owner.check_password(PASSWORD)
    assert client.post("/password/", {**new, "oldpassword": PASSWORD}).status_code == 302


@pytest.mark.parametrize("weak", ["short", "password1234", "ada@alpha.example", "123"])
def test_a_weak_password_is_refused(weak: str, ada: Any, client_of: Any) -> None:
    client = client_of(ada)
    assert client.post("/password/", {"password1": weak, "password2": weak}).status_code == 200
    ada.refresh_from_db()
    assert not ada.has_usable_password()
    with pytest.raises(ValidationError):
        set_password(ada, weak, actor="test")


def test_the_password_page_is_for_people_who_are_in(client_of: Any) -> None:
    assert client_of(None).get("/password/")["Location"] == "/login/?next=/password/"


# Staff


def test_staff_use_the_one_login_page(pat: Any, client_of: Any) -> None:
    assert client_of(None).get("/admin/")["Location"] == "/admin/login/?next=/admin/"
    assert client_of(None).get("/admin/login/?next=/admin/")["Location"] == "/login/?next=/admin/"
    assert (
        client_of(None)
        .post("/admin/login/", {"username": pat.email, "password": "x"})["Location"]
        .startswith("/login/")
    )
    assert client_of(pat).get("/admin/").status_code == 200
    assert client_of(pat).get("/admin/password_change/")["Location"] == "/password/"


def test_a_member_is_no_staff(owner: Any, client_of: Any) -> None:
    client = client_of(owner)
    assert client.get("/admin/login/").status_code == 404
    assert client.get("/admin/", follow=True).status_code == 404


def test_staff_read_and_change_nothing_there(pat: Any, alpha: Any, client_of: Any) -> None:
    """Also not what libraries bring along: second factors, identity providers, groups."""
    from django.contrib import admin

    client = client_of(pat)
    known = [model._meta for model in admin.site._registry]
    assert {"user", "org", "membership", "apikey", "auditentry", "authenticator"} <= {meta.model_name for meta in known}
    assert {"socialapp", "group", "emailaddress"}.isdisjoint({meta.model_name for meta in known})
    for meta in known:
        there = f"/admin/{meta.app_label}/{meta.model_name}/"
        assert client.get(there).status_code == 200, there
        assert client.get(f"{there}add/").status_code == 403, there
    assert client.post(f"/admin/orgs/org/{alpha.pk}/delete/", {"post": "yes"}).status_code == 403
    assert "secret" not in client.get("/admin/orgs/apikey/").content.decode()
    factor = pat.authenticator_set.get()
    page = client.get(f"/admin/mfa/authenticator/{factor.pk}/change/").content.decode()
    assert factor.data["secret"] not in page
