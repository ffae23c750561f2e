"""Measures the agent with 8 GPUs (stand-in driver) and 8 ports: memory and CPU of parent and child, start, one sample.

`python -m agent.tests.measure [SECONDS]`; needs a C compiler. Prints JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from agent.replay import build_tree
from agent.tests.backend import Backend

STUB = Path(__file__).parent / "stub" / "fakenvml.c"
TICK = os.sysconf("SC_CLK_TCK")
SETTLE_S = 20


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


def build_stub(directory):
    """Builds the stand-in for the driver's library into the directory. Raises OSError where no compiler is."""
    command = [shutil.which("cc") or "cc", "-shared", "-fPIC", "-O1", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([*command, "-o", str(directory / "libnvidia-ml.so.1"), str(STUB)], check=True)


def start_seconds(agent):
    """The least wall time of three starts of the command."""
    best = float("inf")
    for _ in range(3):
        begun = time.monotonic()
        subprocess.run([*agent, "version"], check=True, stdout=subprocess.DEVNULL)
        best = min(best, time.monotonic() - begun)
    return best


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def measure(agent, seconds, secure=False):
    """Figures of an agent started by the command `agent` (a list), watched for `seconds` once it has settled.

    `secure`: over https to a local server whose authority stands at the end of the machine's own list.
    """
    with tempfile.TemporaryDirectory(prefix="goodput-measure-") as name:
        directory = Path(name)
        build_stub(directory)
        build_tree(directory, list(sysfs_lines()))
        (directory / "kmsg").write_text("6,1,1000,-;start\n")
        backend = Backend()
        environment = {**os.environ, "LD_LIBRARY_PATH": str(directory)}
        if secure:
            environment["SSL_CERT_FILE"] = behind_tls(backend, directory)
        start_s = start_seconds(agent)
        page = f"127.0.0.1:{free_port()}"
        flags = ["--source", "nvml", "--endpoint", backend.url, "--state-dir", str(directory / "state"),
                 "--sysfs", str(directory / "sys"), "--kmsg", str(directory / "kmsg")]  # fmt: skip
        process = subprocess.Popen([*agent, "run", *flags], env=environment)
        try:
            time.sleep(SETTLE_S)
            pids = family(process.pid)
            _rss, _pss, cpu_before = memory_and_cpu(pids)
            time.sleep(seconds)
            rss, pss, cpu = memory_and_cpu(pids)
            parts = {str(pid): [round(value, 1) for value in memory_and_cpu([pid])[:2]] for pid in pids}
            descriptors = len(os.listdir(f"/proc/{process.pid}/fd"))
        finally:
            process.terminate()
            process.wait(20)
        process = subprocess.Popen([*agent, "run", *flags, "--metrics", page], env=environment)
        try:
            sample_ms = sum(collect_ms(page).values())
        finally:
            process.terminate()
            process.wait(20)
        backend.close()
        return {
            "rss_mb": round(rss, 1), "pss_mb": round(pss, 1), "rss_and_pss_mb_by_process": parts,
            "cpu_percent_of_a_core": round(100 * (cpu - cpu_before) / seconds, 3), "seconds": seconds,
            "start_s": round(start_s, 2), "sample_ms": sample_ms, "descriptors": descriptors,
            "samples_delivered": len(backend.sample_times()),
            "gpus": len(next(iter(backend.batches.values()))["intervals"][0]["gpus"]) if backend.batches else 0,
        }  # fmt: skip


def behind_tls(backend, directory):
    """Puts a backend behind TLS; the file of authorities that an agent needs: the machine's own and the backend's."""
    import ssl

    from agent.tests.certificates import certificate

    authority, _, issuer = certificate(directory, "authority")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate(directory, "server", issuer=issuer)[:2])
    backend.server.socket = context.wrap_socket(backend.server.socket, server_side=True)
    backend.url = backend.url.replace("http://", "https://")
    bundle = directory / "authorities.pem"
    system = ssl.get_default_verify_paths().cafile
    bundle.write_bytes((Path(system).read_bytes() if system else b"") + authority.read_bytes())
    return str(bundle)


def collect_ms(page):
    """ms per source of the second sample (the first includes the start of the child), as the agent's page tells."""
    found, until = {}, time.monotonic() + 60
    while time.monotonic() < until:
        time.sleep(1)
        try:
            with urllib.request.urlopen(f"http://{page}/status", timeout=5) as answer:
                (node,) = json.load(answer)["nodes"]
        except OSError:
            continue
        if node["collect_ms"] and not found:
            until = time.monotonic() + 17
        found = node["collect_ms"]
    return found


def main(seconds):
    agent = json.loads(os.environ.get("GOODPUT_MEASURE_AGENT", "null")) or [sys.executable, "-m", "agent"]
    print(json.dumps(measure(agent, seconds, os.environ.get("GOODPUT_MEASURE_TLS") == "1"), indent=2))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 120)
