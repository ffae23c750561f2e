"""Routes of the guide: each page has its own, so that a mistyped one is a 404 of the router."""

from __future__ import annotations

from django.urls import path

from goodput_site.guide import content, views

urlpatterns = [
    *(path(each.path.lstrip("/"), views.page, {"name": each.name}, name=each.url_name) for each in content.PAGES),
    path("guides/ios-dashboard-setup.txt", views.ios_checklist, name="ios-checklist"),
    path("llms-full.txt", views.full_text, name="llms-full"),
    *(path(name, views.served_file, {"name": name}, name=name) for name in views.SERVED),
    path("releases/manifest.json", views.manifest, name="release-manifest"),
    path("releases/<str:name>", views.release_file, name="release-file"),
]
