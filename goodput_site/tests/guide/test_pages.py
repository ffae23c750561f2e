"""The guide's pages and files: open to all, complete, true to the code, naming the host that they were read from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from agent import wire
from goodput_site.guide import content, markup
from goodput_site.guide.views import SERVED

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.django_db
HOST = "10.11.12.13:8080"


@pytest.fixture
def reader(settings: Any, lan: Any, tmp_path: Path) -> Client:
    """Somebody without a login, who reached a server in lan mode by its address."""
    settings.ALLOWED_HOSTS = ["10.11.12.13", "localhost"]
    settings.GOODPUT_VAR = tmp_path
    return Client(HTTP_HOST=HOST)


@pytest.mark.parametrize("page", content.PAGES, ids=lambda page: page.name or "overview")
def test_each_page_opens_without_a_login(page: content.Page, reader: Client) -> None:
    response = reader.get(page.path)
    assert response.status_code == 200
    text = response.content.decode()
    assert "<h1>" in text
    assert "{{" not in text
    assert "@GOODPUT" not in text
    assert "vercel.app" not in text


def test_install_lines_name_the_host_that_they_were_read_from(reader: Client) -> None:
    for path, line in {
        "/guide/linux/": f"curl -fsSL http://{HOST}/install-linux.sh | bash",
        "/guide/windows/": f"irm http://{HOST}/install-windows.ps1 | iex",
        "/guide/compose/": f"curl -fsSL -o docker-compose.yml http://{HOST}/docker-compose.release.yml",
        "/guide/agent-only/": f"--endpoint http://{HOST}/v1/batches",
        "/guide/health-checks/": f"curl -sf http://{HOST}/healthz",
    }.items():
        assert line in reader.get(path).content.decode(), path
    assert f"origin=${{GOODPUT_ORIGIN:-http://{HOST}}}" in reader.get("/install-linux.sh").content.decode()
    assert f"$origin = 'http://{HOST}'" in reader.get("/install-windows.ps1").content.decode()


@pytest.mark.parametrize(
    "path", ["/guide/linux/", "/install-linux.sh", "/llms-full.txt", "/guides/ios-dashboard-setup.txt"]
)
@pytest.mark.parametrize("host", ["evil.example", "10.11.12.13@evil.example", "localhost;rm", "localhost'", "a b"])
def test_a_forged_host_is_never_shown(path: str, host: str, reader: Client) -> None:
    response = reader.get(path, headers={"host": host, "x-forwarded-host": "evil.example"})
    assert response.status_code == 400
    assert "evil" not in response.content.decode()


def test_a_forwarded_host_is_not_believed(reader: Client) -> None:
    text = reader.get("/install-linux.sh", headers={"x-forwarded-host": "evil.example", "x-forwarded-proto": "gopher"})
    assert "evil" not in text.content.decode()
    assert f"http://{HOST}" in text.content.decode()


def test_the_data_contract_lists_every_key_of_the_wire_and_no_other() -> None:
    page = next(each for each in content.PAGES if each.name == "data-contract")
    blocks = markup.parse(content.text_of(page, "http://localhost"))
    shown: dict[str, dict[str, str]] = {}
    anchor = ""
    for block in blocks:
        if block.kind == "h3":
            anchor = block.anchor
        elif block.kind == "table" and anchor:
            for row in block.rows:
                words = ["".join(span.text for span in cell) for cell in row]
                shown.setdefault(anchor, {})[words[0]] = words[3]
    wanted = {
        name.lower().replace("_", "-"): {field.key: field.meaning for field in fields}
        for name, fields in wire.TABLES.items()
    }
    assert shown == wanted


def test_the_plain_text_holds_every_page_and_no_marks(reader: Client) -> None:
    response = reader.get("/llms-full.txt")
    text = response.content.decode()
    assert response["Content-Type"].startswith("text/plain")
    for page in content.PAGES:
        title = content.text_of(page, "http://x").splitlines()[0]
        assert title in text, page
    assert not re.search(r"\{\{|\{#|```\w+ (run|parse)|@GOODPUT", text)


def test_the_guide_says_what_the_specification_says(reader: Client) -> None:
    """The product's published guide: its commands, defaults, paths and words, with this host in place of its own."""
    text = reader.get("/llms-full.txt").content.decode()
    for words in (
        "chmod +x install-linux.sh && ./install-linux.sh",
        "~/goodput",
        "%USERPROFILE%\\goodput",
        "docker compose up -d",
        "devtoken",
        "local-dev",
        "devpassword",
        "deploy/helm/goodput-monitor/",
        "POST /v1/batches",
        "X-Goodput-Dropped-Batches",
        f"goodput-{content.version()}-linux-amd64.tar.gz",
        f"goodput-agent:{content.version()}",
        f"goodput-ingest:{content.version()}",
        "/releases/manifest.json",
        "/guides/ios-dashboard-setup.txt",
        "http://INGEST_HOST:8080/v1/batches",
        "Add to Home Screen",
    ):
        assert words in text, words


def test_the_contract_names_every_header_that_an_agent_may_send(reader: Client) -> None:
    text = next(content.text_of(page, "http://x") for page in content.PAGES if page.name == "data-contract")
    for name in [value for key, value in vars(wire).items() if key.startswith("HEADER_")]:
        assert name in text, name


def test_links_inside_the_guide_lead_somewhere(reader: Client) -> None:
    for page in content.PAGES:
        for href in set(re.findall(r'href="(/(?!static/)[^"#]*)', reader.get(page.path).content.decode())):
            if href.startswith("/releases/"):
                continue  # there is no release in this test
            assert reader.get(href).status_code in {200, 302}, (page.name, href)


def test_the_manifest_without_a_release_is_a_clear_problem(reader: Client) -> None:
    for path in ("/releases/manifest.json", "/releases/goodput-9.9.9-linux-amd64.tar.gz"):
        response = reader.get(path)
        assert response.status_code == 404
        assert response["Content-Type"] == "application/problem+json"
        assert response.json()["code"] == "no_release"
        assert "manage offer_release" in response.json()["detail"]


@pytest.mark.parametrize("name", ["..", ".hidden", "..%2Fsecrets%2Fsecret_key", "link", "a%00b", "%2Fetc%2Fpasswd"])
def test_only_plain_files_of_the_folder_are_served(name: str, reader: Client, tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "secret_key").write_text("CANARY")
    (tmp_path / "releases").mkdir()
    (tmp_path / "releases" / ".hidden").write_text("CANARY")
    (tmp_path / "releases" / "link").symlink_to(tmp_path / "secrets" / "secret_key")
    response = reader.get(f"/releases/{name}")
    assert response.status_code == 404
    assert "CANARY" not in response.content.decode()


def test_the_served_compose_file_builds_from_this_servers_archive(reader: Client) -> None:
    text = reader.get("/docker-compose.release.yml").content.decode()
    source = f"http://{HOST}/releases/goodput-{content.version()}-source.tar.gz"
    assert text.count(f"${{GOODPUT_BUILD_CONTEXT:-{source}}}") == 2
    assert f"GOODPUT_VERSION:-{content.version()}}}" in text


def test_every_served_file_exists_and_is_not_shared_by_caches(reader: Client) -> None:
    for name, file in SERVED.items():
        assert (ROOT / file).exists()
        assert reader.get(f"/{name}")["Cache-Control"] == "no-cache"


def test_markup_keeps_hostile_text_text() -> None:
    (block,) = markup.parse("[x](javascript:alert) <b>`<script>`</b>")
    assert all(span.kind != "link" for span in block.spans)
    assert any(span.kind == "code" and span.text == "<script>" for span in block.spans)
