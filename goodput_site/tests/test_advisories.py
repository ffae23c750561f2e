"""The lock against the advisories that were read: a version below a floor has a known weakness that Goodput reaches."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# package -> (first good version, why)
FLOORS = {
    "msgpack": ("1.2.1", "GHSA-6v7p-g79w-8964: bytes that crash the decoder"),
    "weasyprint": ("69.0", "CVE-2025-68616, CVE-2026-49452: redirects and other ways round the URL fetcher"),
    "django-tenants": ("4.0.1", "#1262: another tenant's rows after a savepoint"),
    "rfc3161-client": ("1.0.6", "a token of one authority could pass as another's"),
}


def locked() -> dict[str, str]:
    """Name -> version of every package of the lock."""
    text = (ROOT / "requirements.lock").read_text()
    return {name.lower(): version for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, re.M)}


def numbers(version: str) -> tuple[int, ...]:
    """A version as numbers, for comparison."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def test_the_lock_is_read() -> None:
    assert len(locked()) > 30
    assert numbers("1.10.0") > numbers("1.9.9")


@pytest.mark.parametrize("name", sorted(FLOORS))
def test_a_locked_version_is_past_its_known_weaknesses(name: str) -> None:
    if name not in locked():
        pytest.skip(f"{name} is not used")
    floor, why = FLOORS[name]
    assert numbers(locked()[name]) >= numbers(floor), why
