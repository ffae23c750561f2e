"""What every page knows of the site."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest

from orgs import viewing


def site(request: HttpRequest) -> dict[str, Any]:
    """The org of the page (None outside `/o/`), whether this visitor needs no login here, and the exposure."""
    return {
        "org": getattr(request, "org", None),
        "role": getattr(request, "role", None),
        "viewing": viewing.current(request),
        "expose": settings.GOODPUT_EXPOSE.value,
    }
