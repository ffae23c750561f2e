"""The agent with 8 GPUs (a stand-in for the driver's library) and 8 ports: memory, CPU, start, one sample, a day.

Each form of it runs for `rounds` x 15 s and a minute at least, as many as there is time for: the installed package, the
single file and, where PyInstaller is, the executable, over http:// and over https:// (the machine's own authorities and
one more). Goals: 40 MB resident for parent and child together, 0.3 % of one core, start within 1 s, a sample within
100 ms. For comparison, as their makers or users report: gpud about 130 MiB, dcgm-exporter 135 to 155 MiB.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from agent import build
from agent.tests.measure import measure
from benchmarks.common import UNTIL

SAMPLE_S = 15
FIGURES = ("rss_mb", "pss_mb", "cpu_percent_of_a_core", "start_s", "sample_ms", "descriptors")


def run(rounds: int) -> dict[str, Any]:
    """The figures of each form, printed as a table; then memory, descriptors and file size over a simulated day."""
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="goodput-bench-") as name:
        for form, command in _forms(Path(name)):
            for scheme, secure in (("http", False), ("https", True)):
                if not results or time.time() < UNTIL:  # each takes a minute: until its first upload is answered
                    found = measure(command, rounds * SAMPLE_S, secure)  # type: ignore[no-untyped-call]
                    results[f"{form} {scheme}"] = found
    print(f"{'agent, parent and child':28}" + "".join(f"{form:>20}" for form in results))
    for figure in FIGURES:
        print(f"{figure:28}" + "".join(f"{result[figure]:>20}" for result in results.values()))
    print("gpud: about 130 MiB resident; dcgm-exporter: 135 to 155 MiB (as reported, not measured here)")
    if time.time() < UNTIL:
        subprocess.run([sys.executable, "-m", "agent.tests.day", "24"], check=True)
    return results


def _forms(directory: Path) -> list[tuple[str, list[str]]]:
    """(name, command) of each form that can be made here."""
    single = directory / build.NAME
    single.write_bytes(build.archive())
    forms = [("package", [sys.executable, "-m", "agent"]), ("single file", [sys.executable, str(single)])]
    if importlib.util.find_spec("PyInstaller") is not None:
        forms.append(("executable", [str(build.binary(directory))]))
    return forms
