"""Routes of the API under /v1/."""

from __future__ import annotations

urlpatterns: list = []
