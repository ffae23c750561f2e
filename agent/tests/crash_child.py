"""Run by the failpoint test: a simulated node that samples and sends until it is killed or done.

Arguments: state directory, server URL, wall clock to begin at (ms), samples to take. Prints each committed instant.
"""

from __future__ import annotations

import sys
from pathlib import Path

from agent.tests.rig import Rig

if __name__ == "__main__":
    directory, url, start_ms, count = sys.argv[1:5]
    rig = Rig(Path(directory), url, "ib_flap", start_ms=int(start_ms))
    for _ in range(int(count)):
        rig.sample()
        print(rig.now_ms, flush=True)
        rig.drain()
    rig.store.assemble(rig.now_ms)
    rig.drain()
    rig.close()
