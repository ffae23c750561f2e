"""Reports and claims as PDF: the page's own numbers, set by WeasyPrint in a child process with limits.

The child fetches nothing but data URLs; names from agents are escaped by the template. Without Pango the answer is one
sentence with the exact line that installs it.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.template.loader import render_to_string

from claims.drawing import month_strip
from claims.errors import PdfUnavailable
from claims.inputs import canonical_json
from claims.models import Claim, Report
from claims.pack import incidents_csv
from claims.pdf_sign import signed
from claims.selectors import Month, anchors_of_month
from orgs.models import Org

SECONDS = 60
APT_LINE = "sudo apt-get install -y libpango-1.0-0 libpangocairo-1.0-0 libpangoft2-1.0-0"
STATIC = Path(__file__).resolve().parent.parent / "static"


def report_as_pdf(report: Report, org: Org) -> bytes:
    """The report; with its claim's head where there is one. Raises PdfUnavailable."""
    return _pdf(report, report.claims.first(), org)


def claim_as_pdf(claim: Claim, org: Org) -> bytes:
    """The claim's document, signed where the operator set a certificate. Raises PdfUnavailable."""
    report = claim.report
    return signed(_pdf(report, claim, org), report.issued_at or report.computed_at)


def _pdf(report: Report, claim: Claim | None, org: Org) -> bytes:
    month = Month(report.contract, report.version, report.month, report.result, report)
    html = render_to_string(
        "claims/pdf.html",
        {
            "m": month,
            "claim": claim,
            "org": org,
            "strip": month_strip(report.result),
            "anchors": anchors_of_month(report),
            "made": report.issued_at or report.computed_at,
        },
    )
    attachments = [["result.json", "Every number of this document", canonical_json(report.result).decode()]]
    if month.result:
        attachments.append(["incidents.csv", "What counted", incidents_csv(month.result).decode()])
    job = {
        "html": html,
        "css": style(report, claim),
        "attachments": attachments,
        "at": (report.issued_at or report.computed_at).isoformat(),
        "identifier": report.digest,
    }
    return run_child(job)


def style(report: Report, claim: Claim | None) -> str:
    """The sheet, its font as a data URL, and the running head."""
    font = base64.b64encode((STATIC / "fonts" / "inter-latin-wght-normal.woff2").read_bytes()).decode()
    face = f'@font-face{{font-family:"Inter";src:url("data:font/woff2;base64,{font}");font-weight:100 900}}\n'
    name = claim.label if claim else f"Report {report.month}"
    issued = f"{report.issued_at:%Y-%m-%d %H:%M} UTC" if report.issued_at else "draft"
    right = f"{name} · version {report.number} · {issued} · page "
    head = (
        f'@page{{@top-left{{content:"Goodput"}}@top-right{{content:"{right}" counter(page) " of " counter(pages)}}}}\n'
    )
    return face + head + (STATIC / "claims-print.css").read_text()


def run_child(job: dict[str, Any]) -> bytes:
    """The PDF of a job, made by `claims.pdf_child` within its limits. Raises PdfUnavailable."""
    dated = {"SOURCE_DATE_EPOCH": str(int(datetime.fromisoformat(job["at"]).timestamp()))}  # in the fonts' subsets
    try:
        done = subprocess.run(
            [sys.executable, "-m", "claims.pdf_child"],
            input=json.dumps(job).encode(),
            capture_output=True,
            timeout=SECONDS,
            cwd=settings.BASE_DIR,
            env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8", **dated},
        )
    except subprocess.TimeoutExpired as error:
        raise PdfUnavailable(
            f"The PDF took more than {SECONDS} s. The HTML, CSV and JSON have the same content."
        ) from error
    if done.returncode == 3:
        raise PdfUnavailable(
            f"This machine has no Pango, so there is no PDF: {APT_LINE}. HTML, CSV, JSON and the pack work without it."
        )
    if done.returncode == 4:
        raise PdfUnavailable("WeasyPrint is not installed: pip install -r requirements.lock.")
    if done.returncode or not done.stdout.startswith(b"%PDF-"):
        raise PdfUnavailable(
            "The PDF could not be made within its limits. The HTML, CSV and JSON have the same content."
        )
    return done.stdout
