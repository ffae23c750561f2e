"""The child process that alone talks to the driver: one JSON line in, one JSON line out, until its input closes."""

from __future__ import annotations

import json
import marshal
import os
import signal
import sys
import types
import zipimport

from agent.memory import give_back

# nvidia-ml-py imports this module and calls nothing of it on Linux; the real one loads subprocess and compressors.
_CTYPES_UTIL = "ctypes.util"


def _find_library(name: str) -> object:
    """What `ctypes.util.find_library` gives; loads the real module first."""
    sys.modules.pop(_CTYPES_UTIL, None)
    from ctypes.util import find_library

    return find_library(name)


def _spare_ctypes_util() -> None:
    """Puts a small module into the place of `ctypes.util`, which costs 1.5 MB."""
    if _CTYPES_UTIL not in sys.modules:
        stand_in = types.ModuleType(_CTYPES_UTIL)
        stand_in.find_library = _find_library  # type: ignore[attr-defined]
        sys.modules[_CTYPES_UTIL] = stand_in


def _compile_elsewhere(name: str) -> None:
    """Loads a module of the single file with code that another process compiled: compiling leaves 4 MB of holes."""
    loader = getattr(sys.modules[__name__], "__loader__", None)
    if not isinstance(loader, zipimport.zipimporter):
        return
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(marshal.dumps(zipimport.zipimporter(loader.archive).get_code(name)))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        data = answer.read()
    os.waitpid(pid, 0)
    module = types.ModuleType(name)
    sys.modules[name] = module
    try:
        exec(marshal.loads(data), module.__dict__)  # noqa: S102, S302 - our own file's code, from our own child
    except Exception:
        del sys.modules[name]  # the ordinary import tells what is wrong


def serve() -> int:
    """Answers requests `{"id": n}` with `{"id": n, "raw": …}`; ends when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    _spare_ctypes_util()
    _compile_elsewhere("pynvml")
    try:
        from agent.collect.nvml_read import Library
    except ImportError:
        library = None
    else:
        library = Library()
    give_back()
    # what a driver's library prints must not stand between the answers: they get a descriptor of their own
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        raw = {"init": 12} if library is None else library.read()
        answers.write(json.dumps({"id": request["id"], "raw": raw}) + "\n")
        answers.flush()
        if request["id"] == 1:
            give_back()  # what the first reading loaded and compiled
    if library is not None:
        library.close()
    return 0
