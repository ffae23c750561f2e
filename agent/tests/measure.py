"""Measures the agent with 8 GPUs (stand-in driver) and 8 ports: memory and CPU of parent and child, start, one sample.

`python -m agent.tests.measure [SECONDS]`; needs a C compiler. Prints JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from agent.replay import build_tree
from agent.tests.backend import Backend

STUB = Path(__file__).parent / "stub" / "fakenvml.c"
TICK = os.sysconf("SC_CLK_TCK")


def sysfs_lines(ports=8):
    for number in range(ports):
        base = f"/sys/class/infiniband/mlx5_{number}/ports/1"
        yield f"{base}/state:4: ACTIVE"
        yield f"{base}/phys_state:5: LinkUp"
        yield f"{base}/rate:400 Gb/sec (4X NDR)"
        yield f"{base}/link_layer:InfiniBand"
        for counter in ("link_downed", "symbol_error", "link_error_recovery", "port_rcv_errors", "port_xmit_data",
                        "port_rcv_data", "port_xmit_wait", "port_xmit_discards", "VL15_dropped"):  # fmt: skip
            yield f"{base}/counters/{counter}:1"


def family(pid):
    """The process and all its descendants."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += family(int(child))
    return found


def memory_and_cpu(pids):
    """(RSS in MB, PSS in MB, CPU seconds) of all."""
    rss = pss = cpu = 0.0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Rss:"):
                rss += int(line.split()[1]) / 1024
            if line.startswith("Pss:"):
                pss += int(line.split()[1]) / 1024
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        cpu += (int(fields[11]) + int(fields[12])) / TICK
    return rss, pss, cpu


def main(seconds):
    with tempfile.TemporaryDirectory(prefix="goodput-measure-") as name:
        directory = Path(name)
        command = [shutil.which("cc") or "cc", "-shared", "-fPIC", "-O1", "-Wl,-soname,libnvidia-ml.so.1"]
        subprocess.run([*command, "-o", str(directory / "libnvidia-ml.so.1"), str(STUB)], check=True)
        build_tree(directory, list(sysfs_lines()))
        (directory / "kmsg").write_text("6,1,1000,-;start\n")
        backend = Backend()
        environment = {**os.environ, "LD_LIBRARY_PATH": str(directory)}
        agent = json.loads(os.environ.get("GOODPUT_MEASURE_AGENT", "null")) or [sys.executable, "-m", "agent"]
        flags = ["--source", "nvml", "--endpoint", backend.url, "--state-dir", str(directory / "state"),
                 "--sysfs", str(directory / "sys"), "--kmsg", str(directory / "kmsg")]  # fmt: skip
        begun = time.monotonic()
        subprocess.run([*agent, "version"], check=True, stdout=subprocess.DEVNULL)
        start_s = time.monotonic() - begun
        process = subprocess.Popen([*agent, "run", *flags], env=environment)
        try:
            time.sleep(20)
            pids = family(process.pid)
            _rss, _pss, cpu_before = memory_and_cpu(pids)
            time.sleep(seconds)
            rss, pss, cpu = memory_and_cpu(pids)
            parts = {str(pid): round(memory_and_cpu([pid])[0], 1) for pid in pids}
            descriptors = len(os.listdir(f"/proc/{process.pid}/fd"))
        finally:
            process.terminate()
            process.wait(20)
        samples = len(backend.sample_times())
        print(json.dumps({
            "rss_mb": round(rss, 1), "pss_mb": round(pss, 1), "rss_mb_by_process": parts,
            "cpu_percent_of_a_core": round(100 * (cpu - cpu_before) / seconds, 3), "seconds": seconds,
            "start_s": round(start_s, 2), "descriptors": descriptors, "samples_delivered": samples,
            "gpus": len(next(iter(backend.batches.values()))["intervals"][0]["gpus"]) if backend.batches else 0,
        }, indent=2))  # fmt: skip
        backend.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 120)
