"""The one error of enrolment that is raised on purpose."""

from __future__ import annotations


class EnrolmentRefused(Exception):
    """This installation is not let in (now)."""

    def __init__(self, detail: str, code: str, status: int = 403):
        super().__init__(detail)
        self.detail = detail
        self.code = code
        self.status = status
