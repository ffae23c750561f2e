"""The child that splits a file of authorities: what parsing them leaves in the heap ends with it."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import ssl
from pathlib import Path
from typing import Callable, Sequence

_BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def main(arguments: Sequence[str]) -> int:
    """`_authorities FILE FOLDER`: 0 when the folder holds all that the file holds."""
    bundle, folder = arguments
    try:
        return 0 if split(Path(bundle), Path(folder)) else 1
    except (OSError, ValueError):
        return 1


def split(bundle: Path, folder: Path) -> bool:
    """Writes each authority to `<hash of its subject>.<n>`; the folder appears when it is whole.

    False, and no folder, for a file with certificates of another form (OpenSSL's TRUSTED ones carry own rules).
    """
    text = bundle.read_text(encoding="utf-8", errors="replace")
    blocks = _BLOCK.findall(text)
    if not blocks or len(blocks) != text.count("-----BEGIN "):
        return False
    name_of = subject_hash()
    making = folder.with_name(f"{folder.name}.{os.getpid()}")
    making.mkdir(mode=0o700)
    counts: dict[int, int] = {}
    try:
        for block in blocks:
            subject = name_of(ssl.PEM_cert_to_DER_cert(block))
            number = counts[subject] = counts.get(subject, -1) + 1
            (making / f"{subject:08x}.{number}").write_text(block + "\n")
        os.rename(str(making), str(folder))
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise
    return True


def subject_hash() -> Callable[[bytes], int]:
    """OpenSSL's own hash of a certificate's subject. Raises OSError where its functions cannot be reached."""
    import _ssl

    try:
        library = ctypes.CDLL(_ssl.__file__)  # its symbols include those of the libcrypto that it is linked to
        parse, name_hash, free = library.d2i_X509, library.X509_subject_name_hash, library.X509_free
    except (AttributeError, TypeError) as error:
        raise OSError("OpenSSL's functions cannot be reached") from error
    parse.restype, parse.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
    name_hash.restype, name_hash.argtypes = ctypes.c_ulong, [ctypes.c_void_p]
    free.restype, free.argtypes = None, [ctypes.c_void_p]

    def of(der: bytes) -> int:
        data = ctypes.create_string_buffer(der, len(der))
        cursor = ctypes.c_void_p(ctypes.addressof(data))
        found = parse(None, ctypes.byref(cursor), len(der))
        if not found:
            raise ValueError("this is no certificate")
        try:
            return int(name_hash(found)) & 0xFFFFFFFF
        finally:
            free(found)

    return of
