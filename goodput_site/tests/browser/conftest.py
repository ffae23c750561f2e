"""A real server on its own database, and Debian's Chromium to look at it."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from goodput_site.tests.browser.walk import ids, sessions

__all__ = ["ids", "sessions"]

ROOT = Path(__file__).resolve().parents[3]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

WIDTHS = (390, 320, 820, 1440, 3840)
COLOURS = ("light", "dark")
# Two frames after a new size or other colours everything is drawn.
DRAWN = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


@dataclass
class Server:
    """A running server; `manage` runs a command of manage.py beside it and returns what it printed."""

    url: str
    environ: dict[str, str]

    def manage(self, *arguments: str) -> str:
        """Run manage.py; a failure fails the test with what it said."""
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments], cwd=ROOT, env=self.environ, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def simulate(self, org: str, nodes: int, minutes: int, cluster: str = "demo") -> None:
        """Give an org a simulated past."""
        self.manage(
            *("simulate", "--org", org, "--nodes", str(nodes), "--days", str(minutes / 1440)),
            *("--cluster", cluster, "--seed", "3"),
        )


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Granian in local mode over a fresh database, with two simulated nodes in the org `local`."""
    base = urlsplit(os.environ["DATABASE_URL"])
    name = f"browser_{secrets.token_hex(4)}"
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as admin:
        admin.execute(f'create database "{name}"')
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environ = {
        **os.environ,
        "DATABASE_URL": urlunsplit(base._replace(path=f"/{name}")),
        "GOODPUT_EXPOSE": "local",
        "GOODPUT_PORT": str(port),
        "GOODPUT_VAR": str(tmp_path_factory.mktemp("var")),
        "DJANGO_SETTINGS_MODULE": "goodput_site.settings",
    }
    running = Server(f"http://localhost:{port}", environ)
    running.manage("prepare")
    running.simulate("local", nodes=2, minutes=80)
    web = subprocess.Popen(
        [
            *(str(Path(sys.executable).with_name("granian")), "--interface", "wsgi", "--host", "127.0.0.1"),
            *("--port", str(port), "--no-ws", "goodput_site.wsgi:application"),
        ],
        cwd=ROOT,
        env=environ,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait(f"{running.url}/healthz", web)
        yield running
    finally:
        web.terminate()
        web.wait(15)
        with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as admin:
            admin.execute(f'drop database "{name}" with (force)')


def _wait(url: str, process: subprocess.Popen[bytes], seconds: float = 60) -> None:
    """Until the server answers."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert process.poll() is None, "the server ended at once"
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except OSError:
            time.sleep(0.2)
    raise TimeoutError(url)


@pytest.fixture(scope="package")
def chromium() -> Iterator[Any]:
    """The browser; skips where Debian's chromium is not installed.

    For this package's tests only: while it is there a loop runs in this thread, and neither Django's database nor
    anything that starts a loop of its own works beside it.
    """
    if CHROMIUM is None:
        pytest.skip("no chromium here: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass
class Visit:
    """A page with everything that went wrong on it: console errors, policy violations, requests to other hosts."""

    page: Any
    server: Server
    errors: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def go(self, path: str) -> Any:
        """Open a path of the server and wait until it is quiet."""
        response = self.page.goto(self.server.url + path, wait_until="load")
        self.page.wait_for_timeout(150)
        return response

    def in_all_shapes(self) -> Iterator[tuple[int, str]]:
        """Turn and stretch the page through all widths and both colours, as a person does with a window: (px, colours).

        That is what a page must bear anyway, and ten times as fast as ten loads.
        """
        for colours in COLOURS:
            self.page.emulate_media(color_scheme=colours)
            for width in WIDTHS:
                self.page.set_viewport_size({"width": width, "height": 900})
                self.page.evaluate(DRAWN)
                yield width, colours

    def assert_clean(self) -> None:
        """Nothing went wrong so far."""
        violations = self.page.evaluate("window.policyViolations")
        assert (self.errors, self.foreign, violations) == ([], [], [])


@pytest.fixture
def visit(chromium: Any, server: Server) -> Iterator[Any]:
    """A function: a fresh visitor's page, by viewport width, colours, and whatever a browser context takes."""
    contexts = []

    def open_page(width: int = 1440, colours: str = "light", height: int = 900, **more: Any) -> Visit:
        context = chromium.new_context(
            viewport={"width": width, "height": height},
            color_scheme=colours,
            timezone_id=more.pop("timezone_id", "Europe/Berlin"),
            **more,
        )
        contexts.append(context)
        page = context.new_page()
        visit = Visit(page, server)
        page.add_init_script(
            "window.policyViolations = []; document.addEventListener('securitypolicyviolation',"
            " (e) => window.policyViolations.push(`${e.violatedDirective} ${e.blockedURI}`));"
        )
        page.on("console", lambda m: visit.errors.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: visit.errors.append(str(error)))
        page.on("request", lambda r: None if r.url.startswith(server.url) else visit.foreign.append(r.url))
        return visit

    yield open_page
    for context in contexts:
        context.close()
