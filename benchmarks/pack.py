"""Documents and packs: the PDF of a 64-node month with an incident on each node, a pack of some 200 incidents, and its
verification in one and in two processes, and without msgspec. CPU seconds of this process and its children, because
the machine may be busy; what two processes gain is wall time, so that is measured too. Each figure is told when it is
there: making the month, the uploads and a round take a minute each.

R10 = CPU of the verification / CPU of sorting one million integers (the calibrator). Goals: PDF at most 5 s and 300 MB,
pack at most 30 s, at least 2,000 batches/s with msgspec and 100 without.
"""

from __future__ import annotations

import io
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.common import repeat, show

PDF_NODES, PACK_NODES, HOURS = 64, 5, 24
PLAIN_BATCHES = 500  # folded with the standard library alone; 100 a second are the goal
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
        report = _timed("a month of 64 nodes made and drafted", _report)
        claim, incidents = _timed("uploads taken, folded and claimed", lambda: _claim(org))
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
            ("verify_ms", "verification of a batch in one process, CPU ms"),
            ("one_per_cpu_s", "verified batches a CPU second, msgspec, --jobs 1 (goal ≥ 2000)"),
            ("one_per_s", "verified batches a second, --jobs 1"),
            ("two_per_s", "the same with --jobs 2"),
            ("two_ms", "verification of a batch in two processes, CPU ms"),
            ("plain_per_s", "batches a CPU second folded with the standard library alone (goal ≥ 100)"),
            ("sort_s", "calibrator: sort of a million integers, s"),
            ("R10", "R10: verification / calibrator"),
        ],
    )
    return figures


def _cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@cache
def _most_mb_of_the_first_pdf() -> float:
    """Taken once, after the first PDF: the system tells the greatest of all children, and a verifier's is greater."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def _timed(what: str, run: Callable[[], Any]) -> Any:
    """Say what was done and what it took."""
    cpu, wall = _cpu(), time.perf_counter()
    found = run()
    print(f"  {what}: {_cpu() - cpu:.2f} s CPU, {time.perf_counter() - wall:.2f} s", flush=True)
    return found


def _verified(pack: Path, jobs: int) -> tuple[float, float]:
    """(CPU seconds, seconds) of `goodput-verify` over a pack, with the start of the program."""
    cpu, wall = _cpu(), time.perf_counter()
    command = [sys.executable, "-m", "claims.verify", str(pack), "--jobs", str(jobs)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return _cpu() - cpu, time.perf_counter() - wall


def _plain(files: dict[str, bytes]) -> float:
    """Batches a CPU second that the standard library alone folds: the first ones of the first window."""
    from claims.verify import unpack
    from claims.verify.folding import fold_in_order
    from claims.verify.rule_sets import rules_of
    from claims.verify.setting import Replayed

    window = json.loads(files["windows.json"])[0]
    mine = set(window["batches"])
    lines = [one["sha256"] for one in json.loads(files["skeleton.json"]) if one["sha256"] in mine][:PLAIN_BATCHES]
    rules = rules_of(files)
    start = _cpu()
    fold_in_order(files, {**window, "batches": lines}, Replayed(rules, window["setting"]), unpack.decode)
    return len(lines) / (_cpu() - start)


def _round(org: Any, report: Any, claim: Any, number: int) -> dict[str, float]:
    from django.conf import settings

    from claims.pack import make_pack
    from claims.pdf import report_as_pdf
    from claims.verify.pack_file import read_pack

    rng = random.Random(number)
    numbers = [rng.random() for _ in range(1_000_000)]
    start = _cpu()
    numbers.sort()
    sort_s = _cpu() - start
    start = _cpu()
    pdf = _timed("PDF of the month", lambda: report_as_pdf(report, org))
    pdf_s = _cpu() - start
    pdf_mb = _most_mb_of_the_first_pdf()
    print(f"  its process at most: {pdf_mb:.0f} MB", flush=True)
    start = _cpu()
    later = datetime.now(UTC) + timedelta(hours=1)
    body = _timed("pack with its PDF", lambda: make_pack(claim, org, later, with_pdf=True))
    pack_s = _cpu() - start
    files = read_pack(io.BytesIO(body))
    pack = Path(settings.GOODPUT_VAR) / "pack.zip"
    pack.write_bytes(body)
    batches = sum(name.startswith("batches/") for name in files)
    verify_s, one_s = _timed(f"{batches} batches verified, --jobs 1", lambda: _verified(pack, 1))
    two_cpu_s, two_s = _timed(f"{batches} batches verified, --jobs 2", lambda: _verified(pack, 2))
    return {
        "pdf_s": pdf_s,
        "pdf_mb": pdf_mb,
        "pdf_kb": len(pdf) / 1024,
        "pack_s": pack_s,
        "pack_mb": len(body) / 2**20,
        "batches": batches,
        "verify_ms": verify_s / batches * 1000,
        "one_per_cpu_s": batches / verify_s,
        "one_per_s": batches / one_s,
        "two_per_s": batches / two_s,
        "two_ms": two_cpu_s / batches * 1000,
        "plain_per_s": _timed("some batches folded without msgspec", lambda: _plain(files)),
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

    first = int(datetime(2026, 10, 20, tzinfo=UTC).timestamp()) * 1000
    plan = simulation.Plan("bench-pack", PACK_NODES, first, first + HOURS * HOUR_MS, 5, "xid79")
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
