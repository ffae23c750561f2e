"""The supervisor with real processes: whoever is killed, the next state is a whole one."""

import os
import signal
import socket
import subprocess
import sys

import psutil
import pytest

from goodput_site.launcher.processes import end_leftovers, http_status, start_time

from .conftest import Installation, eventually

pytestmark = pytest.mark.slow
PARTS = ("pg", "valkey", "web", "worker", "beat", "agent")


@pytest.mark.parametrize("name", PARTS)
def test_killed_part_comes_back(running: Installation, name: str) -> None:
    before = running.part(name)
    family = [psutil.Process(before["pid"]), *psutil.Process(before["pid"]).children(recursive=True)]
    os.kill(before["pid"], signal.SIGKILL)
    eventually(lambda: running.part(name)["restarts"] > before["restarts"] and running.part(name)["state"] == "up")
    assert running.part(name)["pid"] != before["pid"]
    eventually(lambda: not any(process.is_running() for process in family))
    assert http_status(running.port, "/") == 200


def test_all_parts_killed_at_once_come_back(running: Installation) -> None:
    before = {part["name"]: part for part in running.status()["parts"] if part["pid"]}
    for part in before.values():
        os.kill(part["pid"], signal.SIGKILL)
    for name, part in before.items():
        eventually(lambda name=name, part=part: running.part(name)["pid"] not in (None, part["pid"]))
    eventually(lambda: all(part["state"] in ("up", "done") for part in running.status()["parts"]))
    assert http_status(running.port, "/") == 200


def test_second_up_says_that_it_runs(running: Installation) -> None:
    again = running.run("up", "--port", str(running.port))
    assert again.returncode == 0
    assert f"already running: http://localhost:{running.port}/" in again.stdout


def test_status_lists_parts_and_health(running: Installation) -> None:
    shown = running.run("status")
    assert shown.returncode == 0, shown.stdout
    assert all(name in shown.stdout for name in PARTS)
    assert "/healthz   200" in shown.stdout


def test_logs_of_one_part(running: Installation) -> None:
    assert "'--source', 'sim'" in running.run("logs", "agent").stdout
    assert "There is no log 'nobody'" in running.run("logs", "nobody").stdout


def test_manage_uses_the_running_database(running: Installation) -> None:
    assert "['shell'] 42" in running.run("manage", "shell").stdout


def test_secrets_are_not_for_others(running: Installation) -> None:
    var = running.folder / "var"
    for file in [*(var / "secrets").iterdir(), var / "run/env.json", var / "valkey/valkey.conf"]:
        assert file.stat().st_mode & 0o077 == 0, file
    password = (var / "secrets/database_password").read_text()
    assert not any(password in " ".join(process.cmdline()) for process in running.processes())


def test_ctrl_c_stops_everything(installation: Installation) -> None:
    installation.up()
    installation.supervisor.send_signal(signal.SIGINT)
    assert installation.supervisor.wait(30) == 0
    assert installation.processes() == []
    assert installation.status() == {}
    assert installation.output.read_text().endswith("Stopped.\n")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel ends orphans on Linux only")
def test_killed_supervisor_leaves_nothing(installation: Installation) -> None:
    installation.up()
    installation.supervisor.kill()
    installation.supervisor.wait()
    eventually(lambda: installation.processes() == [], lambda: str(installation.processes()), 15)


def test_next_up_right_after_a_killed_supervisor(installation: Installation) -> None:
    """Also when a web worker lost its parent in the same moment and still serves the port."""
    installation.up()
    web = installation.part("web")["pid"]
    installation.supervisor.kill()
    os.kill(web, signal.SIGKILL)
    installation.supervisor.wait()
    installation.up()
    assert http_status(installation.port, "/") == 200
    assert all(psutil.Process(part["pid"]) for part in installation.status()["parts"] if part["pid"])


def test_leftovers_are_known_by_our_mark(installation: Installation) -> None:
    idle = [sys.executable, "-c", "import time; time.sleep(60)"]
    ours = subprocess.Popen(idle, env=installation.env, process_group=0)
    other = subprocess.Popen(idle, process_group=0)
    try:
        assert end_leftovers([ours.pid, other.pid], ("GOODPUT_VAR", installation.env["GOODPUT_VAR"])) == 1
        assert start_time(ours.pid) is None
        assert other.poll() is None
    finally:
        for child in (ours, other):
            child.kill()
            child.wait()


def test_part_that_keeps_failing_is_tried_less_often_and_named(installation: Installation) -> None:
    installation.start(AGENT_FAILS="1")
    eventually(lambda: installation.status() and installation.part("agent")["restarts"] >= 3)
    assert installation.part("agent")["message"] == "ended with exit status 1: no driver today"
    shown = installation.run("status")
    assert shown.returncode == 1
    assert "no driver today" in shown.stdout
    assert http_status(installation.port, "/") == 200  # the others are not touched
    assert "starting it again in 0.8 s" in installation.output.read_text()


def test_failed_preparation_is_one_sentence(installation: Installation) -> None:
    supervisor = installation.start(PREPARE_FAILS="1")
    assert supervisor.wait(30) == 1
    said = installation.output.read_text()
    assert "goodput: prepare ended with exit status 1: no room on the table" in said
    assert "Traceback" not in said
    assert installation.processes() == []


def test_a_release_that_cannot_be_made_stops_nobody(installation: Installation) -> None:
    installation.up(RELEASE_FAILS="no compiler of releases")
    assert installation.part("release")["state"] == "failed"
    assert http_status(installation.port, "/") == 200
    shown = installation.run("status")
    assert shown.returncode == 1
    assert "no compiler of releases" in shown.stdout


def test_taken_port_is_one_sentence(installation: Installation) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        said = installation.run("up", "--port", str(port))
    assert said.returncode == 1
    assert f"goodput: Port {port} is taken by" in said.stdout
    assert f"--port {port + 1}" in said.stdout
    assert "Traceback" not in said.stdout


def test_detached_up_returns_and_down_ends_it(installation: Installation) -> None:
    started = installation.run("up", "--detach", "--port", str(installation.port), "--no-agent")
    assert started.returncode == 0
    assert f"Goodput is up:  http://localhost:{installation.port}/" in started.stdout
    assert installation.run("down").stdout == "Stopped.\n"
    assert installation.processes() == []
    assert installation.run("down").stdout == "Goodput is not running.\n"


def test_manage_starts_the_databases_when_nothing_runs(installation: Installation) -> None:
    assert "['shell'] 42" in installation.run("manage", "shell").stdout
    assert installation.processes() == []


def test_lan_prints_addresses_and_the_owners_link(installation: Installation) -> None:
    installation.up("--lan", GOODPUT_QR="1")
    eventually(lambda: "/link/secret" in installation.output.read_text())
    assert "█" in installation.output.read_text()


@pytest.mark.parametrize(
    ("flag", "variables", "sentence"),
    [
        ("--lan", {"GOODPUT_AGENT_TOKEN": "devtoken"}, "GOODPUT_AGENT_TOKEN holds the published default 'devtoken'"),
        ("--lan", {"DATABASE_URL": "postgresql://u:devpassword@h/d"}, "DATABASE_URL holds the published default"),
        ("--public", {}, "A public server needs HTTPS"),
    ],
)
def test_unsafe_exposure_is_refused(
    installation: Installation, flag: str, variables: dict[str, str], sentence: str
) -> None:
    said = installation.run("up", flag, **variables)
    assert said.returncode == 1
    assert sentence in said.stdout


def test_unreachable_external_servers_are_one_sentence(installation: Installation) -> None:
    said = installation.run("up", "--port", str(installation.port), DATABASE_URL="postgresql://u:p@127.0.0.1:9/d")
    assert said.returncode == 1
    assert "goodput: The server of DATABASE_URL does not answer: connection failed" in said.stdout
    assert "Traceback" not in said.stdout
    said = installation.run("up", "--port", str(installation.port), REDIS_URL="redis://127.0.0.1:9/0")
    assert said.returncode == 1
    assert "goodput: The server of REDIS_URL does not answer: [Errno 111]" in said.stdout
    assert "Traceback" not in said.stdout
