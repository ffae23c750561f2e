"""install-linux.sh, really run against a loopback server, below throw-away folders: what it does, what it refuses."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from django.core.management import call_command

from goodput_site.guide import building, content
from goodput_site.tests.guide.conftest import make_key

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "deploy/install/install-linux.sh"
VERSION = content.version()
Offered = tuple[str, Path]


def run(origin: str, root: Path, *flags: str, script: Path = SCRIPT, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the installer with a home and a root of its own and without a terminal."""
    home = root / "home"
    home.mkdir(parents=True, exist_ok=True)
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "GOODPUT_ORIGIN": origin, "NO_PROXY": "*", **more}
    if "--user" not in flags:
        env["GOODPUT_INSTALL_ROOT"] = str(root / "root")
    return subprocess.run(
        ["bash", script, *flags], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


@pytest.fixture
def token(tmp_path: Path) -> Path:
    """A key file as somebody would be sent it."""
    file = tmp_path / "token"
    file.write_text("gp_i_testtest_secret\n")
    return file


def test_agent_only_as_root(offered: Offered, tmp_path: Path, token: Path) -> None:
    origin, _ = offered
    flags = ("--agent-only", "--endpoint", "central.example", "--token-file", str(token), "--cluster", "c1")
    done = run(origin, tmp_path, *flags)
    assert done.returncode == 0, done.stderr
    root = tmp_path / "root"
    assert (root / "opt/goodput/VERSION").read_text().strip() == VERSION
    env = (root / "etc/goodput/agent.env").read_text()
    assert "GOODPUT_ENDPOINT=http://central.example:8080/v1/batches\n" in env
    assert "GOODPUT_CLUSTER=c1\n" in env
    assert stat.S_IMODE((root / "etc/goodput/token").stat().st_mode) == 0o600
    assert stat.S_IMODE((root / "var/lib/goodput-agent").stat().st_mode) == 0o700
    assert "LoadCredential=goodput-token" in (root / "etc/systemd/system/goodput-agent.service").read_text()
    shown = subprocess.run([root / "opt/goodput/goodput-agent", "version"], capture_output=True, text=True, check=True)
    assert VERSION in shown.stdout
    for path in files_of(root):
        assert f"{root}/{path}" in done.stdout, f"{path} was not told"
    assert "signature: good" in done.stdout


def test_agent_only_for_a_user(offered: Offered, tmp_path: Path, token: Path) -> None:
    done = run(offered[0], tmp_path, "--agent-only", "--user", "--token-file", str(token))
    assert done.returncode == 0, done.stderr
    home = tmp_path / "home"
    assert (home / ".local/share/goodput/goodput-agent").exists()
    env = (home / ".config/goodput/agent.env").read_text()
    assert f"GOODPUT_ENDPOINT={offered[0]}/v1/batches" in env
    assert f"GOODPUT_TOKEN_FILE={home}/.config/goodput/token" in env
    assert (home / ".config/systemd/user/goodput-agent.service").exists()


def test_the_command_knows_the_settings_of_the_machine(offered: Offered, tmp_path: Path, token: Path) -> None:
    """`goodput-agent doctor`, as the guide writes it, asks the server that this node reports to."""
    flags = ("--agent-only", "--user", "--token-file", str(token), "--cluster", "a b")
    assert run(offered[0], tmp_path, *flags).returncode == 0
    command = tmp_path / "home/.local/bin/goodput-agent"
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "GOODPUT_SOURCE": "sim"}
    shown = subprocess.run([command, "once", "--dry-run"], env=env, capture_output=True, text=True)
    assert '"cluster_id": "a b"' in shown.stdout, shown.stderr
    shown = subprocess.run([command, "doctor"], env=env, capture_output=True, text=True)
    assert f"{offered[0]}/v1/batches" in shown.stdout
    shown = subprocess.run(
        [command, "once", "--dry-run"], env={**env, "GOODPUT_CLUSTER": "mine"}, capture_output=True, text=True
    )
    assert '"cluster_id": "mine"' in shown.stdout  # a variable of the caller wins
    assert run(offered[0], tmp_path, "--agent-only", "--user", "--uninstall").returncode == 0
    assert not command.exists()


def test_a_command_of_somebody_else_stays(offered: Offered, tmp_path: Path) -> None:
    theirs = tmp_path / "home/.local/bin/goodput-agent"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("#!/bin/sh\n")
    done = run(offered[0], tmp_path, "--agent-only", "--user")
    assert done.returncode == 0, done.stderr
    assert "is not ours and stays" in done.stdout
    assert run(offered[0], tmp_path, "--agent-only", "--user", "--uninstall").returncode == 0
    assert theirs.read_text() == "#!/bin/sh\n"


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("10.0.0.5", "http://10.0.0.5:8080/v1/batches"),
        ("10.0.0.5:9000", "http://10.0.0.5:9000/v1/batches"),
        ("https://g.example", "https://g.example/v1/batches"),
        ("https://g.example/", "https://g.example/v1/batches"),
        ("http://INGEST_HOST:8080/v1/batches", "http://INGEST_HOST:8080/v1/batches"),
    ],
)
def test_the_endpoint_may_be_a_host_or_an_address(given: str, used: str, offered: Offered, tmp_path: Path) -> None:
    assert run(offered[0], tmp_path, "--agent-only", "--endpoint", given).returncode == 0
    assert f"GOODPUT_ENDPOINT={used}\n" in (tmp_path / "root/etc/goodput/agent.env").read_text()


@pytest.mark.parametrize(
    ("is_signed", "runs", "is_taken"),
    [(True, True, True), (True, False, False), (False, True, False)],
    ids=["signed", "too old a machine", "not signed"],
)
def test_a_signed_executable_that_runs_here_is_preferred(
    is_signed: bool,
    runs: bool,
    is_taken: bool,
    offered: Offered,
    tmp_path: Path,
    signing_key: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = f"#!/bin/sh\n{'echo goodput-agent' if runs else 'exit 127'}\n".encode()
    single = building.agent_files(with_binary=False)
    monkeypatch.setattr(building, "agent_files", lambda _: {**single, "goodput-agent": (program, True)})
    call_command("release", out=offered[1], date="2026-11-30", sign_key=signing_key if is_signed else None)
    assert run(offered[0], tmp_path, "--agent-only").returncode == 0
    installed = (tmp_path / "root/opt/goodput/goodput-agent").read_bytes()
    assert installed == (program if is_taken else single["goodput-agent.pyz"][0])


def test_without_a_key_the_unit_asks_for_none(offered: Offered, tmp_path: Path) -> None:
    assert run(offered[0], tmp_path, "--agent-only").returncode == 0
    assert "goodput-token" not in (tmp_path / "root/etc/systemd/system/goodput-agent.service").read_text()


def test_again_is_the_upgrade_and_keeps_settings_and_outbox(offered: Offered, tmp_path: Path, token: Path) -> None:
    flags = ("--agent-only", "--endpoint", "central", "--cluster", "c1", "--token-file", str(token))
    assert run(offered[0], tmp_path, *flags).returncode == 0
    root = tmp_path / "root"
    (root / "var/lib/goodput-agent/outbox.db").write_text("batches")
    with (root / "etc/goodput/agent.env").open("a") as file:
        file.write("GOODPUT_OUTBOX_MB=900\n")
    before = files_of(root)
    (root / "opt/goodput/VERSION").write_text("0.0.1\n")
    again = run(offered[0], tmp_path, "--agent-only")
    assert again.returncode == 0, again.stderr
    after = files_of(root)
    assert sorted(after) == sorted(before)
    same = [name for name in before if name != "etc/goodput/agent.env"]
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    assert sorted(after["etc/goodput/agent.env"].split()) == sorted(before["etc/goodput/agent.env"].split())


def test_a_dry_run_changes_nothing(offered: Offered, tmp_path: Path) -> None:
    for flags in (("--agent-only",), ("--no-docker",)):
        done = run(offered[0], tmp_path, *flags, "--dry-run")
        assert done.returncode == 0, done.stderr
        assert "nothing was changed" in done.stdout
    assert not (tmp_path / "root").exists()
    assert files_of(tmp_path / "home") == {}


def test_uninstall_keeps_data_and_purge_does_not(offered: Offered, tmp_path: Path, token: Path) -> None:
    root = tmp_path / "root"
    assert run(offered[0], tmp_path, "--agent-only", "--token-file", str(token)).returncode == 0
    (root / "var/lib/goodput-agent/outbox.db").write_text("batches")
    assert run(offered[0], tmp_path, "--agent-only", "--uninstall").returncode == 0
    assert sorted(files_of(root)) == ["etc/goodput/agent.env", "etc/goodput/token", "var/lib/goodput-agent/outbox.db"]
    assert run(offered[0], tmp_path, "--agent-only", "--uninstall", "--purge").returncode == 0
    assert files_of(root) == {}


def test_the_server_without_docker_is_laid_out(offered: Offered, tmp_path: Path) -> None:
    done = run(offered[0], tmp_path, "--no-docker")
    assert done.returncode == 0, done.stderr
    server = next((tmp_path / "root").rglob("VERSION")).parent
    assert (server / "current/goodput").stat().st_mode & 0o100
    assert (server / f"goodput-{VERSION}/requirements.lock").exists()
    assert (server / "current/var").resolve() == (server / "var").resolve()
    theirs, ours = files_of(offered[1]), files_of(server / "var/releases")  # it offers further what it was made from
    assert ours == theirs


# What it refuses. Nothing may be installed then.


def refused(done: subprocess.CompletedProcess[str], tmp_path: Path, words: str) -> None:
    """It ended with a sentence and an error, and left nothing behind."""
    assert done.returncode != 0
    assert words in done.stderr
    assert not (tmp_path / "root").exists() or files_of(tmp_path / "root") == {}


def spoil(folder: Path, name: str) -> None:
    """Another content under the same name."""
    (folder / name).write_bytes((folder / name).read_bytes() + b"\0")


def test_a_wrong_checksum_is_refused(offered: Offered, tmp_path: Path) -> None:
    spoil(offered[1], f"goodput-{VERSION}-linux-amd64.tar.gz")
    refused(run(offered[0], tmp_path, "--agent-only"), tmp_path, "SHA-256")


def test_a_cut_download_is_refused(offered: Offered, tmp_path: Path) -> None:
    file = offered[1] / f"goodput-{VERSION}-linux-amd64.tar.gz"
    file.write_bytes(file.read_bytes()[:5000])
    refused(run(offered[0], tmp_path, "--agent-only"), tmp_path, "SHA-256")


def test_changed_checksums_break_the_signature(offered: Offered, tmp_path: Path) -> None:
    sums = offered[1] / f"SHA256SUMS-{VERSION}"
    sums.write_text(re.sub(r"^[0-9a-f]{64}(  goodput-.*linux)", "0" * 64 + r"\1", sums.read_text(), flags=re.M))
    refused(run(offered[0], tmp_path, "--agent-only"), tmp_path, "signature")


def test_a_strangers_key_is_refused(offered: Offered, tmp_path: Path) -> None:
    known = json.loads((offered[1] / "manifest.json").read_text())["signature"]["key"]
    call_command("release", out=offered[1], date="2026-11-30", sign_key=make_key(tmp_path / "other.pem"))
    refused(run(offered[0], tmp_path, "--agent-only", "--key", known), tmp_path, "another key")


def test_the_key_of_the_first_installation_is_remembered(offered: Offered, tmp_path: Path) -> None:
    assert run(offered[0], tmp_path, "--agent-only").returncode == 0
    before = files_of(tmp_path / "root")
    call_command("release", out=offered[1], date="2026-11-30", sign_key=make_key(tmp_path / "other.pem"))
    done = run(offered[0], tmp_path, "--agent-only")
    assert done.returncode != 0
    assert "another key" in done.stderr
    call_command("release", out=offered[1], date="2026-11-30")
    done = run(offered[0], tmp_path, "--agent-only")
    assert done.returncode != 0
    assert "not signed" in done.stderr
    assert files_of(tmp_path / "root") == before


def test_a_downgrade_is_refused_unless_asked_for(offered: Offered, tmp_path: Path) -> None:
    assert run(offered[0], tmp_path, "--agent-only").returncode == 0
    installed = tmp_path / "root/opt/goodput/VERSION"
    installed.write_text("0.10.0\n")
    before = files_of(tmp_path / "root")
    done = run(offered[0], tmp_path, "--agent-only")
    assert done.returncode != 0
    assert "older" in done.stderr
    assert files_of(tmp_path / "root") == before
    assert run(offered[0], tmp_path, "--agent-only", "--allow-downgrade").returncode == 0
    assert installed.read_text().strip() == VERSION


def test_another_version_than_the_wanted_one_is_refused(offered: Offered, tmp_path: Path) -> None:
    refused(run(offered[0], tmp_path, "--agent-only", "--version", "9.9.9"), tmp_path, "can't be fetched")
    assert run(offered[0], tmp_path, "--agent-only", "--version", VERSION).returncode == 0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--agent-only", "--token-file", "/no/such"), "can't be read"),
        (("--agent-only", "--endpoint", "http://x/$(id)"), "odd characters"),
        (("--agent-only", "--cluster", "a\nb=c"), "odd characters"),
        (("--purge",), "--uninstall"),
        (("--no-such",), "no option"),
        (("--endpoint",), "needs a value"),
    ],
)
def test_odd_flags_are_refused(flags: tuple[str, ...], words: str, offered: Offered, tmp_path: Path) -> None:
    refused(run(offered[0], tmp_path, *flags), tmp_path, words)


def test_a_proxy_of_the_environment_is_used(offered: Offered, tmp_path: Path) -> None:
    """A dead proxy makes the download fail: so it was asked."""
    done = run(offered[0], tmp_path, "--agent-only", NO_PROXY="", http_proxy="http://127.0.0.1:9")
    refused(done, tmp_path, "can't be fetched")


def test_without_docker_the_stack_says_what_is_missing(offered: Offered, tmp_path: Path) -> None:
    refused(run(offered[0], tmp_path, PATH=bare_path(tmp_path)), tmp_path, "--no-docker")


def bare_path(tmp_path: Path) -> str:
    """A PATH with what the installer needs and no Docker."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in (
        *("bash", "uname", "id", "curl", "tar", "gzip", "mktemp", "rm", "sed", "head", "grep", "cat", "sort", "tail"),
        *("sha256sum", "cut", "base64", "openssl", "python3", "cp", "mv", "chmod", "mkdir", "cmp", "ln", "readlink"),
    ):
        found = shutil.which(name)
        assert found, name
        (folder / name).symlink_to(found)
    return str(folder)


DOCKER = """#!/bin/sh
echo "$*" >> "$DOCKER_LOG"
case "$*" in info) echo " Runtimes: io.containerd.runc.v2 $DOCKER_RUNTIMES runc" ;; esac
"""


def with_docker(tmp_path: Path, system: str = "Linux", gpus: bool = False) -> dict[str, str]:
    """An environment whose docker writes down what it is asked (there is no Docker here)."""
    folder = Path(bare_path(tmp_path))
    programs = {"docker": DOCKER}
    if gpus:
        programs["nvidia-smi"] = "#!/bin/sh\necho 'GPU 0: NVIDIA H100 (UUID: GPU-1)'\n"
    if system == "Darwin":
        programs["uname"] = '#!/bin/sh\n[ "$1" = -m ] && echo arm64 || echo Darwin\n'
    for name, text in programs.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    runtimes = "nvidia" if gpus else ""
    return {"PATH": str(folder), "DOCKER_LOG": str(tmp_path / "docker.log"), "DOCKER_RUNTIMES": runtimes}


def run_stack(origin: str, tmp_path: Path, env: dict[str, str], *flags: str) -> tuple[str, list[str], Path]:
    """(what it said, what docker was asked, the stack's folder) of an installation of the Docker stack."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    log = Path(env["DOCKER_LOG"])
    log.write_text("")
    done = subprocess.run(
        ["bash", SCRIPT, *flags],
        env={"HOME": str(home), "GOODPUT_ORIGIN": origin, "NO_PROXY": "*", **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, log.read_text().splitlines(), home / "goodput"


@pytest.mark.parametrize("system", ["Linux", "Darwin"])
def test_the_docker_stack_is_laid_out_built_and_started(system: str, offered: Offered, tmp_path: Path) -> None:
    env = with_docker(tmp_path, system)
    said, asked, stack = run_stack(offered[0], tmp_path, env)
    assert asked[-2:] == ["compose build", "compose up -d"]
    assert (stack / "docker-compose.yml").read_bytes() == (ROOT / "docker-compose.release.yml").read_bytes()
    assert (stack / f"goodput-{VERSION}/deploy/docker/server.Dockerfile").exists()
    settings = (stack / ".env").read_text().splitlines()
    assert "COMPOSE_FILE=docker-compose.yml" in settings
    assert f"GOODPUT_BUILD_CONTEXT=./goodput-{VERSION}" in settings
    assert stat.S_IMODE((stack / ".env").stat().st_mode) == 0o600
    assert "Open http://localhost:8080/" in said
    with (stack / ".env").open("a") as file:
        file.write("POSTGRES_PASSWORD=mine\nGOODPUT_PORT=18080\n")
    said, asked, _ = run_stack(offered[0], tmp_path, env)  # again: the upgrade
    assert "Open http://localhost:18080/" in said
    assert "POSTGRES_PASSWORD=mine" in (stack / ".env").read_text()
    assert (stack / ".env").read_text().count("COMPOSE_FILE=") == 1
    _, asked, _ = run_stack(offered[0], tmp_path, env, "--uninstall")
    assert asked[-1].strip() == "compose down --remove-orphans"
    assert sorted(files_of(stack)) == [".env", "release.pub"]
    run_stack(offered[0], tmp_path, env, "--uninstall", "--purge")
    assert not stack.exists()


def test_with_gpus_and_the_toolkit_the_second_file_is_added(offered: Offered, tmp_path: Path) -> None:
    _, _, stack = run_stack(offered[0], tmp_path, with_docker(tmp_path, gpus=True))
    assert "COMPOSE_FILE=docker-compose.yml:docker-compose.gpu.yml" in (stack / ".env").read_text().splitlines()


def test_gpus_without_the_toolkit_are_told(offered: Offered, tmp_path: Path) -> None:
    env = {**with_docker(tmp_path, gpus=True), "DOCKER_RUNTIMES": ""}
    said, _, stack = run_stack(offered[0], tmp_path, env)
    assert "Container Toolkit is not set up" in said
    assert "COMPOSE_FILE=docker-compose.yml" in (stack / ".env").read_text().splitlines()


def test_images_come_from_a_registry_or_an_archive_where_there_is_one(offered: Offered, tmp_path: Path) -> None:
    env = with_docker(tmp_path)
    _, asked, stack = run_stack(offered[0], tmp_path, {**env, "GOODPUT_REGISTRY": "r.example/"})
    assert asked[-2:] == ["compose pull", "compose up -d"]
    _, asked, _ = run_stack(offered[0], tmp_path, env)  # it is remembered
    assert asked[-2:] == ["compose pull", "compose up -d"]
    (stack / ".env").unlink()
    (offered[1] / f"goodput-images-{VERSION}.tar").write_bytes(b"images")
    call_command("release", out=offered[1], date="2026-11-30")
    for key in (tmp_path / "home").rglob("release.pub"):
        key.unlink()
    _, asked, _ = run_stack(offered[0], tmp_path, env)
    assert asked[-2].startswith("load -i ")
    assert asked[-1] == "compose up -d"


def test_macos_gets_the_stack_only(offered: Offered, tmp_path: Path) -> None:
    path = bare_path(tmp_path)
    (Path(path) / "uname").unlink()
    (Path(path) / "uname").write_text('#!/bin/sh\n[ "$1" = -m ] && echo arm64 || echo Darwin\n')
    (Path(path) / "uname").chmod(0o755)
    refused(run(offered[0], tmp_path, "--agent-only", PATH=path), tmp_path, "On macOS only the Docker stack")


def test_cut_at_every_kilobyte_it_does_nothing(offered: Offered, tmp_path: Path) -> None:
    whole = SCRIPT.read_bytes()
    last = len(whole)
    cuts = [*range(0, last, 1024), *range(last - 16, last - 2)]
    cut = tmp_path / "cut.sh"
    for length in cuts:
        cut.write_bytes(whole[:length])
        done = run(offered[0], tmp_path, "--agent-only", script=cut)
        assert not (tmp_path / "root").exists(), length
        assert "installed" not in done.stdout, length


def test_it_speaks_the_bash_of_macos() -> None:
    """Nothing that bash 3.2 lacks: no associative arrays, no case conversion, no `|&`, no mapfile, no arrays at all."""
    text = SCRIPT.read_text()
    for word in (
        r"declare -A",
        r"local -A",
        r"\$\{\w+(,,|\^\^)",
        r"\|&",
        r"mapfile|readarray",
        r"&>>",
        r"\w+=\(",
        r"local -n",
    ):
        assert not re.search(word, text), word
