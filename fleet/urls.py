"""Pages of an org's fleet."""

from __future__ import annotations

from django.urls import path

from fleet import views

urlpatterns = [path("", views.fleet, name="fleet")]
