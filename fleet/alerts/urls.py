"""Routes of Settings → Alerts."""

from __future__ import annotations

from django.urls import path

from fleet.alerts import views

urlpatterns = [
    path("", views.channels, name="alerts"),
    path("new/<slug:kind>/", views.new_channel, name="alert_channel_new"),
    path("log/", views.log, name="alert_log"),
    path("log.csv", views.log_csv, name="alert_log_csv"),
    path("deliveries/<int:delivery_id>/again/", views.send_again, name="alert_again"),
    path("<int:channel_id>/", views.channel, name="alert_channel"),
    path("<int:channel_id>/test/", views.test_channel, name="alert_channel_test"),
    path("<int:channel_id>/ask/", views.ask_address, name="alert_channel_ask"),
    path("<int:channel_id>/roll/", views.roll_channel, name="alert_channel_roll"),
    path("<int:channel_id>/remove/", views.remove_channel, name="alert_channel_remove"),
]
