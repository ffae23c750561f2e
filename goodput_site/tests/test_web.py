"""What holds for every route alike: headers, forms, errors, methods."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from goodput_site.tests.routes import path_of, routes

pytestmark = pytest.mark.django_db
POLICY = {
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "font-src 'self'",
    "connect-src 'self'",
    "manifest-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
}


@pytest.fixture
def people(ada: Any, pat: Any, client_of: Any) -> list[Client]:
    """Nobody, a member and provider staff, as browsers."""
    return [client_of(None), client_of(ada), client_of(pat)]


def paths() -> list[str]:
    """A path for every route, with alpha's values, and some that no route answers."""
    return [*(path_of(route, org_slug="alpha") for route in routes()), "/no/such", "/v1/no/such", "/o/no-such-org/"]


def test_every_answer_has_the_strict_headers(people: list[Client], lan: Any) -> None:
    for client in people:
        for path in paths():
            response = client.get(path)
            policy = response["Content-Security-Policy"]
            parts = {part.strip() for part in policy.split(";")}
            if path == "/v1/docs":  # Swagger draws its icons from data: URLs; nothing else differs
                parts = parts - {"img-src 'self' data:"} | {"img-src 'self'"}
            assert parts == POLICY, (path, policy)
            assert response["X-Content-Type-Options"] == "nosniff", path
            assert response["X-Frame-Options"] == "DENY", path
            assert response["Referrer-Policy"] == "same-origin", path
            assert response["Cross-Origin-Opener-Policy"] == "same-origin", path
            assert "Strict-Transport-Security" not in response, path  # plain HTTP here: it would shut people out
            assert "Access-Control-Allow-Origin" not in response, path


def test_pages_of_an_org_are_kept_by_nobody(people: list[Client], lan: Any) -> None:
    for client in people[1:]:
        for route in (each for each in routes() if each.startswith("o/<slug:org_slug>/")):
            response = client.get(path_of(route, org_slug="alpha"))
            if response.status_code == 200:
                assert "private" in response["Cache-Control"] or "no-store" in response["Cache-Control"], route


def test_every_form_wants_its_token(ada: Any, pat: Any, lan: Any) -> None:
    """A page of another site can send a form with the member's cookie, but not with the token."""
    readers = {"/healthz", "/readyz", "/v1/openapi.json"}
    for person in (ada, pat):
        client = Client(enforce_csrf_checks=True, HTTP_HOST="localhost")
        client.force_login(person)
        for path in paths():
            for headers in ({}, {"origin": "https://evil.example"}):
                response = client.post(path, {"x": "y"}, headers=headers)
                assert response.status_code in {403, 404, 405, 415} or path in readers, (path, response.status_code)
        assert "_auth_user_id" in client.session  # not even signed out


def test_an_upload_is_not_led_by_a_cookie(ada: Any, client_of: Any, lan: Any) -> None:
    from fleet.tests.bodies import packed

    headers = {"content-encoding": "gzip"}
    response = client_of(ada).post("/v1/batches", packed()[0], "application/msgpack", headers=headers)
    assert response.status_code == 401


def test_nothing_answers_to_odd_methods(people: list[Client], lan: Any) -> None:
    for client in people[:2]:
        for path in paths():
            for method in ("TRACE", "X-ODD"):
                response = client.generic(method, path)
                assert response.status_code < 500, (method, path)
                assert b"goodput_session" not in response.content, (method, path)  # no echo of the request


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("lan")
def test_a_failure_tells_nothing(ada: Any, client_of: Any, settings: Any) -> None:
    settings.ROOT_URLCONF = "orgs.tests.probe_urls"
    client = client_of(ada)
    client.raise_request_exception = False
    response = client.get("/o/alpha/boom")
    assert response.status_code == 500
    text = response.content.decode()
    for told in ("Traceback", "division", "psycopg", "select 1/0", "/site-packages/", settings.SECRET_KEY):
        assert told not in text


def test_what_is_not_there_is_said_in_the_callers_words(people: list[Client], lan: Any) -> None:
    for client in people:
        page, document = client.get("/no/such"), client.get("/v1/no/such")
        assert (page.status_code, document.status_code) == (404, 404)
        assert page["Content-Type"].startswith("text/html")
        assert document["Content-Type"] == "application/problem+json"
        assert document.json()["code"] == "not_found"


@pytest.mark.parametrize(
    "query",
    [
        "page_size=1000000000",
        "page_size=-1",
        "page_size=x",
        "cursor=x",
        "cursor=" + "A" * 5000,
        "period=100y",
        "org=%00",
    ],
)
def test_odd_queries_are_answered_and_small(query: str, alpha: Any, key_of: Any, lan: Any) -> None:
    client = Client(HTTP_HOST="localhost", HTTP_AUTHORIZATION=f"Bearer {key_of(alpha)}")
    for route in (each for each in routes() if each.startswith("v1/")):
        response = client.get(path_of(route) + "?" + query)
        assert response.status_code in {200, 400, 403, 404, 405, 422}, (route, query)
        if response.status_code != 200:
            assert response["Content-Type"] == "application/problem+json"


def test_the_tests_touch_no_installation_of_this_checkout(settings: Any) -> None:
    assert settings.GOODPUT_VAR != settings.BASE_DIR / "var"
