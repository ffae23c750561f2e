"""Roles: what a person may see, and that it changes at their next request."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser

from orgs.access import LOCAL_VISITOR, get_access, list_orgs
from orgs.errors import NoSuchOrg, OrgInvalid
from orgs.models import AuditEntry, Membership, Org, User
from orgs.services import create_user, remove_member, set_org_status, set_role

pytestmark = pytest.mark.django_db


@pytest.fixture
def cy(alpha: Any) -> Any:
    """Viewer of alpha."""
    person = create_user("cy@alpha.example", actor="test")
    set_role(person, alpha, "viewer", actor="test")
    return person


@pytest.fixture
def probe(settings: Any) -> None:
    """The site with the probe's routes in front."""
    settings.ROOT_URLCONF = "orgs.tests.probe_urls"


@pytest.mark.usefixtures("probe", "lan")
@pytest.mark.parametrize("end", ["removed", "suspended", "inactive"])
def test_the_next_request_finds_the_door_shut(end: str, alpha: Any, ada: Any, cy: Any, client_of: Any) -> None:
    client = client_of(cy)
    assert client.get("/o/alpha/where").status_code == 200
    match end:
        case "removed":
            remove_member(cy, alpha, actor=ada.email)
        case "suspended":
            set_org_status(alpha, Org.Status.SUSPENDED, actor="test")
        case "inactive":
            User.objects.filter(pk=cy.pk).update(is_active=False)
    assert client.get("/o/alpha/where").status_code == (302 if end == "inactive" else 404)
    assert list_orgs(cy) == [] or end == "inactive"


def test_removal_and_roles_are_audited(alpha: Any, ada: Any, cy: Any) -> None:
    set_role(cy, alpha, "finance", actor=ada.email)
    remove_member(cy, alpha, actor=ada.email)
    remove_member(cy, alpha, actor=ada.email)
    told = AuditEntry.objects.filter(actor=ada.email).order_by("id").values_list("action", "before", "after")
    assert list(told) == [("member.role", "viewer", "finance"), ("member.removed", "finance", None)]


def test_an_org_keeps_an_owner(alpha: Any, ada: Any, cy: Any) -> None:
    for change in (
        lambda: set_role(ada, alpha, "viewer", actor="test"),
        lambda: remove_member(ada, alpha, actor="test"),
    ):
        with pytest.raises(OrgInvalid) as error:
            change()
        assert error.value.code == "last_owner"
    assert Membership.objects.get(user=ada, org=alpha).role == "owner"
    set_role(cy, alpha, "owner", actor="test")
    remove_member(ada, alpha, actor="test")
    assert not Membership.objects.filter(user=ada, org=alpha).exists()


def test_a_made_up_role_is_refused(alpha: Any, ada: Any) -> None:
    with pytest.raises(OrgInvalid) as error:
        set_role(ada, alpha, "king", actor="test")
    assert error.value.code == "invalid_role"


def test_roles_say_who_may_change_settings(alpha: Any, ada: Any, cy: Any, pat: Any) -> None:
    assert get_access(ada, "alpha").may_write
    assert get_access(pat, "alpha").role == "provider"
    assert not get_access(cy, "alpha").may_write
    set_role(cy, alpha, "finance", actor="test")
    assert not get_access(cy, "alpha").may_write


def test_the_local_org_stands_open_in_local_mode_only(local: Any, alpha: Any, settings: Any) -> None:
    nobody = AnonymousUser()
    access = get_access(nobody, "local")
    assert access.role == LOCAL_VISITOR
    assert not access.may_write
    assert list_orgs(nobody) == [local]
    with pytest.raises(NoSuchOrg):
        get_access(nobody, "alpha")
    from goodput_site.exposure import Exposure

    for mode in (Exposure.LAN, Exposure.PUBLIC):
        settings.GOODPUT_EXPOSE = mode
        with pytest.raises(NoSuchOrg):
            get_access(nobody, "local")
        assert list_orgs(nobody) == []


def test_home_leads_to_the_only_or_the_last_org(alpha: Any, beta: Any, ada: Any, client_of: Any, lan: Any) -> None:
    client = client_of(ada)
    assert client.get("/")["Location"] == "/o/alpha/"
    set_role(ada, beta, "viewer", actor="test")
    assert client.get("/").status_code == 200  # a choice
    client.get("/o/beta/")
    assert client.get("/")["Location"] == "/o/beta/"
    remove_member(ada, beta, actor="test")
    assert client.get("/")["Location"] == "/o/alpha/"


def test_a_visitor_without_an_org_is_told_so(client_of: Any, lan: Any) -> None:
    person = create_user("dee@nowhere.example", actor="test")
    response = client_of(person).get("/")
    assert response.status_code == 200
    assert "No organisation yet" in response.content.decode()


def test_a_local_visitor_gets_no_session(local: Any, client_of: Any) -> None:
    """A curl in a loop must not fill the table of sessions."""
    client = client_of(None)
    assert client.get("/")["Location"] == "/o/local/"
    client.get("/o/local/")
    assert "goodput_session" not in client.cookies
