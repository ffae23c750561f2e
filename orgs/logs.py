"""What never stands in a log: a one-time link lets in whoever reads it."""

from __future__ import annotations

import logging
import re

LINK = re.compile(r"(/login/link/[^/\s]+/|/invitation/)[^/\s]+")


class HideLinks(logging.Filter):
    """Cuts the token out of the path of a one-time link or an invitation, wherever a message names one."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always True; the record's message is changed in place."""
        message = record.getMessage()
        if "/login/link/" in message or "/invitation/" in message:
            record.msg, record.args = LINK.sub(r"\1…", message), ()
        return True
