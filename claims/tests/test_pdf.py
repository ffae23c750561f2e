"""The PDF has the page's numbers, its evidence inside, and takes nothing that an agent named for markup."""

from __future__ import annotations

import re
import subprocess
import sys
import zlib
from typing import Any

import pytest

from claims import pdf
from claims.errors import PdfUnavailable
from claims.models import Claim
from claims.services import Actor, add_contract, read_terms
from claims.services_reports import draft_report, issue_report
from claims.tests.conftest import NOW
from claims.tests.months import terms

JOB = {"html": "<p>x</p>", "css": "", "attachments": [], "at": "2026-11-09T08:00:00+00:00", "identifier": "x"}


def made_or_skipped(make: Any) -> bytes:
    try:
        return make()
    except PdfUnavailable as error:
        pytest.skip(str(error))


@pytest.mark.full
@pytest.mark.django_db
def test_a_claim_is_one_pdf_a_with_its_evidence_and_the_same_bytes_every_time(contract: Any, actor: Actor) -> None:
    issue_report(contract, "2026-10", actor, now=NOW)
    claim = Claim.objects.get()
    first = made_or_skipped(lambda: pdf.claim_as_pdf(claim, actor.org))
    assert pdf.claim_as_pdf(claim, actor.org) == first
    text = first + b"".join(_inflated(first))
    assert b"pdfaid:part" in text
    assert b"result.json" in text
    assert b"incidents.csv" in text


def _inflated(body: bytes) -> list[bytes]:
    out = []
    for match in re.finditer(rb"stream\r?\n(.*?)endstream", body, re.DOTALL):
        try:
            out.append(zlib.decompressobj().decompress(match[1]))
        except zlib.error:
            continue
    return out


@pytest.mark.full
@pytest.mark.django_db
def test_hostile_names_stay_text(contract: Any, actor: Actor) -> None:
    name = '<img src="file:///etc/passwd"><b>'
    add_contract(read_terms(terms(provider=f"'{name}'")), actor)
    report = draft_report(contract, "2026-10", NOW)
    body = made_or_skipped(lambda: pdf.report_as_pdf(report, actor.org))
    assert b"root:" not in b"".join(_inflated(body))


@pytest.mark.full
def test_the_child_fetches_nothing() -> None:
    html = '<img src="file:///etc/passwd"><img src="http://127.0.0.1:9/x.png"><p>x</p>'
    body = made_or_skipped(lambda: pdf.run_child({**JOB, "html": html}))
    assert body.startswith(b"%PDF-")


def test_without_pango_the_answer_is_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: Any, **more: Any) -> Any:
        return subprocess.CompletedProcess([sys.executable], 3, b"", b"")

    monkeypatch.setattr(pdf.subprocess, "run", missing)
    with pytest.raises(PdfUnavailable, match="apt-get install -y libpango-1.0-0"):
        pdf.run_child(JOB)


@pytest.mark.django_db
def test_a_long_list_says_what_it_leaves_out_and_an_incomplete_contract_what_to_look_up(
    contract: Any, actor: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[dict[str, Any]] = []
    monkeypatch.setattr(pdf, "run_child", lambda job: jobs.append(job) or b"")
    report = draft_report(contract, "2026-10", NOW)
    result = report.result["assessment"]["result"]
    result["units"] = result["units"] * 201
    pdf.report_as_pdf(report, actor.org)
    assert "The first 200 of 201 units" in jobs[-1]["html"]
    result["units"] = result["units"][:200]
    report.result["assessment"].update(status="not_measurable", missing=["owns_driver", "zone"])
    pdf.report_as_pdf(report, actor.org)
    assert "The first 200" not in jobs[-1]["html"]
    assert "the contract does not say who runs the GPUs" in jobs[-1]["html"]
    assert "(owns_driver); the time zone of its months (zone)" in jobs[-1]["html"]
