"""Second factors: codes at the door, recovery codes once, and no provider staff without one where others can reach."""

from __future__ import annotations

import re
import time
from io import StringIO
from typing import Any

import pytest
from allauth.account.internal.flows import login as flow
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, hotp_value
from django.core.management import call_command

from conftest import SECRET_OF_PAT
from orgs import second_factor
from orgs.models import ApiKey, AuditEntry
from orgs.services import remove_member, set_password

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery"
DOOR = "/account/second-factor/authenticate/"


def code_of(secret: str, windows: int = 0) -> str:
    """What the app shows, so many half minutes from now."""
    return format_hotp_value(hotp_value(secret, int(time.time()) // 30 + windows))


def wrong_code(secret: str) -> str:
    """Six digits that are right neither now nor soon."""
    near = {code_of(secret, windows) for windows in range(-2, 4)}
    return next(
        code for code in ("111111", "222222", "333333", "444444", "555555", "666666", "777777") if code not in near
    )


def is_in(client: Any) -> bool:
    """Whether this client is signed in."""
    return "_auth_user_id" in client.session


def log_in(client: Any, email: str, **more: Any) -> Any:
    """Address and password."""
    return client.post("/login/", {"login": email, "password": PASSWORD}, **more)


@pytest.fixture
def guarded(ada: Any) -> Any:
    """Ada with a password and an authenticator app."""
    set_password(ada, PASSWORD, actor="test")
    TOTP.activate(ada, SECRET_OF_PAT)
    return ada


def age_of_login(client: Any, seconds: int) -> None:
    """Make this session's login so old."""
    session = client.session
    for one in session[flow.AUTHENTICATION_METHODS_SESSION_KEY]:
        one["at"] = time.time() - seconds
    session.save()


def test_an_app_is_set_up_and_asked_for_from_then_on(ada: Any, client_of: Any) -> None:
    set_password(ada, PASSWORD, actor="test")
    client, elsewhere = client_of(None), client_of(None)
    log_in(client, ada.email)
    log_in(elsewhere, ada.email)
    page = client.get("/account/second-factor/totp/activate/").content.decode()
    secret = re.search(r'id="totp-secret">(\w+)<', page)[1]  # type: ignore[index]
    assert "<path d=" in page
    wrong = client.post("/account/second-factor/totp/activate/", {"code": wrong_code(secret)})
    assert wrong.status_code == 200
    done = client.post("/account/second-factor/totp/activate/", {"code": code_of(secret)}, follow=True)
    codes = re.search(r'id="codes"[^>]*>([\d\s]+)<', done.content.decode())[1].split()  # type: ignore[index]
    assert len(codes) == 10
    assert not is_in(elsewhere)  # it was opened by the password alone
    kept = str(list(Authenticator.objects.values("data")))
    assert secret not in kept  # a copy of the database opens nothing

    client = client_of(None)
    assert log_in(client, ada.email)["Location"] == DOOR
    assert not is_in(client)
    assert client.post(DOOR, {"code": wrong_code(secret)}).status_code == 200
    assert not is_in(client)
    assert client.post(DOOR, {"code": codes[0]})["Location"] == "/"
    assert is_in(client)
    again = client_of(None)
    log_in(again, ada.email)
    assert again.post(DOOR, {"code": codes[0]}).status_code == 200  # works once
    assert again.post(DOOR, {"code": code_of(secret, 1)}).status_code == 302
    trail = list(AuditEntry.objects.filter(actor=ada.email).values_list("action", flat=True))
    assert {"user.second_factor_added", "user.second_factor_wrong", "user.login"} <= set(trail)
    assert AuditEntry.objects.filter(action="user.login").first().after["by"] == ["password", "totp"]


def test_codes_can_not_be_guessed_at_length(guarded: Any, client_of: Any) -> None:
    client = client_of(None)
    log_in(client, guarded.email)
    for _ in range(5):
        client.post(DOOR, {"code": wrong_code(SECRET_OF_PAT)})
    assert client.post(DOOR, {"code": code_of(SECRET_OF_PAT)}).status_code == 200
    assert not is_in(client)


def test_codes_can_not_be_guessed_without_the_cache_either(guarded: Any, client_of: Any, settings: Any) -> None:
    away = {**settings.CACHES["default"], "LOCATION": "redis://127.0.0.1:1/0"}
    settings.CACHES = {**settings.CACHES, "default": away}
    test_codes_can_not_be_guessed_at_length(guarded, client_of)


@pytest.mark.parametrize("way", ["link", "invitation"])
def test_a_link_does_not_replace_the_second_factor(way: str, guarded: Any, beta: Any, client_of: Any) -> None:
    from orgs import invitations
    from orgs.services import issue_link

    client = client_of(None)
    if way == "link":
        response = client.post(issue_link(guarded, "", actor="test"))
    else:
        invitation = invitations.invite(beta, guarded.email, "viewer", actor="test", base_url="")
        path = invitations.link_of(invitation)
        response = client.post(path, {"name": "Ada", "password": PASSWORD})
        assert response.status_code == 422  # an account is there: it must sign in
        response = log_in(client, guarded.email)
    assert response["Location"] == DOOR
    assert not is_in(client)


def test_another_server_secret_opens_nothing_and_breaks_nothing(guarded: Any, client_of: Any, settings: Any) -> None:
    settings.SECRET_KEY = "another secret of this server, long enough to sign with"
    client = client_of(None)
    log_in(client, guarded.email)
    assert client.post(DOOR, {"code": code_of(SECRET_OF_PAT)}).status_code == 200
    assert not is_in(client)


def test_a_lost_phone_is_taken_away_by_command(guarded: Any, client_of: Any) -> None:
    out = StringIO()
    call_command("reset_second_factor", "--email", guarded.email.upper(), stdout=out)
    assert "1 second factors" in out.getvalue()
    assert log_in(client_of(None), guarded.email)["Location"] == "/"
    assert AuditEntry.objects.filter(action="user.second_factor_reset", target=guarded.email).count() == 1


# Provider staff


@pytest.fixture
def bare(pat: Any) -> Any:
    """Provider staff without a second factor."""
    Authenticator.objects.filter(user=pat).delete()
    return pat


@pytest.mark.parametrize("path", ["/provider/", "/provider/orgs/new/", "/o/alpha/", "/admin/", "/admin/orgs/org/"])
def test_staff_of_a_reachable_server_set_one_up_first(
    path: str, bare: Any, alpha: Any, client_of: Any, lan: Any
) -> None:
    client = client_of(bare)
    response = client.get(path, follow=True)
    assert response.redirect_chain[-1][0] == "/account/second-factor/"
    assert second_factor.MISSING in response.content.decode().replace("&#x27;", "'")
    TOTP.activate(bare, SECRET_OF_PAT)
    assert client.get(path).status_code == 200


def test_staff_without_one_read_nothing_by_the_api_either(bare: Any, alpha: Any, client_of: Any, lan: Any) -> None:
    response = client_of(bare).get("/v1/fleet?org=alpha")
    assert (response.status_code, response.json()["code"]) == (403, "second_factor")


def test_recovery_codes_alone_are_no_second_factor(bare: Any) -> None:
    from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes

    RecoveryCodes.activate(bare)
    assert not second_factor.has_second_factor(bare)


def test_in_local_mode_staff_need_none(bare: Any, alpha: Any, client_of: Any) -> None:
    assert client_of(bare).get("/provider/").status_code == 200
    assert client_of(bare).get("/o/alpha/").status_code == 200


def test_a_member_needs_none(ada: Any, client_of: Any, lan: Any) -> None:
    assert client_of(ada).get("/o/alpha/").status_code == 200


# Sensitive steps


def test_a_key_is_made_only_by_who_proves_again_who_they_are(guarded: Any, alpha: Any, client_of: Any) -> None:
    client = client_of(guarded)
    age_of_login(client, 3600)
    form = {"name": "rack 7", "scope": "ingest", "cluster": "", "days": "365"}
    asked = client.post("/o/alpha/settings/keys/", form)
    assert asked["Location"] == "/account/confirm/?next=%2Fo%2Falpha%2Fsettings%2Fkeys%2F"
    assert not ApiKey.objects.filter(org=alpha).exists()
    assert client.get("/o/alpha/settings/keys/").status_code == 200  # looking asks nothing
    again = {"password": "wrong", "next": "/o/alpha/settings/keys/"}
    assert client.post("/account/confirm/", again).status_code == 200
    made = client.post("/account/confirm/", {**again, "password": PASSWORD})
    assert "gp_" in made.content.decode()  # what was sent is done now
    assert made["Cache-Control"] == "private, no-store"
    assert ApiKey.objects.get(org=alpha).name == "rack 7"
    assert client.post("/o/alpha/settings/keys/", {**form, "name": "rack 8"}).status_code == 200  # good for a while


def test_what_waited_for_the_password_is_checked_again(guarded: Any, alpha: Any, bo: Any, client_of: Any) -> None:
    from orgs.services import set_role

    set_role(bo, alpha, "owner", actor="test")
    client = client_of(guarded)
    age_of_login(client, 3600)
    client.post("/o/alpha/settings/keys/", {"name": "rack 7", "scope": "ingest", "cluster": "", "days": "365"})
    remove_member(guarded, alpha, actor="test")
    answer = client.post("/account/confirm/", {"password": PASSWORD, "next": "/o/alpha/settings/keys/"})
    assert answer.status_code == 404
    assert not ApiKey.objects.filter(org=alpha).exists()


def test_an_org_is_suspended_only_after_the_second_factor(pat: Any, alpha: Any, client_of: Any) -> None:
    client = client_of(pat)
    age_of_login(client, 3600)
    path = f"/provider/orgs/{alpha.pk}/status/"
    asked = client.post(path, {"status": "suspended"})
    assert asked["Location"].startswith("/account/second-factor/reauthenticate/?next=")
    alpha.refresh_from_db()
    assert alpha.status == "active"
    client.post("/account/second-factor/reauthenticate/", {"code": code_of(SECRET_OF_PAT), "next": path})
    alpha.refresh_from_db()
    assert alpha.status == "suspended"


# Sessions


def test_sessions_are_listed_and_ended_everywhere_else(ada: Any, client_of: Any) -> None:
    set_password(ada, PASSWORD, actor="test")
    here, there = client_of(None), client_of(None)
    phone = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605 Version/18.0 Safari/604.1"
    log_in(here, ada.email, HTTP_USER_AGENT="Mozilla/5.0 (X11; Linux) Firefox/130.0")
    log_in(there, ada.email, HTTP_USER_AGENT=phone, REMOTE_ADDR="192.0.2.9")
    text = here.get("/account/sessions/").content.decode()
    assert "Firefox on Linux" in text
    assert "Safari on iPhone" in text
    assert "192.0.2.9" in text
    here.post("/account/sessions/")
    assert there.get("/password/").status_code == 302
    assert here.get("/password/").status_code == 200
    assert "Safari on iPhone" not in here.get("/account/sessions/").content.decode()


def test_pages_of_the_account_are_ones_own(guarded: Any, bo: Any, client_of: Any) -> None:
    for path in ("/account/second-factor/", "/account/sessions/", "/account/second-factor/webauthn/"):
        assert client_of(None).get(path)["Location"] == f"/login/?next={path}"
    text = client_of(bo).get("/account/second-factor/").content.decode()
    assert guarded.email not in text
    key = Authenticator.objects.create(user=guarded, type="webauthn", data={})
    for step in ("remove", "edit"):
        assert client_of(bo).post(f"/account/second-factor/webauthn/keys/{key.pk}/{step}/").status_code == 404
