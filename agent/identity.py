"""Who this installation is: the signing key, the salt for hashed ids, the hardware's identity."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import stat
import time
from pathlib import Path
from typing import Callable, Optional

from agent import ed25519
from agent.errors import ConfigError, PermissionProblem

_DMI = Path("/sys/class/dmi/id")
_DMI_KEYS = ("product_uuid", "product_serial", "board_serial")
_NO_IDENTITY = {"", "none", "default string", "to be filled by o.e.m.", "not specified", "system serial number", "0"}
_HW_SALT = b"goodput hw v1\n"  # fixed: the same machine keeps its id when the agent is installed anew


def private_dir(path: Path) -> Path:
    """Makes the state directory, mode 0700. Raises PermissionProblem if it is a link or someone else's."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode):
        raise PermissionProblem(f"{path} must be a directory, not a link")
    if info.st_uid != os.geteuid():
        raise PermissionProblem(f"{path} belongs to another user; chown it or choose another --state-dir")
    if info.st_mode & 0o077:
        os.chmod(path, 0o700)
    return path


def safe_file(path: Path) -> None:
    """Raises PermissionProblem if an existing file in the state directory is a link or has a second name."""
    with contextlib.suppress(FileNotFoundError):
        info = path.lstat()
        if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1 or info.st_uid != os.geteuid():
            raise PermissionProblem(f"{path} is a link or belongs to another user; remove it")


def read_private(path: Path, most: int = 8192) -> bytes:
    """A secret file's bytes. Raises PermissionProblem if group or others may read it."""
    try:
        descriptor = os.open(str(path), os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {os.strerror(error.errno or 0)}") from None
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(file.fileno())
        if stat.S_ISREG(info.st_mode) and info.st_mode & 0o077:
            raise PermissionProblem(f"{path} can be read by others; run: chmod 600 {path}")
        return file.read(most)


def kept_secret(path: Path, make: Callable[[], bytes]) -> bytes:
    """The bytes of a 0600 file that is made at first use; never a moment readable by others."""
    safe_file(path)
    try:
        descriptor = os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return read_private(path)
    data = make()
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return data


def renew_secrets(directory: Path) -> None:
    """Sets the keys aside that came with a copied disk; new ones are made at the next use."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for name in ("signing.key", "salt", "enrolled"):
        with contextlib.suppress(FileNotFoundError):
            os.replace(directory / name, directory / f"{name}.other-machine-{stamp}")


class Salt:
    """Hashes ids (serial numbers, GUIDs) with a secret of this machine, or of this installation where it tells none.

    A port's identity is such a hash, so a new installation on the same machine should come to the same salt.
    """

    def __init__(self, directory: Path) -> None:
        self._salt = kept_secret(directory / "salt", self._new)

    @staticmethod
    def _new() -> bytes:
        identity = _dmi_identity()
        if identity is None:
            return os.urandom(32)
        return hashlib.sha256(b"goodput salt v1\n" + identity).digest()

    def hash(self, kind: str, text: str) -> str:
        """32 hex digits for `text`; equal only on this installation and for this kind."""
        return hashlib.blake2b(f"{kind}\n{text}".encode(), key=self._salt, digest_size=16).hexdigest()


def hardware_id(dmi: Path = _DMI) -> Optional[str]:
    """Hash of the machine's DMI identity, the same after a new installation; None where the machine tells none."""
    identity = _dmi_identity(dmi)
    return None if identity is None else hashlib.sha256(_HW_SALT + identity).hexdigest()[:32]


def _dmi_identity(dmi: Path = _DMI) -> Optional[bytes]:
    """The first identity that the machine tells; root alone may read it, or systemd hands it over as a credential."""
    sources = [dmi / key for key in _DMI_KEYS]
    directory = os.environ.get("CREDENTIALS_DIRECTORY")
    if directory:
        sources.insert(0, Path(directory) / "hw-uuid")
    for source in sources:
        with contextlib.suppress(OSError):
            value = source.read_text().strip().lower()
            if value not in _NO_IDENTITY:
                return value.encode()
    return None


class Signer:
    """Signs batches with an Ed25519 key made at first start; where nothing can sign it says so and signs nothing."""

    def __init__(self, directory: Path) -> None:
        self.public_key: Optional[str] = None
        self._sign: Optional[ed25519.Sign] = None
        seed = kept_secret(directory / "signing.key", lambda: os.urandom(ed25519.SEED_BYTES))
        if len(seed) != ed25519.SEED_BYTES:
            raise ConfigError(f"{directory / 'signing.key'} is damaged; move it away and a new key will be made")
        loaded = ed25519.load(seed)
        if loaded is not None:
            self.public_key = base64.b64encode(loaded[0]).decode()
            self._sign = loaded[1]

    @property
    def available(self) -> bool:
        """Whether batches are signed."""
        return self._sign is not None

    def sign(self, message: bytes) -> Optional[str]:
        """The signature in base64; None where nothing can sign."""
        return None if self._sign is None else base64.b64encode(self._sign(message)).decode()
