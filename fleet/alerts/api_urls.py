"""Routes of alerts under /v1/."""

from __future__ import annotations

from django.urls import path

from fleet.alerts import api
from fleet.api_urls import listed

CHANNEL = "alerts/channels/<int:channel_id>"

urlpatterns = [
    *listed("alerts/channels", api.Channels, "api-alert-channels"),
    path(CHANNEL, api.OneChannel.as_view(), name="api-alert-channel"),
    path(f"{CHANNEL}/test", api.TestChannel.as_view(), name="api-alert-test"),
    path(f"{CHANNEL}/ask", api.AskAgain.as_view(), name="api-alert-ask"),
    *listed("alerts/deliveries", api.Deliveries, "api-alert-deliveries"),
    path("alerts/deliveries/<int:delivery_id>/again", api.SendAgain.as_view(), name="api-alert-again"),
]
