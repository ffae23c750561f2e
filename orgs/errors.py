"""The errors of people and organisations, told once, at the edge.

OrgError
├── KeyRefused        401 missing_key, invalid_key, expired_key, revoked_key, default_secret; 403 missing_scope,
│                     org_suspended; 429 too_many_wrong_keys: `wait_seconds` until one is looked at again
├── NoSuchOrg         404 no_such_org: it does not exist, or it is not yours (one answer for both)
├── OrgInvalid        422 invalid_slug, slug_taken, invalid_scope, default_secret, last_owner, …
├── NotAllowed        403 owner_only: this role may not do this
├── LinkOver          410 link_over: of a new address; used, too old, somebody else's (one answer for all)
├── InvitationOver    410 invitation_over: used, revoked, expired, sent again, or never made (one answer for all)
└── TooManyAttempts   429 too_many_attempts: too many passwords tried; `wait_seconds` until the next may be
"""

from __future__ import annotations

from datetime import timedelta


class OrgError(Exception):
    """Base of every error that this app raises on purpose."""

    code = "org_error"
    status = 500

    def __init__(self, detail: str, code: str | None = None, status: int | None = None):
        super().__init__(detail)
        self.detail = detail
        self.code = code or self.code
        self.status = status or self.status


class KeyRefused(OrgError):
    """This key does not open this door."""

    code = "invalid_key"
    status = 401
    wait_seconds: int | None = None


class NoSuchOrg(OrgError):
    """There is no such org for this person."""

    code = "no_such_org"
    status = 404


class OrgInvalid(OrgError):
    """An org cannot be made or changed like this."""

    code = "invalid_org"
    status = 422


class NotAllowed(OrgError):
    """This person's role does not reach so far."""

    code = "not_allowed"
    status = 403


class LinkOver(OrgError):
    """A link to a new address that leads nowhere."""

    code = "link_over"
    status = 410


class InvitationOver(OrgError):
    """This invitation opens nothing, or nothing any more."""

    code = "invitation_over"
    status = 410


class TooManyAttempts(OrgError):
    """Too many passwords were tried from here, or for this account."""

    code = "too_many_attempts"
    status = 429

    def __init__(self, wait: timedelta):
        self.wait_seconds = max(1, int(wait.total_seconds()))
        minutes = -(-self.wait_seconds // 60)
        super().__init__(f"Too many tries. Wait {minutes} min, or ask for a one-time link.")
