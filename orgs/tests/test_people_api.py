"""Members, keys and the trail in the API: for `admin-read` of one's own org, and for nobody else."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from orgs.services import create_user, set_role

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("lan")]
PATHS = ("/v1/members", "/v1/keys", "/v1/audit")


def keyed(token: str) -> Client:
    """A program with this key."""
    return Client(HTTP_HOST="localhost", HTTP_AUTHORIZATION=f"Bearer {token}")


def test_admin_read_reads_its_own_org(alpha: Any, beta: Any, ada: Any, bo: Any, key_of: Any) -> None:
    key_of(beta, "read")
    program = keyed(key_of(alpha, "admin-read"))
    members = program.get("/v1/members").json()["results"]
    assert [(one["email"], one["role"]) for one in members] == [(ada.email, "owner")]
    listed = program.get("/v1/keys").json()["results"]
    assert [one["scopes"] for one in listed] == [["admin-read"]]
    assert "secret" not in str(listed)
    trail = program.get("/v1/audit").json()["results"]
    assert trail
    assert bo.email not in str(trail)
    assert program.get("/v1/fleet").status_code == 200  # it reads what `read` reads


@pytest.mark.parametrize("scopes", [("ingest",), ("read",), ("ingest", "read")])
def test_lesser_keys_read_none_of_it(scopes: tuple[str, ...], alpha: Any, key_of: Any) -> None:
    for path in PATHS:
        assert keyed(key_of(alpha, *scopes)).get(path).status_code == 403


def test_a_key_of_one_cluster_reads_none_of_it(alpha: Any, key_of: Any) -> None:
    for path in PATHS:
        assert keyed(key_of(alpha, "admin-read", cluster="c1")).get(path).status_code == 403


@pytest.mark.parametrize(("role", "status"), [("owner", 200), ("admin", 200), ("finance", 200), ("viewer", 403)])
def test_a_session_reads_what_its_role_reads(role: str, status: int, alpha: Any, ada: Any, client_of: Any) -> None:
    person = create_user(f"{role}@alpha.example", actor="test")
    set_role(person, alpha, role, actor="test")
    for path in PATHS:
        assert client_of(person).get(path).status_code == status


def test_nobody_and_strangers_read_none_of_it(alpha: Any, bo: Any, client_of: Any) -> None:
    for path in PATHS:
        assert client_of(None).get(path).status_code == 401
        assert client_of(bo).get(path + "?org=alpha").status_code == 404
        assert client_of(bo).post(path).status_code in (403, 405)


def test_local_mode_opens_none_of_it(local: Any, client_of: Any, settings: Any) -> None:
    from goodput_site.exposure import Exposure

    settings.GOODPUT_EXPOSE = Exposure.LOCAL
    for path in PATHS:
        assert client_of(None).get(path).status_code == 403
