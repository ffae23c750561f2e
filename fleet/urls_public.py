"""Routes of the fleet that belong to no org: the rules, for anybody to read."""

from __future__ import annotations

from django.urls import path

from fleet import views_rules

urlpatterns = [
    path("rules/", views_rules.public_rules, name="rules"),
    path("rules/<str:version>.json", views_rules.public_rules_json, name="rules_json"),
]
