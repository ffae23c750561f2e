"""`python -m goodput_site.launcher COMMAND ...`: what ./goodput calls once the virtual environment stands."""

import contextlib
import errno
import os
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

from . import checks, look, services
from .errors import LauncherError
from .up import up
from .var import Var, write_private

OS_ERRORS = {
    errno.ENOSPC: ("The disk is full: {0}", "Free some space and try again; nothing is lost."),
    errno.EDQUOT: ("The disk quota is used up: {0}", "Free some space and try again; nothing is lost."),
    errno.EACCES: ("This user can't use {0}.", "Run ./goodput as the owner of the folder, or clone to one of yours."),
    errno.EPERM: ("This user can't use {0}.", "Run ./goodput as the owner of the folder, or clone to one of yours."),
    errno.EROFS: ("{0} can't be written: it is mounted read-only.", "Set GOODPUT_VAR to a folder that can be."),
}


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status. Raises LauncherError."""
    command, *rest = arguments
    match command:
        case "up":
            return up(rest)
        case "down":
            return look.down()
        case "status":
            return look.status()
        case "logs":
            return look.logs(rest)
        case "test":
            return checks.test(rest)
        case "check":
            return checks.check(rest)
        case "manage":
            with services.of_installation(Var()) as env:
                return services.run([sys.executable, "manage.py", *rest], env)
        case "backup":
            return main(["manage", command, *rest])
        case "restore":
            return restore(rest)
        case "release":  # needs no database
            return services.run([sys.executable, "manage.py", "release", *rest], {"GOODPUT_VAR": str(Var().path)})
        case "agent":
            return services.run([sys.executable, "-m", "agent", *rest], agent_env(Var()))
        case "bench":
            return services.run([sys.executable, "-m", "benchmarks", *rest], {})
        case "chaos":
            return services.run([sys.executable, "-m", "goodput_site.chaos", *rest], {})
        case "build":
            if rest[:1] != ["agent"]:
                raise LauncherError("Only the agent is built: ./goodput build agent [--binary]")
            return services.run([sys.executable, "-m", "agent.build", *rest[1:]], {})
        case "with-services":
            with services.throwaway() as env:
                return services.run(rest[1:] if rest[:1] == ["--"] else rest, env)
    raise LauncherError(f"There is no command '{command}'.", "./goodput help lists them.")


def restore(arguments: Sequence[str]) -> int:
    """Restore a backup; its secret key goes first, because an installation without one makes its own at once.

    Second factors fit no other. What is no backup is refused by the command itself.
    """
    var = Var()
    key = var.path / "secrets" / "secret_key"
    for backup in (Path(one) for one in arguments if not one.startswith("-")):
        if not key.exists() and backup.is_file():
            with contextlib.suppress(tarfile.TarError, KeyError, OSError), tarfile.open(backup) as tar:
                member = tar.extractfile("keys/secret_key")
                if member is not None:
                    text = member.read().decode()
                    key.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    write_private(key, text)
                    print("keys put back: secret_key", flush=True)
    return main(["manage", "restore", *arguments])


def agent_env(var: Var) -> dict[str, str]:
    """Lets `./goodput agent ...` talk to the server that runs here, unless flags or variables say otherwise."""
    token = var.path / "agent" / "token"
    env = {}
    if now := var.running():
        env["GOODPUT_ENDPOINT"] = f"http://127.0.0.1:{now['port']}/v1/batches"
    if token.exists():
        env["GOODPUT_TOKEN_FILE"] = str(token)
    return {name: value for name, value in env.items() if name not in os.environ}


def run(arguments: Sequence[str]) -> int:
    """`main` for a terminal: an error is a sentence and what to do, never a traceback."""
    try:
        return main(arguments)
    except LauncherError as error:
        sentence, remedy, status = error.message, error.remedy, error.exit_status
    except BrokenPipeError:  # `./goodput logs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno not in OS_ERRORS:
            raise
        sentence, remedy = OS_ERRORS[error.errno]
        sentence, status = sentence.format(error.filename or error.strerror), 1
    except KeyboardInterrupt:
        return 130
    print(f"goodput: {sentence}" + (f"\n  {remedy}" if remedy else ""), file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
