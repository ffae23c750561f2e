"""Who may see the pages of an org and who may change what they show; the pages of people."""

from __future__ import annotations

from typing import Any

import pytest
from django_tenants.utils import tenant_context

from fleet.models import Cluster
from fleet.tests.test_pages import fill, text_of

pytestmark = pytest.mark.django_db


# Who may see it


@pytest.mark.parametrize("path", ["", "fleet.csv", "fleet.json", "manifest.webmanifest"])
def test_nobody_is_led_to_the_login_and_a_stranger_finds_nothing(
    path: str, beta: Any, ada: Any, bo: Any, client_of: Any, lan: Any
) -> None:
    url = f"/o/{beta.slug}/{path}"
    sent = client_of(None).get(url)
    assert (sent.status_code, sent["Location"]) == (302, f"/login/?next={url}")
    assert client_of(ada).get(url).status_code == 404
    assert client_of(bo).get(url).status_code == 200


def test_local_mode_shows_its_own_org_to_whoever_sits_there(local: Any, alpha: Any, client_of: Any) -> None:
    assert client_of(None).get("/o/local/").status_code == 200
    assert client_of(None).get("/o/alpha/").status_code == 302


def test_provider_staff_may_look(alpha: Any, pat: Any, client_of: Any, lan: Any) -> None:
    assert client_of(pat).get("/o/alpha/").status_code == 200


def test_an_orgs_page_holds_nothing_of_another(alpha: Any, beta: Any, ada: Any, client_of: Any, lan: Any) -> None:
    fill(beta, cluster="betas-own", nodes=1, minutes=3)
    page = client_of(ada).get("/o/alpha/").content.decode()
    assert "betas-own" not in page


def test_whoever_may_see_one_cluster_sees_nothing_of_another(alpha: Any, client_of: Any, lan: Any) -> None:
    from orgs.models import Membership, User

    fill(alpha, cluster="open-to-cleo", nodes=1, minutes=3)
    fill(alpha, cluster="not-for-cleo", nodes=2, minutes=3)
    cleo = User.objects.create_user("cleo@alpha.example")
    Membership.objects.create(user=cleo, org=alpha, role=Membership.Role.ADMIN, clusters=["open-to-cleo"])
    client = client_of(cleo)
    for path in ("", "fleet.csv", "fleet.json", "?cluster=not-for-cleo", "fleet.json?cluster=not-for-cleo&page=all"):
        response = client.get(f"/o/alpha/{path}")
        assert response.status_code == 200, path
        if "cluster=" not in path:
            assert "open-to-cleo" in response.content.decode()
            assert "not-for-cleo" not in response.content.decode()
        assert "sim-0002" not in response.content.decode()
    assert client.get("/o/alpha/fleet.json").json()["gpus"]["total"] == 8
    with tenant_context(alpha):
        hidden = Cluster.objects.get(name="not-for-cleo").pk
    assert client.post(f"/o/alpha/clusters/{hidden}/remove-demo/").status_code == 404


# Removing the demo


def test_the_demo_is_removed_by_those_who_may(alpha: Any, ada: Any, bo: Any, client_of: Any, lan: Any) -> None:
    fill(alpha, cluster="demo", nodes=1, minutes=2)
    with tenant_context(alpha):
        cluster = Cluster.objects.get()
    url = f"/o/alpha/clusters/{cluster.pk}/remove-demo/"
    assert client_of(bo).post(url).status_code == 404
    assert client_of(None).post(url).status_code == 302
    client = client_of(ada)
    assert client.get(url).status_code == 405
    assert client.post(f"/o/alpha/clusters/{cluster.pk + 7}/remove-demo/").status_code == 404
    gone = client.post(url, follow=True)
    assert "The simulated cluster demo is removed" in text_of(gone)
    assert "Waiting for the first node" in text_of(gone)


def test_a_viewer_may_not_remove_the_demo(alpha: Any, client_of: Any, lan: Any) -> None:
    from orgs.models import Membership, User

    viewer = User.objects.create_user("vic@alpha.example")
    Membership.objects.create(user=viewer, org=alpha, role=Membership.Role.VIEWER)
    fill(alpha, cluster="demo", nodes=1, minutes=2)
    with tenant_context(alpha):
        url = f"/o/alpha/clusters/{Cluster.objects.get().pk}/remove-demo/"
    client = client_of(viewer)
    assert "Remove the demo" not in client.get("/o/alpha/").content.decode()
    refused = client.post(url)
    assert refused.status_code == 403
    assert "Not allowed" in refused.content.decode()


def test_removing_the_demo_needs_the_forms_token(local: Any) -> None:
    from django.test import Client

    fill(local, cluster="demo", nodes=1, minutes=2)
    with tenant_context(local):
        url = f"/o/local/clusters/{Cluster.objects.get().pk}/remove-demo/"
    refused = Client(enforce_csrf_checks=True, HTTP_HOST="localhost").post(url)
    assert refused.status_code == 403
    assert "too old" in refused.content.decode()


# The pages of people


def test_pages_of_people_are_whole_pages(ada: Any, bo: Any, client_of: Any, lan: Any) -> None:
    assert "Sign in" in client_of(None).get("/login/").content.decode()
    assert "no longer valid" in client_of(None).get("/login/link/x/y/").content.decode()
    assert "Set your password" in client_of(ada).get("/password/").content.decode()
    assert "Nothing here" in client_of(ada).get("/o/beta/").content.decode()


def test_the_last_org_is_remembered(pat: Any, alpha: Any, beta: Any, client_of: Any, lan: Any) -> None:
    client = client_of(pat)
    assert client.get("/")["Location"] == "/provider/"  # of somebody who has entered no org yet
    client.get("/o/beta/")
    assert client.get("/")["Location"] == "/o/beta/"
