"""Settings: command-line flag, then GOODPUT_* variable, then /etc/goodput/agent.toml, then the default.

`OPTIONS` is the only list of them; the command line, the file reader and the test of docs/agent.md go over it.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
from pathlib import Path
from typing import Any, Mapping, NamedTuple, Optional

from agent.errors import ConfigError
from agent.receipts import read_log_key

DEFAULT_FILE = "/etc/goodput/agent.toml"


class Option(NamedTuple):
    """One setting. `kind` is str, int, number or path; `choices` limits a str."""

    name: str
    kind: str
    default: Any
    help: str
    choices: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """Its command-line flag."""
        return "--" + self.name.replace("_", "-")

    @property
    def env(self) -> str:
        """Its environment variable."""
        return "GOODPUT_" + self.name.upper()


SOURCES = ("auto", "nvml", "sim", "prometheus")
YES_NO = ("no", "yes")
LEVELS = ("debug", "info", "warning", "error")
OPTIONS = (
    Option("endpoint", "str", "http://127.0.0.1:8080/v1/batches", "where batches go"),
    Option("token_file", "path", None, "file that holds the ingest key (mode 0600); none: no Authorization header"),
    Option("cluster", "str", None, "cluster name (default: local-dev, or demo for the simulated source)"),
    Option("node_id", "str", None, "node name (default: the host name)"),
    Option("state_dir", "path", None, "outbox and keys (default: $STATE_DIRECTORY, else a folder of the user)"),
    Option("source", "str", "auto", "where facts come from; auto takes nvml if the driver is here, else sim", SOURCES),
    Option("scrape", "str", "", "exporters to scrape, URL[,URL…], with --source prometheus; a node per host"),
    Option("scenario", "str", "demo", "what the simulated source plays"),
    Option("seed", "int", 1, "seed of the simulated source"),
    Option("sim_nodes", "int", 1, "simulated nodes driven by this process"),
    Option("sysfs", "path", "/sys", "root of sysfs"),
    Option("kmsg", "path", "/dev/kmsg", "kernel log device"),
    Option("nvml_timeout", "number", 5.0, "seconds after which a call into the driver counts as hung"),
    Option("outbox_mb", "int", 500, "cap of the outbox in MB, WAL file included"),
    Option("log_key", "str", "", "verifier key of the server's log that receipts must bear; none: the one it tells"),
    Option("peers", "str", "", "HOST:PORT of machines to reach for the net facts, separated by commas"),
    Option("metrics", "str", "", "HOST:PORT of the local /metrics and /status page, loopback only; empty: none"),
    Option("allow_inject", "str", "no", "take test faults from `inject`; all data is then labelled simulated", YES_NO),
    Option("log_level", "str", "info", "what is logged to stderr", LEVELS),
)


class Settings(NamedTuple):
    """All settings, checked. `given` names those that did not come from a default."""

    endpoint: str
    token_file: Optional[Path]
    cluster: Optional[str]
    node_id: str
    state_dir: Path
    source: str
    scrape: str
    scenario: str
    seed: int
    sim_nodes: int
    sysfs: Path
    kmsg: Path
    nvml_timeout: float
    outbox_mb: int
    log_key: str
    peers: str
    metrics: str
    allow_inject: str
    log_level: str
    given: frozenset[str] = frozenset()


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds a flag for every option and --config."""
    parser.add_argument("--config", metavar="FILE", help=f"settings file (default {DEFAULT_FILE}; env GOODPUT_CONFIG)")
    for option in OPTIONS:
        default = "" if option.default in (None, "") else f" (default {option.default})"
        parser.add_argument(
            option.flag,
            dest=option.name,
            metavar=option.kind.upper(),
            default=None,
            help=f"{option.help}{default}; env {option.env}",
        )


def load(arguments: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings in force. Raises ConfigError with one sentence about the first that is wrong."""
    file = _read_file(arguments.get("config") or environ.get("GOODPUT_CONFIG"))
    values: dict[str, Any] = {}
    given = set()
    for option in OPTIONS:
        where = option.flag
        raw = arguments.get(option.name)
        if raw is None and environ.get(option.env):
            raw, where = environ[option.env], option.env
        if raw == "":
            raw = None  # an empty flag or variable is none
        if raw is None and option.name in file:
            raw, where = file[option.name], f"{option.name} in the settings file"
        if raw is None:
            values[option.name] = _convert(option, option.default, where) if option.default is not None else None
        else:
            values[option.name] = _convert(option, raw, where)
            given.add(option.name)
    values["node_id"] = _name(values["node_id"] or _host_name(), "--node-id")
    if values["cluster"] is not None:
        _name(values["cluster"], "--cluster")
    values["state_dir"] = values["state_dir"] or _state_dir(environ)
    values["token_file"] = values["token_file"] or _credential(environ)
    if values["log_key"]:
        read_log_key(values["log_key"])
    _in_range(values["sim_nodes"], 1, 512, "--sim-nodes")
    _in_range(values["outbox_mb"], 1, 1_000_000, "--outbox-mb")
    _in_range(values["nvml_timeout"], 0.1, 60, "--nvml-timeout")
    return Settings(**values, given=frozenset(given))


def _read_file(named: Optional[str]) -> dict[str, Any]:
    path = Path(named or DEFAULT_FILE)
    if not named and not path.exists():
        return {}
    try:
        import tomllib
    except ImportError:  # Python 3.9 and 3.10 read no TOML
        raise ConfigError(f"{path} needs Python 3.11 or newer; use GOODPUT_* variables or flags instead") from None
    try:
        data = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None
    unknown = sorted(set(data) - {option.name for option in OPTIONS})
    if unknown:
        raise ConfigError(f"{path}: {unknown[0]} is no setting")
    return data


def _convert(option: Option, raw: Any, where: str) -> Any:
    try:
        value: Any = {"str": str, "path": Path, "int": int, "number": float}[option.kind](raw)
    except (TypeError, ValueError):
        raise ConfigError(f"{where} must be a {option.kind}") from None
    if option.choices and value not in option.choices:
        raise ConfigError(f"{where} must be one of {', '.join(option.choices)}")
    return value


def _in_range(value: float, least: float, most: float, where: str) -> None:
    if not least <= value <= most:
        raise ConfigError(f"{where} must lie between {least} and {most}")


def _name(text: str, where: str) -> str:
    if not text or len(text.encode()) > 200 or re.search(r"[\x00-\x1f\x7f]", text):
        raise ConfigError(f"{where} must be 1 to 200 bytes without control characters")
    return text


def _host_name() -> str:
    return socket.gethostname() or "unknown-host"


def _state_dir(environ: Mapping[str, str]) -> Path:
    given = environ.get("STATE_DIRECTORY", "").split(":")[0]
    if given:
        return Path(given)
    if os.geteuid() == 0:
        return Path("/var/lib/goodput-agent")
    return Path(environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "goodput-agent"


def _credential(environ: Mapping[str, str]) -> Optional[Path]:
    directory = environ.get("CREDENTIALS_DIRECTORY")
    path = Path(directory) / "goodput-token" if directory else None
    return path if path is not None and path.exists() else None
