"""Commands, settings, the local page, the artifacts and their documentation."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from agent import clock, config
from agent.cli import _parser, main
from agent.errors import ConfigError
from agent.import_log import import_text
from agent.tests.rig import Rig

ROOT = Path(__file__).parents[2]
CASES = [json.loads(line) for line in (Path(__file__).parent / "data/field-cases.jsonl").read_text().splitlines()]


def load(*argv, **environ):
    return config.load(vars(_parser().parse_args(["run", *argv])), environ)


def test_flag_wins_over_variable_over_file_over_default(tmp_path):
    file = tmp_path / "agent.toml"
    file.write_text('cluster = "from-file"\nseed = 3\n')
    assert load("--config", str(file)).cluster == "from-file"
    assert load(GOODPUT_CONFIG=str(file)).seed == 3
    assert load("--config", str(file), GOODPUT_CLUSTER="from-env").cluster == "from-env"
    assert load("--config", str(file), "--cluster", "from-flag", GOODPUT_CLUSTER="from-env").cluster == "from-flag"
    assert load().endpoint == "http://127.0.0.1:8080/v1/batches"


@pytest.mark.parametrize(
    "argv",
    [
        ["--source", "magic"],
        ["--seed", "many"],
        ["--outbox-mb", "0"],
        ["--node-id", "a\nb"],
        ["--config", "/no/such/file"],
    ],
)
def test_a_wrong_setting_is_one_sentence_and_code_78(argv, capsys):
    assert main(["run", *argv]) == 78
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("line", ["nonsense = 1", "cluster = ", "seed = 'x'"])
def test_a_wrong_file_is_told(tmp_path, line):
    file = tmp_path / "agent.toml"
    file.write_text(line + "\n")
    with pytest.raises(ConfigError):
        load("--config", str(file))


def test_every_flag_variable_and_command_is_documented():
    text = (ROOT / "docs/agent.md").read_text()
    for option in config.OPTIONS:
        row = next((line for line in text.splitlines() if line.startswith(f"| `{option.flag}` |")), "")
        assert f"`{option.env}`" in row, option.flag
    commands = next(a for a in _parser()._actions if a.dest == "command").choices
    for name, sub in commands.items():
        assert f"| `{name}` |" in text, name
        own = {o for action in sub._actions for o in action.option_strings if o.startswith("--")}
        for flag in own - {option.flag for option in config.OPTIONS} - {"--help"}:
            assert f"`{flag}" in text, flag
    for word in re.findall(r"`(--[a-z-]+)", text):
        assert word in {"--binary"} | {f for s in commands.values() for a in s._actions for f in a.option_strings}, word


@pytest.mark.parametrize(
    "case", [c for c in CASES if isinstance(c["expected"].get("import_mode"), list)], ids=lambda case: case["id"]
)
def test_import_finds_what_text_holds(case):
    found = [line["event"] for line in import_text(case["input"])]
    wanted = [(w["xid"], w["pci"]) for w in case["expected"]["import_mode"]]
    assert [(e["code"], e.get("pci_bus_id")) for e in found if e["kind"] == "xid"] == wanted
    for secret in case["expected"].get("must_not_emit", []):
        assert secret not in json.dumps(found)


def test_replay_is_a_command(tmp_path, capsys):
    (tmp_path / "r").write_text(
        "4,1,1000,c;NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"
    )
    assert main(["replay", "--kind", "kmsg", str(tmp_path / "r")]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert first["event"]["code"] == 79
    assert main(["replay", "--kind", "kmsg", "/no/such/file"]) == 1


def test_a_recorded_line_names_no_process():
    from agent.record import blank_process

    line = "4,1,1,c;NVRM: Xid (PCI:0000:3b:00): 31, pid=4242, name=secret, x, Ch 00000008, intr 0"
    assert (
        blank_process(line)
        == "4,1,1,c;NVRM: Xid (PCI:0000:3b:00): 31, pid='<unknown>', name=<unknown>, Ch 00000008, intr 0"
    )
    assert "1650000000009" not in blank_process("4,2,2,c;NVRM: GPU Board Serial Number: 1650000000009")


def test_dry_run_prints_what_would_be_sent_and_touches_no_outbox(tmp_path, capsys):
    state = tmp_path / "state"
    assert main(["once", "--dry-run", "--source", "sim", "--state-dir", str(state), "--log-level", "error"]) == 0
    batch = json.loads(capsys.readouterr().out)
    assert len(batch["intervals"][0]["gpus"]) == 8
    assert not state.exists()


def test_once_and_status(tmp_path, backend, capsys):
    flags = ["--source", "sim", "--state-dir", str(tmp_path), "--endpoint", backend.url, "--log-level", "error"]
    assert main(["once", *flags]) == 0
    assert main(["status", "--state-dir", str(tmp_path)]) == 0
    (node,) = json.loads(capsys.readouterr().out)["nodes"]
    assert (node["delivered"], node["batches_queued"], node["seq"]) == (1, 0, 1)
    assert main(["status", "--state-dir", str(tmp_path / "none")]) == 1


def test_two_agents_do_not_share_an_outbox(tmp_path, backend, capsys):
    from agent.build_nodes import Lock

    lock = Lock(tmp_path)
    flags = ["--source", "sim", "--state-dir", str(tmp_path), "--endpoint", backend.url]
    assert main(["once", *flags]) == 1
    assert "another agent" in capsys.readouterr().err
    lock.close()


def test_doctor_tells_each_thing_with_a_next_step(tmp_path, backend, capsys):
    def refuse(handler, _body):
        body = b'{"code": "not_gzip", "status": 400}'
        handler.answer(400, body, {"Content-Type": "application/problem+json"})
        return True

    backend.behave = refuse
    (tmp_path / "kmsg").write_text("6,1,1,-;x\n")
    flags = ["--state-dir", str(tmp_path / "s"), "--kmsg", str(tmp_path / "kmsg"), "--sysfs", str(tmp_path)]
    assert main(["doctor", *flags, "--endpoint", backend.url]) == 0
    assert "answers" in capsys.readouterr().out
    assert main(["doctor", *flags, "--endpoint", backend.url, "--kmsg", "/dev/null"]) == 1
    out = capsys.readouterr().out
    assert "[FAIL] kernel log: /dev/null is no kernel log but device 1:3" in out
    assert main(["doctor", *flags, "--endpoint", "http://127.0.0.1:1"]) == 1
    assert "connection refused" in capsys.readouterr().out


def test_release_reaches_a_running_agent_through_the_state_directory(tmp_path):
    from agent.control import Control

    assert main(["release", "--for", "90s", "--state-dir", str(tmp_path)]) == 0
    asked = []
    control = Control(tmp_path)
    control.poll(asked.append, asked.append)
    control.poll(asked.append, asked.append)
    (seconds,) = asked
    assert 0 < seconds <= 90
    assert main(["release", "--for", "2h", "--state-dir", str(tmp_path)]) == 78


def test_a_test_fault_is_refused_unless_enabled_and_labelled_when_it_is(tmp_path, backend, capsys):
    from agent.control import Control
    from agent.errors import PermissionProblem
    from agent.node import Node

    flags = ["inject", "--code", "79", "--bus-id", "00000000:3B:00.0", "--state-dir", str(tmp_path)]
    assert main(flags) == 77
    assert main([*flags, "--allow-inject", "yes"]) == 0
    faults = []
    Control(tmp_path).poll(faults.append, faults.append)
    assert faults == [{"kind": "xid", "code": 79, "pci_bus_id": "0000:3b:00.0"}]
    rig = Rig(tmp_path, backend.url)
    rig.node.inject(faults[0])
    rig.minute()
    rig.drain()
    (xid,) = [x for b in backend.batches.values() for i in b["intervals"] for x in i["xids"]]
    assert xid["reason"] == "XID_79"
    real = Node("c", "n", rig.clock, [], rig.store)
    with pytest.raises(PermissionProblem):
        real.inject(faults[0])
    rig.close()


def test_an_orderly_shutdown_is_told_by_the_next_boot(tmp_path, backend):
    rig = Rig(tmp_path, backend.url, "xid79")
    rig.minute()
    rig.node.leave_farewell()
    left_at, now = rig.now_ms, rig.now_ms + 1_800_000  # the scenario reboots once in half an hour
    rig.close()
    for _ in range(2):  # told once, remembered for this boot
        rig = Rig(tmp_path, backend.url, "xid79", start_ms=now)
        rig.minute()
        now = rig.now_ms
        rig.drain()
        assert rig.node._shutdown == "clean"
        rig.close()
    notices = [
        e
        for b in backend.batches.values()
        for i in b["intervals"]
        for e in i.get("events", ())
        if e["kind"] == "shutdown"
    ]
    assert [(e["at"], e["backlog"]) for e in notices] == [(left_at, True)]
    assert notices[0]["boot_id"] == min(backend.batches.values(), key=lambda batch: batch["seq"])["boot_id"]


def test_the_local_page_shows_figures_on_loopback_only(tmp_path, backend):
    from agent.local_http import LocalPage, parse_listen

    rig = Rig(tmp_path, backend.url)
    rig.minute()
    rig.drain()
    page = LocalPage("127.0.0.1:0", [rig.node])
    base = f"http://127.0.0.1:{page.port}"
    text = urllib.request.urlopen(f"{base}/metrics", timeout=5).read().decode()
    assert re.search(r'^goodput_agent_delivered_total\{cluster="demo",node="node-1"\} [12]$', text, re.MULTILINE)
    (node,) = json.load(urllib.request.urlopen(f"{base}/status", timeout=5))["nodes"]
    assert node["upload"] == "ok"
    page.close()
    rig.close()
    for text in ("0.0.0.0:9844", "192.168.1.5:1", "example:80", "9844"):
        with pytest.raises(ConfigError):
            parse_listen(text)


def test_raw_lines_stay_in_a_private_bounded_file(tmp_path):
    from agent.line_ring import LineRing

    ring = LineRing(tmp_path, most_bytes=10_000)
    for number in range(500):
        ring.keep(1_796_000_000_000, f"NVRM: Xid (PCI:0000:3b:00): 13, line {number}")
    files = sorted(tmp_path.iterdir())
    assert [f.name for f in files] == ["events.log", "events.log.1"]
    assert sum(f.stat().st_size for f in files) < 10_500
    assert all(f.stat().st_mode & 0o777 == 0o600 for f in files)
    assert "line 499" in files[0].read_text()


def utmp(kind, user=b""):
    return struct.pack("<hi32s4s32s256shhiii16s20x", kind, 0, b"~", b"~~", user, b"", 0, 0, 0, 0, 0, b"")


@pytest.mark.parametrize(
    ("records", "answer"),
    [
        ([(2, b"reboot"), (1, b"runlevel"), (1, b"shutdown"), (2, b"reboot")], "clean"),
        ([(2, b"reboot"), (1, b"runlevel"), (2, b"reboot"), (1, b"runlevel")], "unclean"),
        ([(2, b"reboot"), (1, b"shutdown"), (2, b"reboot"), (2, b"reboot")], "unclean"),
        ([(2, b"reboot")], "unknown"),
        ([], "unknown"),
    ],
)
def test_whether_the_last_shutdown_was_clean(tmp_path, records, answer):
    file = tmp_path / "wtmp"
    file.write_bytes(b"".join(utmp(kind, user) for kind, user in records))
    assert clock.last_shutdown(file) == answer
    assert clock.last_shutdown(tmp_path / "none") == "unknown"


def test_the_boot_id_is_not_the_kernels():
    kernel = "5f0c2f6e-0000-4000-8000-000000000001"
    assert re.fullmatch(r"[0-9a-f]{32}", clock.hash_boot_id(kernel))
    assert kernel.replace("-", "") not in clock.hash_boot_id(kernel)
    now = clock.SystemClock().now()
    assert now.boottime >= now.mono > 0
    assert now.status in (clock.SYNCHRONISED, clock.UNSYNCHRONISED, clock.UNKNOWN)


def test_the_hardware_id_is_a_hash_of_what_the_machine_tells(tmp_path, monkeypatch):
    from agent.identity import Salt, hardware_id

    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    assert hardware_id(tmp_path) is None
    (tmp_path / "product_serial").write_text("To Be Filled By O.E.M.\n")
    assert hardware_id(tmp_path) is None
    (tmp_path / "product_uuid").write_text("4C4C4544-0042-3510-8050-B7C04F503132\n")
    as_root = hardware_id(tmp_path)
    assert re.fullmatch("[0-9a-f]{32}", as_root)
    (tmp_path / "hw-uuid").write_text("4c4c4544-0042-3510-8050-b7c04f503132\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert hardware_id(tmp_path / "none") == as_root  # handed over by systemd to an agent that is not root
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    one, two = Salt(tmp_path / "a"), Salt(tmp_path / "b")
    assert one.hash("guid", "x") == two.hash("guid", "x") != one.hash("serial", "x")


def test_signatures_of_openssl_and_cryptography_are_the_same():
    from agent import ed25519

    seed, message = bytes(range(32)), b"goodput"
    pairs = [made for made in (ed25519._with_openssl(seed), ed25519._with_cryptography(seed)) if made]
    if len(pairs) < 2:
        pytest.skip("only one of OpenSSL and cryptography is here")
    assert pairs[0][0] == pairs[1][0]
    assert pairs[0][1](message) == pairs[1][1](message)


def test_the_single_file_is_reproducible_and_delivers(tmp_path, backend):
    from agent import build

    data = build.archive()
    assert data == build.archive()
    target = tmp_path / build.NAME
    target.write_bytes(data)
    flags = ["--source", "sim", "--endpoint", backend.url, "--state-dir", str(tmp_path / "s")]
    for number, python in enumerate(_pythons(), 1):
        done = subprocess.run(
            [python, "-I", str(target), "once", *flags], capture_output=True, timeout=60, cwd=tmp_path
        )
        assert done.returncode == 0, (python, done.stderr)
        assert len(backend.batches) == number
    assert all("X-Goodput-Signature" in headers for _path, headers, _body in backend.requests)


def _pythons():
    """This interpreter, and any other supported one that starts."""
    found = [sys.executable]
    for name in ("python3.9", "python3.10", "python3.12", "python3.13"):
        path = shutil.which(name)
        if path and subprocess.run([path, "-c", "import sqlite3"], capture_output=True).returncode == 0:
            found.append(path)
    return found


def test_the_single_file_reads_nvml_in_its_own_child(tmp_path, stub_driver):
    from agent import build

    target = tmp_path / build.NAME
    target.write_bytes(build.archive())
    flags = ["--source", "nvml", "--dry-run", "--sysfs", str(tmp_path), "--kmsg", str(tmp_path / "none")]
    done = subprocess.run([sys.executable, "-I", str(target), "once", *flags], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    (interval,) = json.loads(done.stdout)["intervals"]
    assert len(interval["gpus"]) == 8
    assert interval["sources"] == {"pci": "absent", "nvml": "ok", "ib": "absent", "kmsg": "absent"}


def test_the_unit_is_valid_and_tight(tmp_path):
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not here")
    unit = (ROOT / "deploy/systemd/goodput-agent.service").read_text()
    assert "Documentation=file:/opt/goodput/agent.md\n" in unit  # what a release's archive holds, not some host
    (tmp_path / "goodput-agent.service").write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", unit, flags=re.M))
    path = str(tmp_path / "goodput-agent.service")
    done = subprocess.run([analyze, "verify", path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "goodput-agent.service" not in done.stderr
    done = subprocess.run(
        [analyze, "security", "--offline=true", "--threshold=30", path], capture_output=True, text=True, timeout=60
    )
    if "unrecognized option" in done.stderr or "Unknown" in done.stderr:
        pytest.skip("this systemd-analyze knows no --offline")
    assert done.returncode == 0, done.stdout[-500:]


def test_the_agent_imports_nothing_of_ours_but_itself():
    for path in (ROOT / "agent").rglob("*.py"):
        for word in re.findall(r"^\s*(?:from|import) ([a-z_]+)", path.read_text(), re.MULTILINE):
            assert word not in {"django", "fleet", "orgs", "claims", "goodput_site", "rest_framework"}, path
    assert os.path.exists(ROOT / "agent/wire.py")
