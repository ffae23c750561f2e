"""What the launcher says when it can't go on.

LauncherError      one sentence for a person, and what to do; ends the command with its exit status
"""


class LauncherError(Exception):
    """One clear sentence (`message`) and what to do about it (`remedy`); no traceback is shown."""

    exit_status = 1

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
