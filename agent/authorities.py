"""The machine's certificate authorities in a form that costs no memory: a folder that OpenSSL looks into when it must.

Most machines keep some 140 authorities in one file. Loaded as a whole it takes 2 MB of a small agent for good, to
verify one server. So a child process writes each into a file of its own, named as OpenSSL looks for it. Where that
cannot be done the file is loaded as a whole, as Python does it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import ssl
import subprocess
from pathlib import Path
from typing import Optional

from agent.child import child_command, child_environment

log = logging.getLogger("goodput.tls")

_FOLDER = "authorities"
_SMALL_BYTES = 30_000  # a file of a few authorities is loaded as it is
_SPLIT_S = 20.0
# where distributions keep the file; an OpenSSL that came with this program may have been built for another one
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def client_context(directory: Optional[Path] = None) -> ssl.SSLContext:
    """A context that verifies by the machine's authorities, TLS 1.2 or newer; `directory` may hold the folder."""
    paths = ssl.get_default_verify_paths()
    bundle, hashed = paths.cafile, paths.capath
    if bundle is None and hashed is None:
        bundle = next((path for path in _BUNDLES if os.path.exists(path)), None)
    folder = _folder(directory, bundle) if directory is not None and bundle is not None else None
    if folder is not None:
        context = ssl.create_default_context(capath=str(folder))
        if hashed is not None:
            context.load_verify_locations(capath=hashed)
    elif paths.cafile is None and bundle is not None:
        context = ssl.create_default_context(cafile=bundle)
    else:
        context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _folder(directory: Path, bundle: str) -> Optional[Path]:
    """The folder with the authorities of the file as it is now; None where that is not worth it or not possible."""
    try:
        info = os.stat(bundle)
        if info.st_size < _SMALL_BYTES:
            return None
        mark = hashlib.sha256(f"{bundle} {info.st_size} {info.st_mtime_ns}".encode()).hexdigest()[:16]
        folder = directory / f"{_FOLDER}-{mark}"
        if not folder.is_dir():
            import shutil  # it loads compressors

            for old in directory.glob(f"{_FOLDER}-*"):
                shutil.rmtree(old, ignore_errors=True)
            command = child_command("_authorities", bundle, str(folder))
            subprocess.run(command, env=child_environment(), timeout=_SPLIT_S, check=False)
        return folder if folder.is_dir() else None
    except (OSError, subprocess.SubprocessError) as error:
        log.debug("the authorities cannot be prepared: %s", type(error).__name__)
        return None
