"""A public server behind a TLS proxy that is set up with the handbook's own lines: nginx, Caddy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from django.db import connection

from agent.tests.certificates import certificate
from fleet.tests.ingest.server import Server, free_port
from goodput_site.tests.guide.tools import tool

ROOT = Path(__file__).resolve().parents[3]
HANDBOOK = (ROOT / "docs/handbook/exposure.md").read_text()
FORGED = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "http", "X-Forwarded-Host": "evil.example"}
pytestmark = [pytest.mark.full, pytest.mark.django_db(transaction=True)]


def nginx(folder: Path, port: int, server: int, cert: Path, key: Path) -> list[str]:
    """nginx with the handbook's block."""
    (block,) = re.findall(r"```nginx\n(.+?)```", HANDBOOK, re.S)
    file = folder / "nginx.conf"
    file.write_text(
        f"daemon off; pid {folder}/pid; error_log stderr; events {{}}\n"
        f"http {{ access_log off; client_body_temp_path {folder}/b; proxy_temp_path {folder}/p;\n"
        f"fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n"
        f"server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {cert}; ssl_certificate_key {key};\n"
        + block.replace("127.0.0.1:8080", f"127.0.0.1:{server}")
        + "}}\n"
    )
    return [tool("nginx"), "-c", str(file)]


def caddy(folder: Path, port: int, server: int, cert: Path, key: Path) -> list[str]:
    """Caddy with the handbook's line, and a certificate of ours in place of one that it would fetch."""
    (site,) = re.findall(r"`g\.example \{ (reverse_proxy [^}]+) \}`", HANDBOOK)
    file = folder / "Caddyfile"
    file.write_text(
        "{\n  admin off\n  auto_https off\n}\n"
        f"https://127.0.0.1:{port} {{\n  tls {cert} {key}\n"
        f"  {site.replace('127.0.0.1:8080', f'127.0.0.1:{server}')}\n}}\n"
    )
    return [tool("caddy"), "run", "--adapter", "caddyfile", "--config", str(file)]


@pytest.fixture(params=[nginx, caddy], ids=["nginx", "caddy"])
def site(request: pytest.FixtureRequest, tmp_path: Path, alpha: Any) -> Iterator[tuple[str, Path]]:
    """(address of a public server behind a proxy, file of the authority that its certificate is from)."""
    authority_file, _, authority = certificate(tmp_path, "authority")  # type: ignore[no-untyped-call]
    cert, key, _ = certificate(tmp_path, "server", issuer=authority)  # type: ignore[no-untyped-call]
    port = free_port()
    url = f"https://127.0.0.1:{port}"
    database = f"{os.environ['DATABASE_URL'].rpartition('/')[0]}/{connection.settings_dict['NAME']}"
    more = {"DATABASE_URL": database, "GOODPUT_EXPOSE": "public", "GOODPUT_PUBLIC_URL": url}
    more["GOODPUT_VAR"] = str(tmp_path / "var")
    static = [sys.executable, str(ROOT / "manage.py"), "collectstatic", "--noinput", "--verbosity", "0"]
    plain = {**os.environ, "GOODPUT_VAR": more["GOODPUT_VAR"], "DJANGO_SETTINGS_MODULE": "goodput_site.settings"}
    subprocess.run(static, env=plain, check=True, timeout=120)
    with Server(tmp_path / "web.log", **more) as server, (tmp_path / "proxy.log").open("wb") as log:
        command = request.param(tmp_path, port, server.port, cert, key)
        home = {**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
        proxy = subprocess.Popen(command, stdout=log, stderr=log, env=home)
        try:
            for _ in range(300):
                assert proxy.poll() is None, (tmp_path / "proxy.log").read_text()
                try:
                    requests.get(f"{url}/healthz", verify=str(authority_file), timeout=10)
                    break
                except requests.ConnectionError:
                    time.sleep(0.1)
            yield url, authority_file
        finally:
            proxy.terminate()
            proxy.wait(30)


def test_people_and_agents_come_in_over_https(site: tuple[str, Path], alpha: Any, key_of: Any, tmp_path: Path) -> None:
    from orgs.models import ApiKey, LoginAttempt

    url, authority = site
    browser = requests.Session()
    browser.verify, browser.trust_env = str(authority), False
    page = browser.get(f"{url}/login/", timeout=30, allow_redirects=False)
    assert page.status_code == 200  # no redirect to where it is already
    assert "max-age" in page.headers["Strict-Transport-Security"]
    assert "Secure" in page.headers["Set-Cookie"]
    (form_token,) = set(re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text))
    form = {"login": "nobody@x.example", "password": "wrong", "csrfmiddlewaretoken": form_token}
    answer = browser.post(f"{url}/login/", form, headers={"Referer": f"{url}/login/", **FORGED}, timeout=30)
    assert "do not belong together" in answer.text, (answer.status_code, answer.text[:500])
    assert [one.sender for one in LoginAttempt.objects.all()] == ["127.0.0.1"]  # whatever the visitor says of itself
    key = tmp_path / "key"
    key.write_text(key_of(alpha, "ingest"))
    key.chmod(0o600)
    flags = ["--source", "sim", "--endpoint", f"{url}/v1/batches", "--token-file", str(key), "--cluster", "tls"]
    sent = subprocess.run(
        [sys.executable, "-m", "agent", "once", *flags, "--state-dir", str(tmp_path / "agent")],
        env={**os.environ, "SSL_CERT_FILE": str(authority)},
        cwd=ROOT,
        capture_output=True,
        timeout=120,
    )
    assert sent.returncode == 0, sent.stderr
    used = ApiKey.objects.get(org=alpha)
    assert used.last_used_address == "127.0.0.1"
    stranger = browser.get(f"{url}/login/", headers={"Host": "evil.example"}, timeout=30)
    assert stranger.status_code == 400 or not stranger.content  # Caddy says nothing at all for a name that is not its
