"""What never stands in a log: a one-time link lets in whoever reads it."""

from __future__ import annotations

import logging
import re

LINK = re.compile(r"(/login/link/[^/\s]+/|/invitation/|/password/new/[^/\s]+/)[^/\s]+")
WAYS_IN = ("/login/link/", "/invitation/", "/password/new/")


class HideLinks(logging.Filter):
    """Cuts the token out of the path of a one-time link or an invitation, wherever a message names one."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always True; the record's message is changed in place."""
        message = record.getMessage()
        if any(way in message for way in WAYS_IN):
            record.msg, record.args = LINK.sub(r"\1…", message), ()
        return True
