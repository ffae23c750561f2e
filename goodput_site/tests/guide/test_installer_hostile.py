"""install-linux.sh where the machine is against it: no home, odd paths, a lying proxy, a full disk, a second one."""

from __future__ import annotations

import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from goodput_site.guide import content
from goodput_site.tests.guide.test_installer import ROOT, SCRIPT, Offered, files_of, refused, run
from goodput_site.tests.guide.tools import tool

VERSION = content.version()


def piped(shell: str, origin: str, home: Path, *flags: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The guide's line: the script through a pipe into this shell, in a session without a terminal."""
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "GOODPUT_ORIGIN": origin, "NO_PROXY": "*", **more}
    home.mkdir(parents=True, exist_ok=True)
    return subprocess.run(
        [shell, "-s", "--", *flags],
        env={name: value for name, value in env.items() if value},
        input=SCRIPT.read_text(),
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
    )


def instead_of(program: str, text: str, tmp_path: Path) -> dict[str, str]:
    """A PATH in which `program` is this shell script."""
    folder = tmp_path / "instead"
    folder.mkdir()
    (folder / program).write_text(f"#!/bin/sh\n{text}\n")
    (folder / program).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_a_home_with_spaces_in_either_shell(shell: str, offered: Offered, tmp_path: Path) -> None:
    home = tmp_path / "a b  c & more"
    done = piped(tool(shell), offered[0], home, "--agent-only", "--user", "--cluster", "c1")
    assert done.returncode == 0, done.stderr
    command = home / ".local/bin/goodput-agent"
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "GOODPUT_SOURCE": "sim"}
    shown = subprocess.run([command, "once", "--dry-run"], env=env, capture_output=True, text=True)
    assert '"cluster_id": "c1"' in shown.stdout, shown.stderr
    file = home / ".config/systemd/user/goodput-agent.service"
    if analyze := shutil.which("systemd-analyze"):
        read = subprocess.run([analyze, "verify", "--user", file], capture_output=True, text=True)
        assert "goodput-agent.service" not in read.stderr
    unit = file.read_text()
    assert f'ExecStart="{home}/.local/share/goodput/goodput-agent" run\n' in unit


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_a_home_that_cant_be_quoted_is_refused(shell: str, offered: Offered, tmp_path: Path) -> None:
    home = tmp_path / "Jo's home"
    done = piped(tool(shell), offered[0], home, "--agent-only", "--user", "--cluster", "c1")
    assert done.returncode != 0
    assert "quotation mark" in done.stderr
    assert files_of(home) == {}


def test_without_home_the_accounts_own_is_taken(offered: Offered, tmp_path: Path) -> None:
    """As cloud-init and some timers run it: no HOME at all."""
    done = piped("bash", offered[0], tmp_path / "unused", "--agent-only", "--root", str(tmp_path / "root"), HOME="")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "root/opt/goodput/goodput-agent").exists()


def test_a_closed_umask_still_gives_a_command_for_all(offered: Offered, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert run(offered[0], tmp_path, "--agent-only").returncode == 0
    finally:
        os.umask(before)
    for path in ("opt", "opt/goodput", "opt/goodput/goodput-agent", "usr/local/bin/goodput-agent", "etc/goodput"):
        assert (tmp_path / "root" / path).stat().st_mode & 0o005 == 0o005, path


@pytest.fixture
def liar() -> Iterator[str]:
    """A proxy that answers everything with a page of its own, and 200."""

    class Portal(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = b"<html>Please sign in to the hotel's network</html>"
            self.send_response(200)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Portal) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_proxys_own_page_is_no_release(liar: str, tmp_path: Path) -> None:
    done = run("http://goodput.example", tmp_path, "--agent-only", NO_PROXY="", http_proxy=liar)
    refused(done, tmp_path, "Did a proxy answer")


def test_a_place_that_cant_be_written_is_told(offered: Offered, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/opt").write_text("a file")
    done = run(offered[0], tmp_path, "--agent-only")
    assert done.returncode != 0
    assert "/opt/goodput can't be made" in done.stderr
    assert list(files_of(tmp_path / "root")) == ["opt"]


def test_a_full_disk_leaves_the_old_agent_and_no_half_file(offered: Offered, tmp_path: Path) -> None:
    assert run(offered[0], tmp_path, "--agent-only").returncode == 0
    root = tmp_path / "root"
    (root / "opt/goodput/VERSION").write_text("0.0.1\n")
    before = files_of(root)
    full = 'case $2 in *goodput-agent.new.*) head -c 1000 "$1" > "$2"; echo "No space left" >&2; exit 1 ;; esac\n'
    done = run(offered[0], tmp_path, "--agent-only", **instead_of("cp", f'{full}exec /bin/cp "$@"', tmp_path))
    assert done.returncode != 0
    assert "can't be written" in done.stderr
    assert files_of(root) == before
    assert run(offered[0], tmp_path, "--agent-only").returncode == 0
    assert (root / "opt/goodput/VERSION").read_text().strip() == VERSION


def test_ended_half_way_it_leaves_nothing_and_can_be_removed(offered: Offered, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    ended = 'case $2 in *agent.env.new.*) kill -TERM "$PPID"; exit 0 ;; esac\nexec /bin/cp "$@"'
    more = {**instead_of("cp", ended, tmp_path), "TMPDIR": str(tmp_path / "tmp")}
    done = run(offered[0], tmp_path, "--agent-only", **more)
    assert done.returncode == 130
    assert list((tmp_path / "tmp").iterdir()) == []
    root = tmp_path / "root"
    assert not [name for name in files_of(root) if ".new." in name]
    assert not (root / "opt/goodput/VERSION").exists()  # written last: it is not installed
    assert not (root / "opt/goodput/.installing").is_symlink()
    assert run(offered[0], tmp_path, "--agent-only", "--uninstall", "--purge").returncode == 0
    assert files_of(root) == {}


@pytest.mark.parametrize("flags", [("--agent-only",), ("--no-docker",)], ids=["agent", "server"])
def test_two_at_once_take_turns(flags: tuple[str, ...], offered: Offered, tmp_path: Path) -> None:
    assert run(offered[0], tmp_path, *flags).returncode == 0
    folder = next((tmp_path / "root").rglob("VERSION")).parent
    lock = folder / ".installing"
    assert not lock.is_symlink()
    lock.symlink_to(str(os.getpid()))  # one that lives
    done = run(offered[0], tmp_path, *flags)
    assert done.returncode == 75
    assert "under way" in done.stderr
    assert os.readlink(lock) == str(os.getpid())
    lock.unlink()
    gone = subprocess.Popen(["true"])
    gone.wait()
    lock.symlink_to(str(gone.pid))  # one that was killed
    assert run(offered[0], tmp_path, *flags).returncode == 0
    assert not lock.is_symlink()


@pytest.mark.parametrize("command", [("uninstall",), ("uninstall", "purge")])
def test_to_remove_what_is_not_there_is_no_error(command: tuple[str, ...], offered: Offered, tmp_path: Path) -> None:
    for flags in (("--agent-only",), ("--no-docker",), ()):
        done = run(offered[0], tmp_path, *flags, *(f"--{word}" for word in command))
        assert done.returncode == 0, done.stderr
    assert files_of(tmp_path / "root") == {}


def test_it_reads_as_dash_and_as_bash() -> None:
    for shell in ("bash", "dash"):
        parsed: Any = subprocess.run([tool(shell), "-n", ROOT / "deploy/install/install-linux.sh"])
        assert parsed.returncode == 0
