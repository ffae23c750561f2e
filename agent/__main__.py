"""`python -m agent`: the command line. Children are told apart first and load nothing they do not need."""

from __future__ import annotations

import sys


def _spare_ssl() -> None:
    """Loads `http.client` without `ssl` (1 MB), which `agent.transport` loads itself once an address is https://."""
    if "ssl" not in sys.modules:
        sys.modules["ssl"] = None  # type: ignore[assignment]
        try:
            import http.client  # noqa: F401
        finally:
            del sys.modules["ssl"]


def main() -> int:
    """The exit code of the command named by `sys.argv`."""
    if sys.argv[1:2] == ["_nvml"]:
        from agent.collect.nvml_child import serve

        return serve()
    if sys.argv[1:2] == ["_authorities"]:
        from agent.authorities_split import main as split

        return split(sys.argv[2:])
    _spare_ssl()
    from agent.cli import main as command

    return command(sys.argv[1:])


if __name__ == "__main__":
    raise SystemExit(main())
