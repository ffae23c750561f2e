"""How far the resident memory of a fresh process grows while it does one thing."""

from __future__ import annotations

import os
import subprocess
import sys

from fleet.tests.ingest.server import ROOT

# VmHWM belongs to the process image; ru_maxrss would still hold the peak of the process that forked this one.
_SCRIPT = """
import gc, re
import django
django.setup()
from agent import wire
from fleet import decode
from fleet.errors import BatchRejected
from fleet.tests.bodies import batch
from fleet.tests.ingest import uploads
def refused(function, *arguments):
    try:
        function(*arguments)
    except BatchRejected as error:
        return error.status
    raise SystemExit("it was not refused")
def peak_kb():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read()).group(1))
decode.decode(wire.encode(batch()))
{ready}
gc.collect()
open("/proc/self/clear_refs", "w").write("5")
before = peak_kb()
{act}
print((peak_kb() - before) / 1024)
"""


def peak_growth_mb(act: str, ready: str = "") -> float:
    """MiB between the resident size before `act` (after `ready`) and its peak during it. Linux only."""
    script = _SCRIPT.replace("{ready}", ready).replace("{act}", act)
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "goodput_site.settings"}
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)
