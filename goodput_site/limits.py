"""Limits as operators write them in the environment."""

from __future__ import annotations

import math

from django.core.exceptions import ImproperlyConfigured


def quota(name: str, text: str) -> tuple[float, float]:
    """(batches, bytes) a second of a text such as `400,8000000`; 0 is no limit. Raises ImproperlyConfigured."""
    try:
        batches, size = (float(part) for part in text.split(","))
    except ValueError as error:
        raise ImproperlyConfigured(
            f"{name} is two numbers, batches and bytes a second, such as 400,8000000."
        ) from error
    if not (math.isfinite(batches) and math.isfinite(size) and min(batches, size) >= 0):
        raise ImproperlyConfigured(f"{name}: numbers of 0 or more, please; 0 is no limit.")
    return batches, size
