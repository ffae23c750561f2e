"""Reading a pack without trusting it: no path leaves it, no name twice, bounded sizes."""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import BinaryIO

from claims.errors import PackError

UNANCHORED, ANCHORED = "Unanchored statement", "Statement with outside anchors"
MANIFEST_TAG = b"goodput/manifest/v1\x00"
ZIP_DATE = (1980, 1, 1, 0, 0, 0)
MAX_FILES = 500_000
MAX_FILE_BYTES = 512 << 20
MAX_BYTES = 4 << 30
MAX_RATIO = 2000  # unpacked over packed; verdict runs pack well
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*){0,2}")
#: What zipfile lets out at a central directory that lies: negative places, odd encodings, parts that end too early.
_ODD = (EOFError, NotImplementedError, RuntimeError, OSError, ValueError, LookupError, OverflowError)
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others take as much memory to unpack as their bytes say
NEEDED = (
    "manifest.json", "manifest.sig", "claim.json", "result.json", "inputs.json", "contract.json", "overlays.json",
    "incidents.csv", "windows.json", "skeleton.json", "proofs.json", "keys.json", "coverage.json", "clock.csv",
)  # fmt: skip


def read_pack(source: Path | BinaryIO) -> dict[str, bytes]:
    """The files of a pack. Raises PackError for anything that a pack of ours never is."""
    try:
        with zipfile.ZipFile(source) as archive:
            return _read(archive)
    except PackError:
        raise
    except (zipfile.BadZipFile, zlib.error, struct.error, *_ODD) as error:
        raise PackError(f"This is no readable ZIP: {error}") from error


def _read(archive: zipfile.ZipFile) -> dict[str, bytes]:
    entries = archive.infolist()
    if len(entries) > MAX_FILES:
        raise PackError(f"A pack has at most {MAX_FILES} files.")
    names = [one.filename for one in entries]
    if len({name.lower() for name in names}) != len(names):
        raise PackError("A name is in the pack twice.")
    total = 0
    files = {}
    for one in entries:
        if not NAME.fullmatch(one.filename):
            raise PackError(f"A pack has no file named {one.filename[:80]!r}.")
        if one.compress_type not in METHODS:
            raise PackError(f"{one.filename} is packed in a way that no pack of ours is.")
        total += one.file_size
        if one.file_size > MAX_FILE_BYTES or total > MAX_BYTES:
            raise PackError(f"{one.filename} makes the pack too large.")
        if one.compress_size and one.file_size / one.compress_size > MAX_RATIO:
            raise PackError(f"{one.filename} unpacks to suspiciously much.")
        files[one.filename] = archive.read(one)
    for name in NEEDED:
        if name not in files:
            raise PackError(f"The pack lacks {name}.")
    return files
