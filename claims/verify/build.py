"""`python -m claims.verify.build OUT`: goodput-verify as one zipapp, the same bytes every time.

It holds `agent/wire.py`, `fleet/domain`, `claims/domain` and this package: what the server itself computes with.
"""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

from claims.verify.pack_file import ZIP_DATE

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("fleet/domain", "claims/domain", "claims/verify")
SINGLE = ("agent/wire.py", "fleet/errors.py", "claims/errors.py", "claims/document.py")
MAIN = "import sys\nfrom claims.verify.__main__ import main\nsys.exit(main())\n"
SHEBANG = b"#!/usr/bin/env python3\n"


def build() -> bytes:
    """The bytes of the zipapp."""
    files = {"__main__.py": MAIN.encode()}
    for top in ("agent", "fleet", "claims"):
        files[f"{top}/__init__.py"] = b""
    for name in SINGLE:
        files[name] = (ROOT / name).read_bytes()
    for part in PARTS:
        for path in sorted((ROOT / part).rglob("*")):
            if path.suffix in (".py", ".toml") and "tests" not in path.parts:
                files[str(path.relative_to(ROOT))] = path.read_bytes()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, ZIP_DATE)
            info.create_system, info.external_attr, info.compress_type = 3, 0o644 << 16, zipfile.ZIP_DEFLATED
            archive.writestr(info, files[name], compresslevel=9)
    return SHEBANG + out.getvalue()


def main() -> int:
    """Write it."""
    if len(sys.argv) != 2:
        print("python -m claims.verify.build OUT", file=sys.stderr)
        return 2
    out = Path(sys.argv[1])
    out.write_bytes(build())
    out.chmod(0o755)
    return 0


if __name__ == "__main__":
    sys.exit(main())
