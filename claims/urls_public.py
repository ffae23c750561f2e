"""Routes of claims that need no login: the calendar, whose address is the secret."""

from __future__ import annotations

from django.urls import path

from claims import views_claims

urlpatterns = [path("calendar/<int:feed_org>/<str:token>.ics", views_claims.feed, name="calendar")]
