"""How this program starts itself once more, for work that must not happen in its own process, and finds others."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Optional

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # of a zipapp: the file itself


def find_program(name: str, path: str) -> Optional[str]:
    """The executable of this name in a search path, as shutil.which finds it; shutil loads compressors (0.5 MB)."""
    for directory in path.split(os.pathsep):
        found = os.path.join(directory, name)
        if directory and os.path.isfile(found) and os.access(found, os.X_OK):
            return found
    return None


def child_command(*words: str) -> list[str]:
    """The same program with a hidden command such as `_nvml`."""
    if getattr(sys, "frozen", False):
        return [sys.executable, *words]
    if os.path.isfile(_PACKAGE):
        return [sys.executable, "-S", "-s", _PACKAGE, *words]
    return [sys.executable, "-S", "-s", "-m", "agent", *words]  # no site: the parent says where things lie


def child_environment() -> dict[str, str]:
    """The child's environment: where our package and nvidia-ml-py lie, and a heap that gives freed pages back."""
    environment = {"PYTHONMALLOC": "malloc", "MALLOC_ARENA_MAX": "1", **os.environ}
    if os.path.isdir(_PACKAGE):
        spec = importlib.util.find_spec("pynvml")
        binding = os.path.dirname(spec.origin) if spec is not None and spec.origin else None
        paths = (_PACKAGE, binding, environment.get("PYTHONPATH"))
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return environment
