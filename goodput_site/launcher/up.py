"""`./goodput up`: what runs here and with which arguments, who may reach it, and what the person is told."""

import argparse
import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import psutil

from .announce import announce, say
from .errors import LauncherError
from .postgres import Postgres
from .postgres import can_connect as to_postgres
from .processes import ROOT, end_leftovers, http_status
from .services import databases, urls
from .supervisor import Part, Supervisor
from .valkey import Valkey
from .valkey import can_connect as to_valkey
from .var import AlreadyRunning, Var, write_private

HOSTS = {"local": "127.0.0.1", "lan": "0.0.0.0", "public": "0.0.0.0"}  # noqa: S104 - asked for by --lan, --public
DEFAULT_SECRETS = {"GOODPUT_AGENT_TOKEN": "devtoken", "DATABASE_URL": "devpassword"}  # those of the public guide
CLUSTERS = {"nvml": "local-dev", "sim": "demo"}
ALERT_THREADS = "8"
DETACH_SECONDS = 180  # for everything to be up; the first start makes the database
NVML_PROBE = "import pynvml as n; n.nvmlInit(); raise SystemExit(n.nvmlDeviceGetCount() == 0)"


def up(arguments: Sequence[str]) -> int:
    """Run everything in the foreground until Ctrl-C, `./goodput down` or a signal; returns the exit status."""
    options = parser().parse_args(arguments)
    if options.detach:
        return _detach([word for word in arguments if word != "--detach"])
    expose = "public" if options.public else "lan" if options.lan else "local"
    refuse_unsafe(expose)
    var = Var()
    var.make()
    try:
        with var.locked():
            _end_leftovers(var)
            _run(var, expose, options)
    except AlreadyRunning:
        if not (status := _wait_for_status(var)):
            raise
        print(f"Goodput is already running: {status['url']}")
    return 0


def parser() -> argparse.ArgumentParser:
    """The flags of `up`."""
    flags = argparse.ArgumentParser(prog="./goodput up", description=(up.__doc__ or "").partition(";")[0])
    flags.add_argument("--port", type=int, default=os.environ.get("GOODPUT_PORT") or 8080, help="default: 8080")
    reach = flags.add_mutually_exclusive_group()
    reach.add_argument("--lan", action="store_true", help="let other machines in: keys and login are then required")
    reach.add_argument("--public", action="store_true", help="as --lan, behind HTTPS (set GOODPUT_PUBLIC_URL)")
    flags.add_argument("--no-agent", action="store_true", help="receive only")
    flags.add_argument("--source", choices=("auto", "nvml", "sim"), default="auto", help="what the agent here reads")
    flags.add_argument("--detach", action="store_true", help="return when all is up; stop it with ./goodput down")
    return flags


def refuse_unsafe(expose: str) -> None:
    """Raise LauncherError for an exposure that would stand open: a default secret, or public without HTTPS."""
    if expose == "local":
        return
    for variable, default in DEFAULT_SECRETS.items():
        if default in os.environ.get(variable, ""):
            raise LauncherError(
                f"{variable} holds the published default '{default}', so others must not reach this server.",
                f"Set {variable} to a value of your own, or leave out --{expose}.",
            )
    if expose == "public" and not os.environ.get("GOODPUT_PUBLIC_URL", "").startswith("https://"):
        raise LauncherError(
            "A public server needs HTTPS, and GOODPUT_PUBLIC_URL does not name an https:// address.",
            "Put a TLS proxy in front and set GOODPUT_PUBLIC_URL=https://your.name, or use --lan in your own network.",
        )


def _run(var: Var, expose: str, options: argparse.Namespace) -> None:
    require_free_port(HOSTS[expose], options.port)
    postgres, valkey = databases(var)
    for server, variable, can_connect in ((postgres, "DATABASE_URL", to_postgres), (valkey, "REDIS_URL", to_valkey)):
        if not server and (problem := can_connect(os.environ[variable])):
            raise LauncherError(f"The server of {variable} does not answer: {problem}", "Correct it, or unset it.")
    if postgres and not postgres.data.exists():
        say("Making the database ...")
    servers = [server for server in (postgres, valkey) if server]
    for server in servers:
        server.prepare()
    contract = var.environment(expose, options.port, *urls(postgres, valkey))
    env = {**os.environ, **contract}
    write_private(var.env_file, json.dumps(contract))
    source = "none" if options.no_agent else _source(options.source)
    url = os.environ.get("GOODPUT_PUBLIC_URL") or f"http://localhost:{options.port}/"
    facts = {"url": url, "expose": expose, "port": options.port, "source": source}
    parts = [_server_part(server) for server in servers] + _parts(var, expose, options.port, source)
    say(f"Starting {', '.join(part.name for part in parts)} ...")
    supervisor = Supervisor(parts, env, var, facts)
    supervisor.run(lambda: announce(expose, url, options.port, source, env), say)
    say("Stopped.")


def _server_part(server: Postgres | Valkey) -> Part:
    return Part(
        server.name,
        server.command,
        is_ready=server.is_ready,
        before_start=server.prepare,
        env=server.env,
        stop_signal=server.stop_signal,
        account=server.account,
    )


def _parts(var: Var, expose: str, port: int, source: str) -> list[Part]:
    """Goodput's own parts, in the order in which they start."""
    python = sys.executable
    celery = [python, "-m", "celery", "-A", "goodput_site.celery:app"]
    token = str(var.path / "agent" / "token")
    web = [python, "-m", "granian", "--interface", "wsgi", "--host", HOSTS[expose], "--port", str(port), "--no-ws"]
    web += ["--workers", os.environ.get("GOODPUT_WEB_WORKERS", "1")]
    web += ["--blocking-threads", os.environ.get("GOODPUT_WEB_THREADS", "4")]
    worker = [*celery, "worker", "--pool", "prefork", "-c", os.environ.get("GOODPUT_FOLD_WORKERS", "1")]
    worker += ["-n", "worker@goodput", "--without-gossip", "--without-mingle", "-l", "INFO"]
    alerts = [*celery, "worker", "-Q", "alerts", "--pool", "threads", "-c", ALERT_THREADS]
    alerts += ["-n", "alerts@goodput", "--without-gossip", "--without-mingle", "-l", "INFO"]
    beat = [*celery, "beat", "-s", str(var.path / "beat" / "schedule"), "-l", "INFO"]
    agent = [python, "-m", "agent", "run", "--endpoint", f"http://127.0.0.1:{port}/v1/batches", "--token-file", token]
    agent += ["--state-dir", str(var.path / "agent"), "--source", source, "--cluster", CLUSTERS.get(source, "")]
    agent += ["--sim-nodes", "3"] if source == "sim" else []
    prepare = [python, "manage.py", "prepare", "--agent-token-file", token]
    parts = [
        Part("prepare", prepare, needs=("pg", "valkey"), once=True),
        Part("release", [python, "manage.py", "offer_release"], once=True, optional=True),
        Part(
            "web",
            [*web, "goodput_site.wsgi:application"],
            needs=("prepare", "pg"),
            is_ready=lambda: http_status(port, "/healthz") == 200,
            before_start=lambda: require_free_port(HOSTS[expose], port),
        ),
        Part("worker", worker, needs=("prepare", "pg", "valkey"), ready_words="[tasks]"),
        Part("alerts", alerts, needs=("prepare", "pg", "valkey"), ready_words="[tasks]"),
        Part("beat", beat, needs=("prepare", "valkey"), ready_words="Configuration ->"),
    ]
    return parts if source == "none" else [*parts, Part("agent", agent, needs=("web",))]


def _source(wanted: str) -> str:
    """`nvml` or `sim`. The driver is asked in a process of its own, because a broken one can hang whoever asks."""
    if wanted != "auto":
        return wanted
    try:
        asked = subprocess.run([sys.executable, "-c", NVML_PROBE], capture_output=True, timeout=15)
    except subprocess.TimeoutExpired:
        return "nvml"  # there is a driver, and that it hangs is worth showing
    return "sim" if asked.returncode else "nvml"


def require_free_port(host: str, port: int) -> None:
    """Raise LauncherError when somebody listens there. Granian itself would not notice: it shares ports."""
    families = [(socket.AF_INET, host)] + ([(socket.AF_INET6, "::1")] if socket.has_ipv6 else [])
    for family, address in families:  # a stranger on ::1 would get what browsers send to `localhost`
        try:
            with socket.socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # past connections don't count
                probe.bind((address, port))
                probe.listen(1)
        except PermissionError:
            raise LauncherError(f"Port {port} needs root's rights.", "Take one above 1023: --port 8080") from None
        except OverflowError:
            raise LauncherError(f"There is no port {port}.", "Take one from 1024 to 65535.") from None
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise LauncherError(
                    f"Port {port} is taken{_by_whom(port)}.",
                    f"Stop that program, or take another port: ./goodput up --port {port + 1}",
                ) from None


def _by_whom(port: int) -> str:
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (pid {connection.pid})"
    return ""


def _end_leftovers(var: Var) -> None:
    """Of a supervisor that was killed; on Linux its children have mostly gone with it."""
    pids = [part["pid"] for part in var.read_status().get("parts", []) if part["pid"]]
    if count := end_leftovers(pids, ("GOODPUT_VAR", str(var.path))):
        say(f"Ended {count} processes that an earlier run left behind.")


def _wait_for_status(var: Var) -> dict[str, Any]:
    """The other supervisor's status; it may have taken the lock a moment ago."""
    for _ in range(30):
        if status := var.running():
            return status
        time.sleep(0.1)
    return {}


def _detach(arguments: Sequence[str]) -> int:
    """Start `up` in a session of its own and show what it says until all is up; returns its status if it ends first."""
    var = Var()
    var.make()
    log = var.log("supervisor")
    with log.open("ab") as out, log.open() as said:
        said.seek(0, os.SEEK_END)
        child = subprocess.Popen(
            [sys.executable, "-m", "goodput_site.launcher", "up", *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        deadline = time.monotonic() + DETACH_SECONDS
        while True:
            status = child.poll()
            is_ready = (running := var.running()).get("pid") == child.pid and running["ready"]
            sys.stdout.write(said.read())
            sys.stdout.flush()
            if status is not None or is_ready:
                return status or 0
            if time.monotonic() > deadline:
                sentence = f"Not everything is up after {DETACH_SECONDS} s; it goes on trying."
                raise LauncherError(sentence, "./goodput status tells what is missing, ./goodput down gives up.")
            time.sleep(0.1)
