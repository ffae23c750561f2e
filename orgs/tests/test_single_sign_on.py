"""Single sign-on with an identity provider that answers over real HTTP: members and invited people, nobody else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
import requests
from allauth.mfa.totp.internal.auth import TOTP
from django.test import Client

from conftest import SECRET_OF_PAT
from orgs import invitations
from orgs.models import AuditEntry, User
from orgs.services import set_password
from orgs.tests import identity_provider

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("lan")]


@pytest.fixture
def provider(settings: Any) -> Iterator[identity_provider.Provider]:
    """The identity provider, and our settings as the environment would make them."""
    with identity_provider.running() as found:
        app = {
            **{"provider_id": "sso", "name": "Alpha ID", "client_id": identity_provider.CLIENT},
            **{"secret": identity_provider.SECRET, "settings": {"server_url": found.url, "verified_email": []}},
        }
        settings.GOODPUT_OIDC_URL, settings.GOODPUT_OIDC_NAME = found.url, "Alpha ID"
        settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"OAUTH_PKCE_ENABLED": True, "APPS": [app]}}
        yield found


def sign_in(client: Client, next_path: str = "") -> Any:
    """Go through the identity provider; the answer to its way back."""
    page = client.get("/login/" + (f"?next={next_path}" if next_path else "")).content.decode()
    action = unescape(re.search(r'action="(/account/oidc/sso/login/[^"]*)"', page)[1])  # type: ignore[index]
    page = client.post(action).content.decode()
    on = unescape(re.search(r'content="0;url=([^"]+)"', page)[1])  # type: ignore[index]
    back = requests.get(on, allow_redirects=False, timeout=10).headers["Location"]
    assert back.startswith("http://localhost/account/oidc/sso/login/callback/?")
    return client.get(back.removeprefix("http://localhost"))


def is_in(client: Any) -> bool:
    """Whether this client is signed in."""
    return "_auth_user_id" in client.session


def test_a_member_comes_in_by_their_verified_address(provider: Any, ada: Any, client_of: Any) -> None:
    client = client_of(None)
    assert "Sign in with Alpha ID" in client.get("/login/").content.decode()
    assert sign_in(client, "/o/alpha/incidents/")["Location"] == "/o/alpha/incidents/"
    assert client.session["_auth_user_id"] == str(ada.pk)
    assert provider.asked[0]["code_verifier"]
    assert AuditEntry.objects.get(action="user.login").after == {"by": ["socialaccount"]}
    again = client_of(None)
    provider.claims["email"] = "ada@moved.example"  # she is known by her identity from now on
    assert sign_in(again).status_code == 302
    assert again.session["_auth_user_id"] == str(ada.pk)


def test_an_address_that_is_not_verified_is_nobodys(provider: Any, ada: Any, client_of: Any) -> None:
    provider.claims["email_verified"] = False
    client = client_of(None)
    sign_in(client)
    assert not is_in(client)
    assert User.objects.filter(email__iexact=ada.email).count() == 1


def test_domains_can_be_trusted_whose_provider_says_nothing_of_verification(
    provider: Any, ada: Any, client_of: Any, settings: Any
) -> None:
    del provider.claims["email_verified"]
    app = settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"][0]
    app["settings"]["verified_email"] = ["alpha.example"]
    client = client_of(None)
    sign_in(client)
    assert is_in(client)


def test_a_stranger_stays_out(provider: Any, ada: Any, client_of: Any) -> None:
    provider.claims.update(sub="somebody", email="somebody@elsewhere.example")
    client = client_of(None)
    answer = sign_in(client)
    assert "You are not known here" in answer.content.decode()
    assert not is_in(client)
    assert not User.objects.filter(email="somebody@elsewhere.example").exists()
    assert client.post("/account/sso/signup/", {"email": "somebody@elsewhere.example"}).status_code in (200, 302)
    assert not User.objects.filter(email="somebody@elsewhere.example").exists()


def test_an_invited_person_comes_in_and_joins(provider: Any, alpha: Any, ada: Any, client_of: Any) -> None:
    provider.claims.update(sub="cy", email="cy@alpha.example", name="Cy")
    invitation = invitations.invite(alpha, "Cy@alpha.example", "viewer", actor=ada.email, base_url="http://localhost")
    path = invitations.link_of(invitation).removeprefix("http://localhost")
    client = client_of(None)
    assert sign_in(client, path)["Location"] == path
    assert client.post(path)["Location"] == "/o/alpha/"
    person = User.objects.get(email="cy@alpha.example")
    assert person.name == "Cy"
    assert not person.has_usable_password()
    assert person.memberships.get().role == "viewer"


def test_a_second_factor_of_ours_is_asked_for_all_the_same(provider: Any, ada: Any, client_of: Any) -> None:
    TOTP.activate(ada, SECRET_OF_PAT)
    client = client_of(None)
    assert sign_in(client)["Location"] == "/account/second-factor/authenticate/"
    assert not is_in(client)


def test_a_code_of_another_begin_is_refused(provider: Any, ada: Any, client_of: Any) -> None:
    """Somebody who sends their own way back to a victim does not sign the victim in."""
    thief, victim = client_of(None), client_of(None)
    page = thief.post("/account/oidc/sso/login/").content.decode()
    on = unescape(re.search(r'content="0;url=([^"]+)"', page)[1])  # type: ignore[index]
    back = requests.get(on, allow_redirects=False, timeout=10).headers["Location"].removeprefix("http://localhost")
    assert "That did not work" in victim.get(back).content.decode()
    assert not is_in(victim)


def test_a_provider_that_is_away_is_told_of(provider: Any, client_of: Any, settings: Any) -> None:
    app = settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"][0]
    app["settings"]["server_url"] = "http://127.0.0.1:1"
    answer = client_of(None).post("/account/oidc/sso/login/")
    assert answer.status_code in (401, 503)
    assert "could not be reached" in answer.content.decode()


def test_without_the_setting_nothing_is_offered(client_of: Any) -> None:
    assert "Sign in with" not in client_of(None).get("/login/").content.decode().replace("Sign in with a passkey", "")
    assert client_of(None).post("/account/oidc/sso/login/").status_code == 404


def test_an_identity_is_connected_and_disconnected_by_its_owner(provider: Any, bo: Any, client_of: Any) -> None:
    client = client_of(bo)
    provider.claims.update(sub="bo-elsewhere", email="bo@private.example")
    assert "Not connected" in client.get("/account/sso/").content.decode()
    page = client.post("/account/oidc/sso/login/?process=connect").content.decode()
    on = unescape(re.search(r'content="0;url=([^"]+)"', page)[1])  # type: ignore[index]
    back = requests.get(on, allow_redirects=False, timeout=10).headers["Location"].removeprefix("http://localhost")
    assert client.get(back)["Location"] == "/account/sso/"
    assert bo.socialaccount_set.get().uid == "bo-elsewhere"
    assert AuditEntry.objects.get(action="user.sso_connected").after == {"identity": "bo-elsewhere"}
    later = client_of(None)
    sign_in(later)
    assert later.session["_auth_user_id"] == str(bo.pk)
    account = bo.socialaccount_set.get()
    assert "has no password" in client.post("/account/sso/", {"account": account.pk}).content.decode()
    set_password(bo, "correct horse battery", actor="test")
    client = client_of(bo)
    client.post("/account/sso/", {"account": account.pk})
    assert AuditEntry.objects.filter(action="user.sso_disconnected", actor=bo.email).count() == 1
    assert not bo.socialaccount_set.exists()
