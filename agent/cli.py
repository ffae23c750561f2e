"""The command line: `goodput-agent run | once | status | doctor | release | …`."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from typing import Any, Optional, Sequence

from agent import __version__, config
from agent.errors import AgentError, ConfigError, PermissionProblem, UsageError


def main(argv: Optional[Sequence[str]] = None) -> int:
    """The exit code: 0 done, 1 failed, 2 usage, 77 permissions, 78 configuration."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    os.umask(0o077)
    try:
        settings = config.load(vars(arguments))
        logging.basicConfig(
            level=settings.log_level.upper(), stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s"
        )
        result: int = arguments.action(arguments, settings)
        return result
    except AgentError as error:
        print(f"goodput-agent: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="goodput-agent",
        description="Reads GPU hardware facts and delivers them to a Goodput server.",
        formatter_class=_formatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, action: Any, text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text, formatter_class=_formatter)
        config.add_options(sub)
        sub.set_defaults(action=action)
        return sub

    command("run", _run, "Sample every 15 s and upload about once a minute until stopped.")
    command("simulate", _simulate, "As run, with the simulated source.")
    once = command("once", _once, "Take one sample and send it.")
    once.add_argument("--dry-run", action="store_true", help="print the batch as JSON and send nothing")
    command("status", _status, "Print what the outbox holds, as JSON.")
    command("doctor", _doctor, "Check driver, kernel log, InfiniBand, clock, endpoint, key and outbox.")
    release = command("release", _release, "Ask the running agent to let go of the driver, for a GPU reset.")
    release.add_argument("--for", dest="seconds", default="120s", help="how long, such as 120s (default)")
    inject = command("inject", _inject, "Place a test fault into the running agent's next sample, if that allows it.")
    inject.add_argument("--code", type=int, required=True, help="Xid number")
    inject.add_argument("--bus-id", required=True, help="bus id of the GPU, such as 0000:3b:00.0")
    resend = command("resend", _resend, "Queue delivered batches once more, for a server restored from a backup.")
    resend.add_argument("--hours", type=int, default=48, help="how far back, at most 48 (default)")
    replay = command("replay", _replay, "Feed a recording to the real readers and print what they make of it.")
    record = command("record", _record, "Record this machine's kernel log, InfiniBand files or NVML for `replay`.")
    record.add_argument("--samples", type=int, default=2, help="how many samples of nvml or ib (default 2)")
    record.add_argument("--every", type=float, default=15.0, help="seconds between them (default 15)")
    for sub in (replay, record):
        sub.add_argument("--kind", required=True, choices=("kmsg", "nvml", "ib"), help="what the recording holds")
    replay.add_argument("file", nargs="?", default="-", metavar="FILE", help="the recording; - or none: standard input")
    importer = command("import", _import, "Show what a kernel log saved as text holds; nothing is sent.")
    importer.add_argument("file", nargs="?", default="-", metavar="FILE", help="the log; - or none: standard input")
    command("version", _version, "Print the version.")
    return parser


def _formatter(prog: str) -> argparse.HelpFormatter:
    """Help as wide as the terminal says; argparse would load compressors (0.5 MB) to ask it itself."""
    try:
        width = os.get_terminal_size(1).columns
    except OSError:
        width = int(os.environ["COLUMNS"]) if os.environ.get("COLUMNS", "").isdigit() else 80
    return argparse.HelpFormatter(prog, width=max(40, width) - 2)


def _run(_arguments: argparse.Namespace, settings: config.Settings) -> int:
    from agent.build_nodes import build
    from agent.control import Control, refuse_fault
    from agent.memory import one_heap
    from agent.runner import Runner

    one_heap()
    nodes, lock = build(settings)
    control = Control(settings.state_dir)
    inject = nodes[0].inject if settings.allow_inject == "yes" else refuse_fault
    runner = Runner(nodes, nodes[0].clock, lambda: control.poll(runner.release, inject))
    runner.install_signals()
    page = None
    if settings.metrics:
        from agent.local_http import LocalPage

        page = LocalPage(settings.metrics, nodes)
    try:
        runner.run()
    finally:
        if page is not None:
            page.close()
        lock.close()
    return 0


def _simulate(arguments: argparse.Namespace, settings: config.Settings) -> int:
    return _run(arguments, settings._replace(source="sim"))


def _once(arguments: argparse.Namespace, settings: config.Settings) -> int:
    from agent.build_nodes import build
    from agent.once import print_batch, send_now

    if arguments.dry_run:
        return print_batch(settings)
    nodes, lock = build(settings)
    try:
        return send_now(nodes)
    finally:
        lock.close()


def _status(_arguments: argparse.Namespace, settings: config.Settings) -> int:
    from agent.control import status

    print(json.dumps(status(settings.state_dir), indent=2))
    return 0


def _doctor(_arguments: argparse.Namespace, settings: config.Settings) -> int:
    from agent.doctor import examine

    return examine(settings)


def _release(arguments: argparse.Namespace, settings: config.Settings) -> int:
    from agent.control import request_release

    text = arguments.seconds.rstrip("s")
    if not text.isdigit() or not 0 < int(text) <= 3600:
        raise ConfigError("--for must be 1s to 3600s")
    request_release(settings.state_dir, time.time() + int(text))
    print(f"the agent lets go of the driver for {text} s")
    return 0


def _inject(arguments: argparse.Namespace, settings: config.Settings) -> int:
    from agent.control import request_fault
    from agent.wire import canonical_bus_id

    bus_id = canonical_bus_id(arguments.bus_id)
    if bus_id is None or not 0 < arguments.code < 100_000:
        raise UsageError("--code must be an Xid number and --bus-id a PCI bus id")
    if settings.allow_inject != "yes":
        raise PermissionProblem("test faults are refused; run the agent and this with --allow-inject yes")
    request_fault(settings.state_dir, {"kind": "xid", "code": arguments.code, "pci_bus_id": bus_id})
    print("the running agent takes the fault into its next sample, labelled simulated")
    return 0


def _resend(arguments: argparse.Namespace, settings: config.Settings) -> int:
    from agent.control import resend

    if not 0 < arguments.hours <= 48:
        raise ConfigError("--hours must be 1 to 48")
    count = resend(settings.state_dir, int((time.time() - arguments.hours * 3600) * 1000))
    print(f"{count} batches are queued once more; a server that has them answers that they are duplicates")
    return 0


def _replay(arguments: argparse.Namespace, _settings: config.Settings) -> int:
    from agent.replay import replay, to_json_lines

    for line in to_json_lines(replay(arguments.kind, _text_of(arguments.file))):
        print(line)
    return 0


def _import(arguments: argparse.Namespace, _settings: config.Settings) -> int:
    from agent.import_log import import_text

    for found in import_text(_text_of(arguments.file)):
        print(json.dumps(found, sort_keys=True))
    return 0


def _text_of(name: str) -> str:
    if name == "-":
        return sys.stdin.read()
    try:
        with open(name, encoding="utf-8", errors="backslashreplace") as file:
            return file.read()
    except OSError as error:
        raise AgentError(f"cannot read {name}: {os.strerror(error.errno or 0)}") from None


def _record(arguments: argparse.Namespace, settings: config.Settings) -> int:
    from agent.collect.kmsg_read import SourceAbsent, SourceRefused
    from agent.record import record_ib, record_kmsg, record_nvml

    if not 0 < arguments.samples <= 1000 or not 0 <= arguments.every <= 3600:
        raise UsageError("--samples must be 1 to 1000 and --every 0 to 3600 seconds")
    if arguments.kind == "nvml":
        from agent.collect.nvml import Child

        child = Child()
        lines = record_nvml(lambda: child.ask(settings.nvml_timeout), arguments.samples, arguments.every)
    elif arguments.kind == "ib":
        lines = record_ib(settings.sysfs, arguments.samples, arguments.every)
    else:
        lines = record_kmsg(settings.kmsg)
    try:
        for line in lines:
            print(line, flush=True)
    except (SourceAbsent, SourceRefused) as error:
        raise AgentError(str(error)) from None
    except OSError as error:
        raise AgentError(f"recording ended: {type(error).__name__}") from None
    finally:
        if arguments.kind == "nvml":
            child.end()
    return 0


def _version(_arguments: argparse.Namespace, _settings: config.Settings) -> int:
    print(__version__)
    return 0
