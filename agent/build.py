"""`python -m agent.build`: the agent as one file that any Python 3.9 or newer runs. The same sources, the same bytes.

Holds this package, nvidia-ml-py and the pure Python part of msgpack. Batches are signed with the OpenSSL that the
Python is linked to; where that cannot be reached, `doctor` says that they go unsigned.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.util
import io
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Iterator, Optional, Sequence

NAME = "goodput-agent.pyz"
BINARY = "goodput-agent"
_STAMP = (1980, 1, 1, 0, 0, 0)  # the earliest a zip file can hold: no clock goes into the artifact
_SHEBANG = b"#!/usr/bin/env python3\n"
_MAIN = b"import sys\n\nfrom agent.__main__ import main\n\nsys.exit(main())\n"
# The hook of `inspect` serves readers of source code; it would load 2 MB into each process.
_SPEC = """
found = Analysis([{entry!r}], pathex=[{root!r}], hiddenimports={modules!r}, excludes={excludes!r}, optimize=2)
scripts = [script for script in found.scripts if script[0] != "pyi_rth_inspect"]
EXE(PYZ(found.pure), scripts, found.binaries, found.datas, [], name={name!r}, strip=True, upx=False, console=True)
"""
_EXCLUDED = ["cryptography", "bz2", "lzma", "zipfile", "multiprocessing", "unittest", "pydoc", "importlib.metadata"]
_BUNDLED = (("pynvml", "nvidia-ml-py"), ("msgpack", "msgpack"))


def _sources() -> Iterator[tuple[str, bytes]]:
    """(name in the archive, content) of every file."""
    here = Path(__file__).parent
    for path in here.rglob("*.py"):
        name = path.relative_to(here.parent)
        if "tests" not in name.parts and "__pycache__" not in name.parts:
            yield str(name), path.read_bytes()
    for module, distribution in _BUNDLED:
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise SystemExit(f"{distribution} is not installed; it goes into the archive")
        origin = Path(spec.origin)
        files = origin.parent.rglob("*.py") if origin.name == "__init__.py" else [origin]
        base = origin.parent.parent if origin.name == "__init__.py" else origin.parent
        for path in files:
            yield str(path.relative_to(base)), path.read_bytes()
        yield from _licences(distribution)
    yield "__main__.py", _MAIN


def _licences(distribution: str) -> Iterator[tuple[str, bytes]]:
    """The licence files and the version of what is bundled."""
    for file in importlib.metadata.files(distribution) or ():
        if any(word in file.name.upper() for word in ("LICENSE", "COPYING", "NOTICE")):
            yield f"licences/{distribution}/{file.name}", Path(str(file.locate())).read_bytes()
    yield f"licences/{distribution}/VERSION", importlib.metadata.version(distribution).encode() + b"\n"


def archive() -> bytes:
    """The bytes of the zipapp."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as bundle:
        for name, content in sorted(dict(_sources()).items()):
            info = zipfile.ZipInfo(name, _STAMP)
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            bundle.writestr(info, content)
    return _SHEBANG + buffer.getvalue()


def binary(out: Path) -> Path:
    """Builds the agent with PyInstaller into one executable that needs no Python. Raises SystemExit without it."""
    if importlib.util.find_spec("PyInstaller") is None:
        raise SystemExit("PyInstaller is not installed: pip install pyinstaller")
    root = Path(__file__).parent.parent
    modules = [
        ".".join(path.relative_to(root).with_suffix("").parts)
        for path in sorted(Path(__file__).parent.rglob("*.py"))
        if "tests" not in path.parts and path.name not in ("__init__.py", "build.py")
    ]
    with tempfile.TemporaryDirectory(prefix="goodput-build-") as work:
        entry = Path(work) / "goodput_agent.py"
        entry.write_bytes(_MAIN)
        spec = Path(work) / "goodput_agent.spec"
        spec.write_text(
            _SPEC.format(
                entry=str(entry), root=str(root), modules=[*modules, "pynvml"], excludes=_EXCLUDED, name=BINARY
            )
        )
        command = [sys.executable, "-m", "PyInstaller", "--noconfirm", "--log-level", "WARN", str(spec)]
        command += ["--distpath", str(out), "--workpath", f"{work}/build"]
        # the same sources give the same bytes: no hash seed and no clock of this run
        environment = {**os.environ, "PYTHONHASHSEED": "1", "SOURCE_DATE_EPOCH": "315532800"}
        subprocess.run(command, check=True, env=environment)
    return out / BINARY


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Writes the zipapp and prints its SHA-256."""
    parser = argparse.ArgumentParser(prog="python -m agent.build", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("dist"), help="folder for the artifact (default dist)")
    parser.add_argument("--binary", action="store_true", help="also an executable without need of Python (PyInstaller)")
    arguments = parser.parse_args(argv)
    data = archive()
    arguments.out.mkdir(parents=True, exist_ok=True)
    target = arguments.out / NAME
    target.write_bytes(data)
    target.chmod(0o755)
    _tell(target)
    if arguments.binary:
        _tell(binary(arguments.out))
    return 0


def _tell(path: Path) -> None:
    data = path.read_bytes()
    print(f"{hashlib.sha256(data).hexdigest()}  {path}  {len(data)} bytes")


if __name__ == "__main__":
    sys.exit(main())
