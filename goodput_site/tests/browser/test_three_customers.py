"""A provider sets up three customers from an empty installation, by pages alone.

Each customer's owner joins by the link that was handed over, starts a real agent by the lines that were shown (it plays
a simulated node), and looks at the data on a phone and on a desktop. Nobody sees anything of the others.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value

from goodput_site.tests.browser.conftest import Server, Visit, _wait
from goodput_site.tests.browser.test_fleet_page import problems_of

pytestmark = [pytest.mark.full, pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[3]
CUSTOMERS = ("aurora", "borealis", "cygnus")
PASSWORD = "correct horse battery"
PATIENCE = 240  # seconds for the first batch, which an agent sends within one minute


@pytest.fixture
def empty_server(tmp_path: Path) -> Iterator[Server]:
    """Web, worker and beat in lan mode over an empty database, with secrets of their own."""
    base = urlsplit(os.environ["DATABASE_URL"])
    name = f"empty_{secrets.token_hex(4)}"
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as admin:
        admin.execute(f'create database "{name}"')
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environ = {
        **os.environ,
        "DATABASE_URL": urlunsplit(base._replace(path=f"/{name}")),
        "GOODPUT_SECRET_KEY": secrets.token_urlsafe(50),
        "GOODPUT_EXPOSE": "lan",
        "GOODPUT_PORT": str(port),
        "GOODPUT_VAR": str(tmp_path / "var"),
        "DJANGO_SETTINGS_MODULE": "goodput_site.settings",
    }
    server = Server(f"http://localhost:{port}", environ)
    server.manage("prepare")
    here = str(Path(sys.executable).with_name("granian"))
    celery = [sys.executable, "-m", "celery", "-A", "goodput_site.celery:app"]
    commands = (
        [here, "--interface", "wsgi", "--port", str(port), "--no-ws", "goodput_site.wsgi:application"],
        [*celery, "worker", "-c", "1", "-B", "-s", str(tmp_path / "schedule"), "-Q", "celery,alerts"],
    )
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    parts = [subprocess.Popen(one, cwd=ROOT, env=environ, process_group=0, **quiet) for one in commands]  # type: ignore[call-overload]
    try:
        _wait(f"{server.url}/healthz", parts[0])
        yield server
    finally:
        for part in parts:
            os.killpg(part.pid, signal.SIGTERM)
        for part in parts:
            part.wait(30)
        with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as admin:
            admin.execute(f'drop database "{name}" with (force)')


@pytest.fixture
def person(chromium: Any, empty_server: Server) -> Iterator[Any]:
    """A function: a fresh browser of this width; a narrow one is a phone with touch."""
    contexts = []

    def arrive(width: int) -> Visit:
        is_phone = width < 600
        context = chromium.new_context(
            viewport={"width": width, "height": 800},
            has_touch=is_phone,
            is_mobile=is_phone,
            color_scheme="dark" if is_phone else "light",
        )
        contexts.append(context)
        there = Visit(context.new_page(), empty_server)
        there.page.add_init_script(
            "window.policyViolations = []; document.addEventListener('securitypolicyviolation',"
            " (e) => window.policyViolations.push(`${e.violatedDirective} ${e.blockedURI}`));"
        )
        return there

    yield arrive
    for context in contexts:
        context.close()


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Any]:
    """A function: run the lines that a page showed, as on a GPU node of this customer; ended afterwards."""
    started: list[subprocess.Popen[bytes]] = []
    (tmp_path / "bin").mkdir()
    sudo = tmp_path / "bin" / "sudo"
    sudo.write_text('#!/bin/sh\nexec "$@"\n')
    sudo.chmod(0o755)

    def install(customer: str, save_line: str, run_line: str) -> None:
        """Only the place of the key differs from what was shown: tests write nothing to /etc."""
        token = tmp_path / customer / "token"
        environ = {
            **{key: value for key, value in os.environ.items() if not key.startswith("GOODPUT_")},
            "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
            "GOODPUT_SOURCE": "sim",
            "GOODPUT_NODE_ID": f"node-of-{customer}",
            "GOODPUT_STATE_DIR": str(tmp_path / customer / "state"),
        }
        lines = [line.replace("/etc/goodput/token", str(token)) for line in (save_line, run_line)]
        assert all(str(token) in line for line in lines)
        subprocess.run(["bash", "-c", lines[0]], env=environ, check=True)
        assert token.stat().st_mode & 0o777 == 0o600
        log = (tmp_path / customer / "log").open("wb")
        agent = subprocess.Popen(
            ["bash", "-c", lines[1]], cwd=ROOT, env=environ, stderr=log, stdout=log, process_group=0
        )
        started.append(agent)

    yield install
    for agent in started:
        os.killpg(agent.pid, signal.SIGTERM)
    for agent in started:
        agent.wait(30)


def set_up_provider(there: Visit) -> None:
    """By the one-time link of the first start: a password, a second factor, the console."""
    printed = there.server.manage(
        "create_user", "--email", "pat@provider.example", "--provider", "--base-url", there.server.url
    )
    page = there.page
    page.goto(re.search(r"link: (\S+)", printed)[1])  # type: ignore[index]
    page.get_by_role("button", name="Enter").click()
    page.get_by_label("New password", exact=True).fill(PASSWORD)
    page.get_by_label("New password, again").fill(PASSWORD)
    page.get_by_role("button", name="Set password").click()
    page.wait_for_url("**/account/second-factor/")  # no console without one, where others can reach the server
    page.get_by_role("link", name="Set up").click()
    secret = re.sub(r"\s", "", page.locator("#totp-secret").inner_text())
    page.get_by_label("Authenticator code").fill(format_hotp_value(hotp_value(secret, int(time.time()) // 30)))
    page.get_by_role("button", name="Turn on").click()
    page.wait_for_selector("#codes")
    page.goto(there.server.url)
    page.wait_for_url("**/provider/")


def add_customer(there: Visit, slug: str) -> tuple[str, str, str]:
    """(the owner's link, the line that keeps the key, the line that starts the agent), from one form."""
    page = there.page
    page.get_by_role("link", name="New org").click()
    page.get_by_label("Name", exact=True).fill(f"{slug.title()} AI")
    page.get_by_label("Short name").fill(slug)
    page.get_by_label("E-mail address of its first owner").fill(f"owner@{slug}.example")
    page.get_by_label("Cluster").fill(f"cluster-of-{slug}")
    page.get_by_role("button", name="Create org").click()
    page.wait_for_selector("#link")
    assert problems_of(page) == []
    shown = tuple(page.locator(f"#{name}").inner_text() for name in ("link", "save", "run"))
    page.get_by_role("link", name="Done").click()
    page.wait_for_load_state()
    page.goto(f"{there.server.url}/provider/")
    return shown  # type: ignore[return-value]


def sees_only(page: Any, url: str, slug: str) -> None:
    """The page of this customer shows its node and nothing of the others; their pages are not there."""
    until = time.monotonic() + PATIENCE
    while f"node-of-{slug}" not in page.content():
        assert time.monotonic() < until, f"no data of {slug}: {page.locator('main').inner_text()[:500]}"
        page.wait_for_timeout(2000)
    assert f"cluster-of-{slug}" in page.content()
    api = page.request.get(f"{url}/v1/nodes").text()
    assert f"node-of-{slug}" in api
    for other in set(CUSTOMERS) - {slug}:
        assert f"of-{other}" not in page.content() + api
        assert page.request.get(f"{url}/o/{other}/").status == 404
        assert page.request.get(f"{url}/v1/nodes?org={other}").status == 404
    assert page.request.get(f"{url}/provider/").status == 404


def test_three_customers_from_an_empty_installation(person: Any, agents: Any, empty_server: Server) -> None:
    began = time.monotonic()
    provider = person(1440)
    set_up_provider(provider)
    handed_over = {slug: add_customer(provider, slug) for slug in CUSTOMERS}
    print(f"three customers were set up in {time.monotonic() - began:.0f} s")
    for slug, (_, save_line, run_line) in handed_over.items():
        assert f"--endpoint {empty_server.url}/v1/batches --cluster cluster-of-{slug}" in run_line
        agents(slug, save_line, run_line)

    for slug, (link, *_) in handed_over.items():
        phone = person(390)
        phone.page.goto(link)
        phone.page.get_by_label("Password").fill(PASSWORD)
        phone.page.get_by_role("button", name=f"Join {slug.title()} AI").click()
        phone.page.wait_for_url(f"**/o/{slug}/")
        sees_only(phone.page, empty_server.url, slug)
        assert phone.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert problems_of(phone.page) == []
        assert phone.page.evaluate("window.policyViolations") == []

        desktop = person(1440)
        desktop.page.goto(f"{empty_server.url}/")
        desktop.page.get_by_label("E-mail address").fill(f"owner@{slug}.example")
        desktop.page.get_by_label("Password").fill(PASSWORD)
        desktop.page.get_by_role("button", name="Sign in", exact=True).click()
        desktop.page.wait_for_url(f"**/o/{slug}/")
        sees_only(desktop.page, empty_server.url, slug)
        assert desktop.page.evaluate("window.policyViolations") == []

    provider.page.goto(f"{empty_server.url}/provider/")
    for slug in CUSTOMERS:
        assert f"{slug.title()} AI" in provider.page.content()
