"""The errors of alerts.

AlertError
└── ChannelInvalid    422 invalid_channel: a channel can't be like this; `field` names what is wrong
"""

from __future__ import annotations

from fleet.errors import FleetError


class AlertError(FleetError):
    """Base of every error that this app raises on purpose."""

    code = "alert_error"


class ChannelInvalid(AlertError):
    """A channel can't be like this."""

    code = "invalid_channel"
    status = 422

    def __init__(self, field: str, detail: str):
        super().__init__(detail)
        self.field = field
