"""The route of alerts that needs no login: an address confirms that it wants them."""

from __future__ import annotations

from django.urls import path

from fleet.alerts import views_public

urlpatterns = [path("alerts/confirm/<str:token>/", views_public.confirm_address, name="alert_confirm")]
