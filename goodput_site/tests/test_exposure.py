"""Who is answered at all: one setting decides, and it can't be talked into more."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import request_finished, request_started
from django.db import close_old_connections

from fleet.tests.bodies import packed
from goodput_site.exposure import Exposure, local_guard, own_hosts, refuse_default_secrets, refuse_plain_http
from goodput_site.tests.routes import path_of, routes

ROOT = Path(__file__).resolve().parents[2]
SECRET = "a-secret-of-our-own-that-has-more-than-fifty-letters-0123456789"


@pytest.fixture(autouse=True)
def _keep_the_connection() -> Iterator[None]:
    """A request closes a connection whose transaction is open; here that is the test's own."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


def call(
    app: Any, path: str, method: str = "GET", body: bytes = b"", **environ: str
) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body) of one request to a WSGI application."""
    answer: dict[str, Any] = {}

    def start_response(status: str, headers: list[tuple[str, str]], error: Any = None) -> None:
        answer.update(status=int(status.split()[0]), headers=dict(headers))

    request = {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "SCRIPT_NAME": "",
        "QUERY_STRING": "",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "8080",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_HOST": "localhost:8080",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.url_scheme": "http",
        "wsgi.version": (1, 0),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        **environ,
    }
    response = app({name: value for name, value in request.items() if value is not None}, start_response)
    try:
        return answer["status"], answer["headers"], b"".join(response)
    finally:
        if hasattr(response, "close"):
            response.close()


def build(settings: Any, mode: Exposure) -> Any:
    """The application as a server of this mode builds it."""
    from goodput_site import wsgi

    settings.GOODPUT_EXPOSE = mode
    return wsgi.build()


FORWARDED = [
    "FORWARDED",
    "VIA",
    "X_FORWARDED_FOR",
    "X_FORWARDED_HOST",
    "X_FORWARDED_PROTO",
    "X_FORWARDED_PORT",
    "X_FORWARDED_SSL",
    "X_FORWARDED_ANYTHING_NEW",
    "X_FORWARDED",
    "X_REAL_IP",
    "X_CLIENT_IP",
    "TRUE_CLIENT_IP",
    "CF_CONNECTING_IP",
]


@pytest.mark.django_db
@pytest.mark.parametrize(
    "environ",
    [
        {"HTTP_HOST": "evil.example"},  # DNS rebinding: the browser's own name for 127.0.0.1
        {"HTTP_HOST": "localhost.evil.example:8080"},
        {"HTTP_HOST": "127.0.0.1.nip.io"},
        {"HTTP_HOST": "localhost@evil.example"},
        {"HTTP_HOST": "[::1].evil.example"},
        {"HTTP_HOST": "localhost:evil.example"},
        {"HTTP_HOST": "localhost/"},
        {"HTTP_HOST": "8.8.8.8"},
        {"HTTP_HOST": ""},
        {"HTTP_HOST": None},
        *({f"HTTP_{name}": "203.0.113.1"} for name in FORWARDED),
        {"HTTP_X_FORWARDED_FOR": ""},
    ],
    ids=str,
)
def test_local_mode_answers_only_itself_on_every_path(environ: dict[str, Any], settings: Any) -> None:
    app = build(settings, Exposure.LOCAL)
    paths = [path_of(route, org_slug="local") for route in routes() if not route.startswith("admin/orgs")]
    for path in [*paths, "/static/app.css", "/favicon.ico", "/no/such/path", "/v1/batches"]:
        for method in ("GET", "POST", "OPTIONS"):
            status, headers, body = call(app, path, method, **environ)
            assert status == 421, (path, method, environ)
            assert headers["Content-Type"] == "application/problem+json"
            assert json.loads(body)["code"] == "not_local"


@pytest.mark.django_db
@pytest.mark.parametrize("host", ["localhost:8080", "LOCALHOST", "127.0.0.1", "127.0.0.1:8080", "[::1]:8080"])
def test_local_mode_answers_its_own_names(host: str, settings: Any) -> None:
    assert call(build(settings, Exposure.LOCAL), "/healthz", HTTP_HOST=host)[0] == 200


@pytest.mark.django_db
def test_local_mode_takes_the_guides_two_requests_without_a_key(settings: Any) -> None:
    app = build(settings, Exposure.LOCAL)
    body, _ = packed()
    upload = {"CONTENT_TYPE": "application/msgpack", "HTTP_CONTENT_ENCODING": "gzip"}
    assert call(app, "/v1/batches", "POST", body, **upload)[0] == 202
    assert call(app, "/v1/fleet")[0] == 200


@pytest.mark.django_db
@pytest.mark.parametrize("mode", [Exposure.LAN, Exposure.PUBLIC])
def test_other_modes_want_a_key_whoever_asks_from_wherever(mode: Exposure, settings: Any) -> None:
    """A peer address of 127.0.0.1 is a proxy's, too."""
    app = build(settings, mode)
    body, _ = packed()
    upload = {"CONTENT_TYPE": "application/msgpack", "HTTP_CONTENT_ENCODING": "gzip"}
    for more in ({}, {"HTTP_X_FORWARDED_FOR": "127.0.0.1"}, {"HTTP_HOST": "127.0.0.1"}):
        status, headers, _ = call(app, "/v1/batches", "POST", body, **upload, **more)
        assert status == 401
        assert headers["WWW-Authenticate"] == "Bearer"
        assert call(app, "/v1/fleet", **more)[0] == 401
        assert call(app, "/o/local/", **more)[0] == 302


@pytest.mark.django_db
def test_lan_mode_does_not_answer_to_foreign_names(settings: Any) -> None:
    app = build(settings, Exposure.LAN)
    assert call(app, "/login/", HTTP_HOST="evil.example")[0] == 400
    assert call(app, "/login/", HTTP_X_FORWARDED_HOST="evil.example")[0] == 200  # not believed


@pytest.mark.django_db
def test_an_upload_takes_the_short_way_and_other_methods_do_not(alpha: Any, key_of: Any, settings: Any) -> None:
    app = build(settings, Exposure.LAN)
    body, sha256 = packed()
    upload = {"CONTENT_TYPE": "application/msgpack", "HTTP_CONTENT_ENCODING": "gzip"}
    key = {"HTTP_AUTHORIZATION": f"Bearer {key_of(alpha)}"}
    status, headers, answer = call(app, "/v1/batches", "POST", body, **upload, **key)
    assert status == 202
    assert json.loads(answer)["batch_sha256"] == sha256
    assert "Set-Cookie" not in headers
    assert "Content-Security-Policy" not in headers  # no middleware ran
    status, headers, answer = call(app, "/v1/batches", **key)
    assert status == 200
    assert "Content-Security-Policy" in headers


def test_no_page_of_another_site_can_upload_from_a_browser(settings: Any) -> None:
    """A form can send neither this content type nor this encoding, and a preflight gets no permission."""
    guarded = local_guard(lambda environ, start: pytest.fail("reached"), ["localhost"])
    assert call(guarded, "/v1/batches", "POST", HTTP_HOST="evil.example")[0] == 421


@pytest.mark.django_db
def test_a_preflight_gets_no_permission(client_of: Any) -> None:
    headers = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    response = client_of(None).options("/v1/batches", headers=headers)
    assert not [name for name in response.headers if name.lower().startswith("access-control-")]


@pytest.mark.django_db
def test_a_simple_form_of_another_site_is_no_batch(local: Any, client_of: Any) -> None:
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        assert client_of(None).post("/v1/batches", packed()[0], content_type).status_code == 415


def test_hosts_are_loopback_own_addresses_and_the_public_name() -> None:
    hosts = own_hosts("https://goodput.example.com:8443")
    assert {"localhost", "127.0.0.1", "[::1]", "goodput.example.com"} <= set(hosts)
    assert "*" not in hosts
    assert all(host for host in own_hosts(""))


@pytest.mark.parametrize("mode", [Exposure.LAN, Exposure.PUBLIC])
@pytest.mark.parametrize("secret", ["devsecret-of-the-local-mode-only", "postgresql://g:devpassword@h/g", "devtoken"])
def test_default_secrets_stop_anything_but_local(mode: Exposure, secret: str) -> None:
    refuse_default_secrets(Exposure.LOCAL, secret)
    with pytest.raises(ImproperlyConfigured, match="default secret"):
        refuse_default_secrets(mode, SECRET, secret)


@pytest.mark.parametrize("url", ["", "http://goodput.example.com", "https://", "goodput.example.com"])
def test_a_public_server_knows_its_https_address(url: str) -> None:
    refuse_plain_http(Exposure.LOCAL, url)
    with pytest.raises(ImproperlyConfigured, match="GOODPUT_PUBLIC_URL"):
        refuse_plain_http(Exposure.PUBLIC, url)


# The settings as a process of its own reads them


def django(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run manage.py with this environment on top of ours; the secrets are our own unless given."""
    whole = {**os.environ, "GOODPUT_SECRET_KEY": SECRET, "DJANGO_SETTINGS_MODULE": "goodput_site.settings", **env}
    command = [sys.executable, *(arguments if arguments[0] == "-c" else ("manage.py", *arguments))]
    return subprocess.run(command, env=whole, cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_a_public_server_passes_djangos_deployment_check() -> None:
    made = django(
        "check", "--deploy", "--fail-level=WARNING",
        GOODPUT_EXPOSE="public", GOODPUT_PUBLIC_URL="https://goodput.example.com",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    assert "no issues" in made.stdout


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ({"GOODPUT_EXPOSE": "lan", "GOODPUT_SECRET_KEY": "devsecret-of-the-local-mode-only"}, "default secret"),
        ({"GOODPUT_EXPOSE": "lan", "DATABASE_URL": "postgresql://g:devpassword@127.0.0.1/g"}, "default secret"),
        ({"GOODPUT_EXPOSE": "public"}, "GOODPUT_PUBLIC_URL"),
        ({"GOODPUT_EXPOSE": "internet"}, "local, lan or public"),
    ],
)
def test_a_server_with_bad_settings_does_not_start(env: dict[str, str], sentence: str) -> None:
    made = django("check", **env)
    assert made.returncode != 0
    assert sentence in made.stderr.splitlines()[-1]


PUBLIC_ANSWERS = """
import json, django
django.setup()
from django.conf import settings
from django.test import Client
client = Client(HTTP_HOST="goodput.example.com")
plain, health = client.get("/login/"), client.get("/healthz")
secure = client.get("/healthz", headers={"x-forwarded-proto": "https"})
print(json.dumps({
    "redirect": [plain.status_code, plain.get("Location")],
    "health": health.status_code,
    "hsts": secure.get("Strict-Transport-Security"),
    "cookies": [settings.SESSION_COOKIE_SECURE, settings.CSRF_COOKIE_SECURE, settings.SESSION_COOKIE_HTTPONLY],
    "csp": secure.get("Content-Security-Policy"),
    "nosniff": secure.get("X-Content-Type-Options"),
    "proxies": settings.GOODPUT_PROXIES,
    "trusted": settings.CSRF_TRUSTED_ORIGINS,
}))
"""


def test_a_public_server_is_https_only() -> None:
    made = django("-c", PUBLIC_ANSWERS, GOODPUT_EXPOSE="public", GOODPUT_PUBLIC_URL="https://goodput.example.com/")
    answers = json.loads(made.stdout.splitlines()[-1])
    assert answers["redirect"] == [301, "https://goodput.example.com/login/"]
    assert answers["health"] == 200  # a load balancer asks inside
    assert answers["hsts"] == f"max-age={365 * 24 * 3600}; includeSubDomains"
    assert answers["cookies"] == [True, True, True]
    assert answers["proxies"] == 1
    assert answers["trusted"] == ["https://goodput.example.com"]
    assert "default-src 'none'" in answers["csp"]
    assert "unsafe" not in answers["csp"]
    assert answers["nosniff"] == "nosniff"
