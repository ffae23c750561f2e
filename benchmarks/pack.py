"""Documents and packs: the PDF of a 64-node month, a pack of some 200 incidents, and its verification with and without
msgspec. CPU seconds of this process and its children, because the machine may be busy.

R10 = CPU of the verification / CPU of sorting one million integers (the calibrator). Goals: PDF at most 5 s and 300 MB,
pack at most 30 s, at least 2,000 batches/s with msgspec and 100 without.
"""

from __future__ import annotations

import io
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.common import repeat, show

PDF_NODES, PACK_NODES, HOURS = 64, 5, 24
HOUR_MS = 3_600_000


def run(rounds: int) -> dict[str, Any]:
    """Measure and print; the figures."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "goodput_site.settings"
    subprocess.check_call([sys.executable, "manage.py", "prepare"], stdout=subprocess.DEVNULL)
    import django

    django.setup()
    from django.conf import settings
    from django_tenants.utils import tenant_context

    from orgs.services import create_org

    settings.GOODPUT_VAR = Path(tempfile.mkdtemp(prefix="goodput-bench-"))
    org = create_org(f"bench-{int(time.time())}", "Benchmark (simulated)")
    with tenant_context(org):
        report = _report()
        claim, incidents = _claim(org)
        figures = repeat(rounds, lambda number: _round(org, report, claim, number), "sort_s")
    figures["incidents"] = incidents
    show(
        f"documents: {PDF_NODES} nodes of 8 GPUs for the PDF, {incidents} incidents for the pack",
        figures,
        [
            ("pdf_s", "PDF of the month, CPU s (goal ≤ 5)"),
            ("pdf_mb", "its process at most, MB (goal ≤ 300)"),
            ("pdf_kb", "its size, kB"),
            ("pack_s", "pack with its PDF, CPU s (goal ≤ 30)"),
            ("pack_mb", "its size, MB"),
            ("batches", "batches in it"),
            ("verify_per_s", "verified batches a CPU second, msgspec (goal ≥ 2000)"),
            ("plain_per_s", "the same with the standard library (goal ≥ 100)"),
            ("sort_s", "calibrator: sort of a million integers, s"),
            ("R10", "R10: verification / calibrator"),
        ],
    )
    return figures


def _cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _round(org: Any, report: Any, claim: Any, number: int) -> dict[str, float]:
    from claims.pack import make_pack
    from claims.pdf import report_as_pdf
    from claims.verify import recompute, unpack
    from claims.verify.checks import FAIL, check_pack
    from claims.verify.pack_file import read_pack

    rng = random.Random(number)
    numbers = [rng.random() for _ in range(1_000_000)]
    start = _cpu()
    numbers.sort()
    sort_s = _cpu() - start
    start = _cpu()
    pdf = report_as_pdf(report, org)
    pdf_s = _cpu() - start
    pdf_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    start = _cpu()
    body = make_pack(claim, org, datetime.now(UTC) + timedelta(hours=1), with_pdf=True)
    pack_s = _cpu() - start
    files = read_pack(io.BytesIO(body))
    batches = sum(name.startswith("batches/") for name in files)
    start = _cpu()
    findings = check_pack(files)
    verify_s = _cpu() - start
    assert not [one for one in findings if one.verdict == FAIL], findings
    own = recompute.decoder
    recompute.decoder = lambda: unpack.decode
    start = _cpu()
    check_pack(files, only=("fold",))
    plain_s = _cpu() - start
    recompute.decoder = own
    return {
        "pdf_s": pdf_s,
        "pdf_mb": pdf_mb,
        "pdf_kb": len(pdf) / 1024,
        "pack_s": pack_s,
        "pack_mb": len(body) / 2**20,
        "batches": batches,
        "verify_per_s": batches / verify_s,
        "plain_per_s": batches / plain_s,
        "sort_s": sort_s,
        "R10": verify_s / sort_s,
    }


def _report() -> Any:
    """A month of 64 nodes, with a lost GPU for some hours on every other one; issued."""
    from claims.services import Actor, add_contract, read_terms
    from claims.services_reports import draft_report
    from claims.tests.months import DOWN, fill, terms
    from orgs.models import Org

    names = [f"gpu-{number:03d}" for number in range(PDF_NODES)]
    rng = random.Random(3)
    for name in names:
        first = rng.randrange(1000, 150_000)
        fill(name, faults={"g3": [(first, first + rng.randrange(20, 2000), DOWN)]})
    units = "\n".join(
        f'[[units]]\nname = "{name}"\nmembers = [{", ".join(repr(f"{name}/gpu{i}") for i in range(8))}]'
        for name in names
    ).replace("'", '"')
    text = terms(min_healthy="8").partition("[[units]]")[0] + units
    actor = Actor("bench", Org.objects.get(slug__startswith="bench-"))
    version = add_contract(read_terms(text), actor, entitled_from="2026-09-01T00:00:00Z")
    return draft_report(version.contract, "2026-10", datetime(2026, 11, 9, tzinfo=UTC))


def _claim(org: Any) -> tuple[Any, int]:
    """(a claim, its incidents) of nodes that lose a GPU every half hour for a day, from real uploads."""
    from claims.models import Claim
    from claims.services import Actor, add_contract, read_terms
    from claims.services_reports import issue_report
    from claims.tests.months import terms
    from fleet import simulation
    from fleet.folding import fold_waiting
    from fleet.ingest import receive
    from fleet.refolding import refold_dirty
    from orgs.keys import KeyInfo

    simulation.SCENARIO = "xid79"
    first = int(datetime(2026, 10, 20, tzinfo=UTC).timestamp()) * 1000
    plan = simulation.Plan("bench-pack", PACK_NODES, first, first + HOURS * HOUR_MS, 5)
    key = KeyInfo(0, "bench", frozenset({"ingest"}), "", None, org.pk, org.slug, org.schema_name)
    now = datetime.now(UTC)
    for body, _ in simulation.uploads(plan):
        receive(body, key, {})
    while fold_waiting(now):
        pass
    while refold_dirty(now):
        pass
    units = "\n".join(
        f'[[units]]\nname = "{name}"\nmembers = [{", ".join(repr(f"{name}/gpu{i}") for i in range(8))}]'
        for name in plan.names
    ).replace("'", '"')
    text = terms(name='"Pack"', tiers='[["99.99", "10"]]', min_healthy="8").partition("[[units]]")[0] + units
    actor = Actor("bench", org)
    version = add_contract(read_terms(text), actor, entitled_from="2026-09-01T00:00:00Z")
    report = issue_report(version.contract, "2026-10", actor, now=datetime(2026, 11, 9, tzinfo=UTC))
    claim = Claim.objects.get(report=report)
    return claim, sum(len(unit["incidents"]) for unit in report.result["assessment"]["result"]["units"])
