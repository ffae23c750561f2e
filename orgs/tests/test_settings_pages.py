"""Settings of an org through its pages: members, invitations, keys, audit trail."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.utils import timezone

from orgs import keys, mails
from orgs.models import ApiKey, AuditEntry, Invitation, Membership, User
from orgs.services import create_user, issue_key, set_password, set_role

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("lan")]
MEMBERS, KEYS, AUDIT = (f"/o/alpha/settings/{part}/" for part in ("members", "keys", "audit"))
PASSWORD = "correct horse battery"


@pytest.fixture
def person(alpha: Any) -> Any:
    """A function: somebody with this role in alpha."""

    def make(role: str, **more: Any) -> User:
        user = create_user(f"{role}@alpha.example", actor="test")
        set_role(user, alpha, role, actor="test", **more)
        return user

    return make


def invite(client: Any, email: str = "new@x.example", role: str = "viewer", clusters: str = "") -> Any:
    """POST the form of an invitation."""
    return client.post("/o/alpha/settings/invitations/", {"email": email, "role": role, "clusters": clusters})


def link_in(text: str) -> str:
    """The path of the one link."""
    return re.search(r"http://localhost(/invitation/\S+)", text)[1]  # type: ignore[index]


def said(response: Any) -> str:
    """The messages on the page that a POST leads to."""
    return response.client.get(MEMBERS).content.decode()


# Roles


@pytest.mark.parametrize("role", ["finance", "viewer"])
def test_finance_and_viewer_change_nothing(role: str, person: Any, alpha: Any, ada: Any, client_of: Any) -> None:
    client = client_of(person(role))
    key, _ = issue_key(alpha, "k", ["ingest"], actor="test")
    owner = Membership.objects.get(user=ada)
    page = client.get(MEMBERS).content.decode()
    assert ada.email in page
    assert "Invite somebody" not in page
    assert client.get(KEYS).status_code == 200
    assert invite(client).status_code == 403
    for path in (
        KEYS,
        f"/o/alpha/settings/keys/{key.pk}/revoke/",
        f"/o/alpha/settings/keys/{key.pk}/roll/",
        f"/o/alpha/settings/members/{owner.pk}/role/",
        f"/o/alpha/settings/members/{owner.pk}/remove/",
    ):
        assert client.post(path, {"role": "viewer", "overlap": 0}).status_code == 403, path
    key.refresh_from_db()
    assert key.revoked_at is None
    assert Membership.objects.get(pk=owner.pk).role == "owner"
    assert client.get(AUDIT).status_code == (200 if role == "finance" else 403)


def test_an_admin_touches_no_owner_and_makes_none(person: Any, ada: Any, client_of: Any) -> None:
    admin = person("admin")
    client = client_of(admin)
    owner, own = Membership.objects.get(user=ada), Membership.objects.get(user=admin)
    assert client.post(f"/o/alpha/settings/members/{owner.pk}/role/", {"role": "viewer"}).status_code == 403
    assert client.post(f"/o/alpha/settings/members/{owner.pk}/remove/").status_code == 403
    client.post(f"/o/alpha/settings/members/{own.pk}/role/", {"role": "owner"})
    assert invite(client, role="owner").status_code == 422
    own.refresh_from_db()
    assert own.role == "admin"


def test_a_lowered_role_counts_at_the_next_request(person: Any, ada: Any, client_of: Any) -> None:
    admin = person("admin")
    member, client = Membership.objects.get(user=admin), client_of(admin)
    assert "Invite somebody" in client.get(MEMBERS).content.decode()
    client_of(ada).post(f"/o/alpha/settings/members/{member.pk}/role/", {"role": "viewer"})
    assert "Invite somebody" not in client.get(MEMBERS).content.decode()
    assert invite(client).status_code == 403
    client_of(ada).post(f"/o/alpha/settings/members/{member.pk}/remove/")
    assert client.get(MEMBERS).status_code == 404


@pytest.mark.parametrize("act", ["role", "remove"])
def test_the_last_owner_stays(act: str, ada: Any, client_of: Any) -> None:
    member = Membership.objects.get(user=ada)
    response = client_of(ada).post(f"/o/alpha/settings/members/{member.pk}/{act}/", {"role": "viewer"})
    assert "An org needs an owner" in said(response)
    assert Membership.objects.get(pk=member.pk).role == "owner"


def test_everybody_may_leave(person: Any, ada: Any, client_of: Any) -> None:
    viewer = person("viewer")
    member = Membership.objects.get(user=viewer)
    response = client_of(viewer).post(f"/o/alpha/settings/members/{member.pk}/remove/")
    assert response["Location"] == "/"
    assert not Membership.objects.filter(user=viewer).exists()


def test_members_of_another_org_are_out_of_reach(alpha: Any, ada: Any, bo: Any, client_of: Any) -> None:
    theirs = Membership.objects.get(user=bo)
    for act in ("role", "remove"):
        path = f"/o/alpha/settings/members/{theirs.pk}/{act}/"
        assert client_of(ada).post(path, {"role": "viewer"}).status_code == 404
    assert Membership.objects.get(pk=theirs.pk).role == "owner"


# Clusters


def test_a_restricted_person_sees_no_page_that_shows_all(person: Any, ada: Any, client_of: Any) -> None:
    client = client_of(person("viewer", clusters=["rack-a"]))
    assert client.get(MEMBERS).status_code == 200
    assert client.get(KEYS).status_code == 403
    from orgs.access import get_access

    access = get_access(User.objects.get(email="viewer@alpha.example"), "alpha")
    assert access.clusters == ("rack-a",)
    assert access.sees("rack-a")
    assert not access.sees("rack-b")


def test_a_restricted_persons_session_reads_their_cluster_only(alpha: Any, person: Any, client_of: Any) -> None:
    from django_tenants.utils import tenant_context

    from fleet.models import Cluster

    with tenant_context(alpha):
        Cluster.objects.create(name="rack-a")
        Cluster.objects.create(name="rack-b")
    user = person("viewer", clusters=["rack-a"])
    seen = client_of(user).get("/v1/clusters").content.decode()
    assert "rack-a" in seen
    assert "rack-b" not in seen
    set_role(user, alpha, "viewer", clusters=["rack-a", "rack-c"], actor="test")
    assert client_of(user).get("/v1/clusters").status_code == 403


def test_who_may_write_is_not_restricted(ada: Any, person: Any, client_of: Any) -> None:
    viewer = Membership.objects.get(user=person("viewer", clusters=["rack-a"]))
    path = f"/o/alpha/settings/members/{viewer.pk}/role/"
    response = client_of(ada).post(path, {"role": "admin", "clusters": "rack-a"})
    assert "sees every cluster" in said(response)
    client_of(ada).post(path, {"role": "admin", "clusters": ""})
    viewer.refresh_from_db()
    assert (viewer.role, viewer.clusters) == ("admin", [])


# Invitations


def test_a_new_person_joins_by_mail(ada: Any, alpha: Any, client_of: Any) -> None:
    response = invite(client_of(ada), role="finance", clusters="rack-a, rack-b")
    assert response.status_code == 302
    message = mail.outbox[0]
    assert message.to == ["new@x.example"]
    path = link_in(message.body)
    assert path not in said(response)  # the link belongs to who gets the mail
    stranger = client_of(None)
    assert "Choose a password" in stranger.get(path).content.decode()
    assert stranger.post(path, {"password": "short"}).status_code == 422
    joined = stranger.post(path, {"password": PASSWORD, "name": "Nia"})
    assert joined["Location"] == "/o/alpha/"
    member = Membership.objects.get(user__email="new@x.example")
    assert (member.role, member.clusters, member.user.name) == ("finance", ["rack-a", "rack-b"], "Nia")
    assert client_of(None).get(path).status_code == 410  # once
    assert client_of(None).post(path, {"password": PASSWORD}).status_code == 410
    assert AuditEntry.objects.filter(action="invitation.accepted", actor="new@x.example").exists()


def test_a_known_person_signs_in_to_join(ada: Any, bo: Any, client_of: Any) -> None:
    set_password(bo, PASSWORD, actor="test")
    invite(client_of(ada), email="BO@beta.example")
    path = link_in(mail.outbox[0].body)
    taken = client_of(None).post(path, {"password": "another long password"})
    assert taken.status_code == 422
    assert "Sign in as" in taken.content.decode()
    bo.refresh_from_db()
    assert bo.check_password(PASSWORD)  # an invitation sets nobody's password
    client = client_of(None)
    assert (
        client.post(f"/login/?next={path}", {"login": bo.email, "password": PASSWORD, "next": path})["Location"] == path
    )
    assert client.post(path)["Location"] == "/o/alpha/"
    assert Membership.objects.get(user=bo, org__slug="alpha").role == "viewer"


def test_an_invitation_is_for_one_address(ada: Any, bo: Any, client_of: Any) -> None:
    invite(client_of(ada))
    path = link_in(mail.outbox[0].body)
    response = client_of(bo).post(path)
    assert response.status_code == 422
    assert "is for new@x.example" in response.content.decode()
    assert not Membership.objects.filter(user=bo, org__slug="alpha").exists()


def test_inviting_does_not_tell_whether_somebody_has_an_account(ada: Any, bo: Any, client_of: Any) -> None:
    answers = []
    for email in (bo.email, "nobody@x.example"):
        response = invite(client_of(ada), email=email)
        page = said(response).replace(email, "ADDRESS")
        opened = client_of(None).get(link_in(mail.outbox[-1].body)).content.decode().replace(email, "ADDRESS")
        answers.append((response.status_code, "ADDRESS is invited" in page, re.sub(r'value="\w{64}"', "", opened)))
    assert re.sub(r"/invitation/[\w-]+", "", answers[0][2]) == re.sub(r"/invitation/[\w-]+", "", answers[1][2])
    assert answers[0][:2] == answers[1][:2]


@pytest.mark.parametrize("end", ["revoked", "resent", "expired", "suspended", "forged"])
def test_an_invitation_that_is_over_opens_nothing(end: str, ada: Any, alpha: Any, client_of: Any) -> None:
    from orgs.services import set_org_status

    client = client_of(ada)
    invite(client)
    path = link_in(mail.outbox[0].body)
    one = Invitation.objects.get()
    match end:
        case "revoked":
            client.post(f"/o/alpha/settings/invitations/{one.pk}/revoke/")
        case "resent":
            client.post(f"/o/alpha/settings/invitations/{one.pk}/resend/")
            assert client_of(None).get(link_in(mail.outbox[1].body)).status_code == 200
        case "expired":
            Invitation.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
        case "suspended":
            set_org_status(alpha, "suspended", actor="test")
        case "forged":
            path = path[:-2] + ("0/" if path[-2] != "0" else "1/")
    assert client_of(None).get(path).status_code == 410
    assert client_of(None).post(path, {"password": PASSWORD}).status_code == 410
    assert not User.objects.filter(email="new@x.example").exists()


def test_without_mail_the_link_stands_on_the_page(ada: Any, person: Any, client_of: Any, settings: Any) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
    page = said(invite(client_of(ada)))
    path = link_in(page.replace("</pre>", " "))
    assert client_of(None).get(path).status_code == 200
    assert "/invitation/" not in client_of(person("viewer")).get(MEMBERS).content.decode()
    assert mails.send_waiting() == 0


def test_mail_that_cannot_be_sent_is_visible_and_sent_later(ada: Any, client_of: Any, settings: Any) -> None:
    settings.EMAIL_BACKEND, settings.EMAIL_HOST, settings.EMAIL_PORT = (
        "django.core.mail.backends.smtp.EmailBackend",
        "127.0.0.1",
        1,
    )
    page = said(invite(client_of(ada)))
    assert "not sent yet" in page
    assert "ConnectionRefusedError" in page
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    assert mails.send_waiting() == 1
    assert mails.send_waiting() == 0
    assert client_of(None).get(link_in(mail.outbox[0].body)).status_code == 200


@pytest.mark.parametrize(
    ("email", "role", "sentence"),
    [
        ("ada@alpha.example", "viewer", "is a member already"),
        ("no address", "viewer", "valid email address"),
        ("x@x.example", "king", "not one of the available choices"),
        ("x@x.example\nBcc: all@x.example", "viewer", "valid email address"),
    ],
)
def test_bad_invitations_are_refused_with_a_sentence(
    email: str, role: str, sentence: str, ada: Any, client_of: Any
) -> None:
    response = invite(client_of(ada), email=email, role=role)
    assert response.status_code == 422
    assert sentence in response.content.decode()
    assert mail.outbox == []


def test_somebody_is_invited_once(ada: Any, client_of: Any) -> None:
    invite(client_of(ada))
    assert "is invited already" in invite(client_of(ada), email="NEW@x.example").content.decode()


def test_a_mails_subject_is_one_line(ada: Any, alpha: Any, client_of: Any) -> None:
    alpha.name = "Evil\r\nBcc: all@x.example"
    alpha.save(update_fields=["name"])
    invite(client_of(ada))
    assert "\n" not in mail.outbox[0].subject
    alpha.name = "Alpha"
    alpha.save(update_fields=["name"])


def test_the_link_of_a_log_line_is_cut() -> None:
    import logging

    from orgs.logs import HideLinks

    record = logging.LogRecord("x", 20, "", 0, "GET %s", ("/invitation/12-abcdef/",), None)
    HideLinks().filter(record)
    assert "abcdef" not in record.getMessage()


# Keys


def make_key(client: Any, **more: Any) -> Any:
    """POST the form of a key."""
    return client.post(KEYS, {"name": "rack 7", "scope": "ingest", "cluster": "", "days": 365, **more})


def token_in(response: Any) -> str:
    """The secret on the page."""
    return re.search(r'id="secret"[^>]*>(gp_[\w-]+)<', response.content.decode())[1]  # type: ignore[index]


def test_a_secret_is_shown_once_with_the_install_line(ada: Any, client_of: Any) -> None:
    client = client_of(ada)
    response = make_key(client, cluster="rack 7; rm -rf /")
    token, page = token_in(response), response.content.decode()
    assert "--endpoint http://localhost/v1/batches --cluster &#x27;rack 7; rm -rf /&#x27;" in page
    assert response["Cache-Control"] == "private, no-store"
    info = keys.resolve(token)
    assert (info.scopes, info.cluster) == ({"ingest"}, "rack 7; rm -rf /")
    listed = client.get(KEYS).content.decode()
    assert token not in listed
    assert info.prefix in listed
    assert all(token not in str(vars(entry)) for entry in AuditEntry.objects.all())


def test_the_install_line_has_the_address_that_the_visitor_uses(ada: Any, client_of: Any, settings: Any) -> None:
    page = client_of(ada).post(KEYS, {"name": "k", "scope": "ingest", "days": 0}, headers={"host": "127.0.0.1:8080"})
    assert "--endpoint http://127.0.0.1:8080/v1/batches" in page.content.decode()
    assert client_of(ada).get(KEYS, headers={"host": "evil.example"}).status_code == 400


def test_admin_read_reads_more_than_read(ada: Any, alpha: Any, client_of: Any) -> None:
    assert keys.resolve(token_in(make_key(client_of(ada), scope="admin-read"))).scopes == {"admin-read", "read"}
    assert keys.resolve(token_in(make_key(client_of(ada), scope="read"))).scopes == {"read"}


def test_rolling_keeps_the_old_key_for_the_overlap(ada: Any, alpha: Any, client_of: Any) -> None:
    client = client_of(ada)
    old_token = token_in(make_key(client, cluster="c1", days=90))
    old = ApiKey.objects.get()
    new_token = token_in(client.post(f"/o/alpha/settings/keys/{old.pk}/roll/", {"overlap": 24}))
    assert keys.resolve(old_token).cluster == keys.resolve(new_token).cluster == "c1"
    old.refresh_from_db()
    assert old.state(timezone.now()) == "rolled"
    assert old.expires_at <= timezone.now() + timedelta(hours=24)
    again = client.post(f"/o/alpha/settings/keys/{old.pk}/roll/", {"overlap": 24})
    assert again.status_code == 302
    assert ApiKey.objects.count() == 2
    ApiKey.objects.filter(pk=old.pk).update(expires_at=timezone.now())
    keys.cache.clear()
    with pytest.raises(keys.KeyRefused):
        keys.resolve(old_token)
    page = client.get(KEYS).content.decode()
    assert old.prefix in page
    assert "s-expired" in page


def test_a_revoked_key_stays_listed(ada: Any, client_of: Any) -> None:
    client = client_of(ada)
    token = token_in(make_key(client))
    key = ApiKey.objects.get()
    assert client.post(f"/o/alpha/settings/keys/{key.pk}/revoke/").status_code == 302
    with pytest.raises(keys.KeyRefused):
        keys.resolve(token)
    assert "s-revoked" in client.get(KEYS).content.decode()
    entry = AuditEntry.objects.get(action="key.revoked")
    assert (entry.actor, entry.target, entry.address) == (ada.email, key.prefix, "127.0.0.1")


def test_keys_of_another_org_are_out_of_reach(ada: Any, beta: Any, client_of: Any) -> None:
    theirs, token = issue_key(beta, "secret name", ["ingest"], actor="test")
    for act in ("roll", "revoke"):
        assert client_of(ada).post(f"/o/alpha/settings/keys/{theirs.pk}/{act}/", {"overlap": 0}).status_code == 404
    assert "secret name" not in client_of(ada).get(KEYS).content.decode()
    keys.resolve(token)


@pytest.mark.parametrize("wrong", [{"name": ""}, {"scope": "root"}, {"days": 12345}, {"cluster": "x" * 257}])
def test_a_bad_key_is_refused_with_a_sentence(wrong: dict[str, Any], ada: Any, client_of: Any) -> None:
    response = make_key(client_of(ada), **wrong)
    assert response.status_code == 422
    assert 'class="error"' in response.content.decode()
    assert not ApiKey.objects.exists()


# Audit


def test_the_trail_filters_pages_and_downloads(ada: Any, alpha: Any, beta: Any, client_of: Any) -> None:
    for number in range(60):
        issue_key(alpha, f"k{number}", ["read"], actor="=cmd|' /C calc'!A0")
    issue_key(beta, "theirs", ["read"], actor="bo@beta.example")
    client = client_of(ada)
    first = client.get(AUDIT).content.decode()
    following = re.search(r"before=(\d+)", first)[1]  # type: ignore[index]
    assert "made an account for" in client.get(f"{AUDIT}?before={following}").content.decode()
    assert "bo@beta.example" not in first
    assert "created key" not in client.get(f"{AUDIT}?action=member.").content.decode().split("<tbody>")[1]
    assert "Nothing matches" in client.get(f"{AUDIT}?q=no-such-person").content.decode()
    assert "Nothing matches" in client.get(f"{AUDIT}?to=2001-01-01").content.decode()
    for odd in ("?before=-1", "?before=x", "?from=yesterday", "?q=%00", "?action='--", f"?before={'9' * 30}"):
        assert client.get(AUDIT + odd).status_code == 200, odd
    sheet = client.get("/o/alpha/settings/audit.csv?action=key.").content.decode().splitlines()
    assert len(sheet) == 61
    assert "'=cmd|" in sheet[1]
    assert all("beta" not in line for line in sheet)


def test_what_people_type_is_escaped(ada: Any, alpha: Any, client_of: Any) -> None:
    nasty = '<img src=x onerror=alert(1)>"'
    make_key(client_of(ada), name=nasty, cluster=nasty)
    issue_key(alpha, nasty, ["read"], actor=nasty)
    for path in (KEYS, AUDIT):
        assert "<img src=x" not in client_of(ada).get(path).content.decode()
