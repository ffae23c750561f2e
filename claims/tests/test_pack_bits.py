"""One bit in any file of a pack is found, and the PDF's child has an end (attacks E01 and P03)."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from claims import pdf
from claims.errors import PdfUnavailable
from claims.tests.packs import Made, verdict
from claims.verify.checks import FAIL


@pytest.mark.django_db
def test_one_bit_in_every_file_is_found(made: Made) -> None:
    whole = [name for name in made.files if not name.startswith("batches/")]
    some_batches = sorted(name for name in made.files if name.startswith("batches/"))[::40]
    for number, name in enumerate([*whole, *some_batches]):
        raw = bytearray(made.files[name])
        raw[len(raw) * number // (len(whole) + len(some_batches))] ^= 1
        check = "signature" if name.startswith("manifest.") else "manifest"
        try:
            found = verdict({**made.files, name: bytes(raw)}, check)
        except ValueError:
            continue  # no pack any more: said so, and not verified
        assert found == FAIL, name


def test_a_layout_without_end_is_killed_by_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pdf, "SECONDS", 4)
    rows = "<tr>" + "<td>x</td>" * 40 + "</tr>"
    job: dict[str, Any] = {
        "html": f"<table>{rows * 20_000}</table>", "css": "td{padding:1px}", "attachments": [],
        "at": "2026-10-01T00:00:00+00:00", "identifier": "00",
    }  # fmt: skip
    assert len(json.dumps(job)) < 20_000_000
    began = time.monotonic()
    with pytest.raises(PdfUnavailable):
        pdf.run_child(job)
    assert time.monotonic() - began < pdf.SECONDS + 10
