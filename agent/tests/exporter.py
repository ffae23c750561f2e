"""A real HTTP server that serves what dcgm-exporter and node_exporter serve; a test says what the GPUs do."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LABELS = (
    'gpu="{i}",UUID="GPU-{i}8affe7e-7930-ae20-3fc6-4b0edf3ebbf3",pci_bus_id="00000000:{bus:02X}:00.0",device="nvidia{i}",'
    'modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-01",container="train",namespace="team-secret",pod="canary-pod",'
    'DCGM_FI_DRIVER_VERSION="570.158.01"'
)
HEALTHY = {
    "DCGM_FI_DEV_SM_CLOCK": "1980", "DCGM_FI_DEV_MAX_SM_CLOCK": "1980", "DCGM_FI_DEV_MEM_CLOCK": "2619",
    "DCGM_FI_DEV_MEMORY_TEMP": "9223372036854775794", "DCGM_FI_DEV_GPU_TEMP": "61",
    "DCGM_FI_DEV_POWER_USAGE": "651.316000", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "31035686671",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": "3", "DCGM_FI_DEV_GPU_UTIL": "97", "DCGM_FI_DEV_MEM_COPY_UTIL": "41",
    "DCGM_FI_DEV_XID_ERRORS": "0", "DCGM_FI_DEV_FB_FREE": "24000", "DCGM_FI_DEV_FB_USED": "57000",
    "DCGM_FI_DEV_FB_RESERVED": "559", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": "0",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "0", "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": "0",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "0", "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "0.912345",
}  # fmt: skip
PORT = """\
node_infiniband_info{{board_id="MT_0000000838",device="mlx5_0",firmware_version="28.39.1002",hca_type="MT4129"}} 1
node_infiniband_state_id{{device="mlx5_0",port="1"}} {state}
node_infiniband_physical_state_id{{device="mlx5_0",port="1"}} {phys}
node_infiniband_rate_bytes_per_second{{device="mlx5_0",port="1"}} 5e+10
node_infiniband_link_downed_total{{device="mlx5_0",port="1"}} {downed}
node_infiniband_port_data_received_bytes_total{{device="mlx5_0",port="1"}} {received}
node_boot_time_seconds 1.7960004e+09
"""


class Exporter:
    """Two GPUs; `gpus` holds what each serves, `extra` more text, `behave` answers in their place."""

    def __init__(self, count: int = 2) -> None:
        self.gpus = {index: dict(HEALTHY) for index in range(count)}
        self.extra = ""
        self.status = 200
        self.hangs = False
        self.asked: list[str] = []
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                exporter.asked.append(self.path)
                if exporter.hangs:
                    time.sleep(30)
                body = exporter.text().encode()
                self.send_response(exporter.status)
                if exporter.status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_args: object) -> None:
                """Quiet."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                """A client that gave up is part of these tests."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/metrics"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def text(self) -> str:
        """What it serves now, metric by metric as exporters do."""
        lines = []
        for metric in sorted({name for gpu in self.gpus.values() for name in gpu}):
            lines += [f"# HELP {metric} something.", f"# TYPE {metric} gauge"]
            for index, gpu in self.gpus.items():
                if metric in gpu:
                    labels = LABELS.format(i=index, bus=0x3B + index)
                    lines.append(f"{metric}{{{labels}}} {gpu[metric]}")
        return "\n".join(lines) + "\n" + self.extra

    def close(self) -> None:
        """Ends the server."""
        self.server.shutdown()
        self.server.server_close()
