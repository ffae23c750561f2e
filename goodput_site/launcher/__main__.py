"""`python -m goodput_site.launcher COMMAND`: what ./goodput calls once the virtual environment stands."""

import sys

from . import throwaway
from .errors import LauncherError


def main(arguments: list[str]) -> int:
    if arguments[:2] == ["with-services", "--"]:
        return throwaway.run(arguments[2:])
    raise LauncherError("Unknown command.")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except LauncherError as error:
        print(f"goodput: {error.message}", error.remedy, sep="\n  ", file=sys.stderr)
        sys.exit(error.exit_status)
