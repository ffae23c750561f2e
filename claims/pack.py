"""A claim's pack: one deterministic ZIP with everything that the other side needs to repeat the claim offline."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import logging
import zipfile
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.utils import timezone

import fleet.domain.rules as rules_package
from claims.claimed import MARGIN_HOURS, find_windows
from claims.domain.rule_spans import read_spans
from claims.errors import PackError, PdfUnavailable
from claims.inputs import canonical_json
from claims.ledger import Proofs, all_hashes, leaves_of, load_key, make_checkpoint, micros
from claims.models import Anchor, Claim, Leaf, NodeMonth, Report, SignedCheckpoint
from claims.pack_agents import agents_of
from claims.verify.agents import FILE as AGENTS
from claims.verify.anchors import shares
from claims.verify.batches import forget_batches
from claims.verify.beside import Under, without_amendments
from claims.verify.clocks import HEAD, clock_lines
from claims.verify.pack_file import ANCHORED, MANIFEST_TAG, UNANCHORED, ZIP_DATE
from claims.verify.setting import Recording
from claims.verify.tables import INCIDENTS, SLOTS, incident_lines, slot_lines
from claims.verify.words import verify_md
from fleet import evidence
from fleet.bodies import decompress
from fleet.domain.rules import load_rules
from fleet.domain.slots import HOUR_MS, SLOT_MS, SLOTS_PER_HOUR
from fleet.domain.state import FORMAT as FOLD
from fleet.models import NodeHour
from fleet.packs import Row
from orgs.models import Org
from orgs.sheets import cell

log = logging.getLogger(__name__)


def make_pack(claim: Claim, org: Org, now: datetime | None = None, with_pdf: bool = False) -> bytes:
    """The pack's bytes; the same claim and the same log give the same bytes. Raises PackError.

    `with_pdf`: with the claim's document, where this machine can make one.
    """
    checkpoint = make_checkpoint(org, now or timezone.now())
    report = claim.report
    files = _documents(claim, report)
    files.update(_runs(report, files))
    files.update(_evidence(report, checkpoint))
    if with_pdf:
        from claims.pdf import claim_as_pdf  # it imports this module's table

        try:
            files["claim.pdf"] = claim_as_pdf(claim, org)
        except PdfUnavailable as error:
            log.warning("the pack of %s has no PDF: %s", claim.label, error)
    key = load_key()
    files["keys.json"] = canonical_json({"log": key.verifier()})
    files.update(_anchors(checkpoint))
    is_anchored = bool(shares(files)[0].between)
    files["VERIFY.md"] = verify_md(is_anchored).encode()
    manifest = canonical_json(
        {
            "format": "goodput-pack/1",
            "title": ANCHORED if is_anchored else UNANCHORED,
            "claim": claim.label,
            "org": org.slug,
            "is_simulated": report.result["is_simulated"],
            "fold": FOLD,
            "files": {name: hashlib.sha256(body).hexdigest() for name, body in files.items()},
        }
    )
    files["manifest.json"] = manifest
    files["manifest.sig"] = base64.b64encode(key.private.sign(MANIFEST_TAG + manifest)) + b"\n"
    forget_batches()
    return zipped(files)


def zipped(files: dict[str, bytes]) -> bytes:
    """A ZIP of these files: sorted names, one date, one way to compress."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in sorted(files):
            info = zipfile.ZipInfo(name, ZIP_DATE)
            info.create_system, info.external_attr = 3, 0o644 << 16
            stored = name.endswith((".gz", ".pdf"))
            info.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
            archive.writestr(info, files[name], compresslevel=None if stored else 6)
    return out.getvalue()


def _documents(claim: Claim, report: Report) -> dict[str, bytes]:
    """What a person reads: the claim, the result, its tables, contract, rows, rules, coverage."""
    result = report.result["assessment"]["result"]
    about = {
        "claim": claim.label,
        "amount": f"{claim.amount:.2f}",
        "currency": claim.currency,
        "report": {"version": str(report.number), "status": report.status, "digest": report.digest},
        "issued_at": None if report.issued_at is None else report.issued_at.isoformat(),
        "reason": report.reason,
        "closes_at": None if claim.closes_at is None else claim.closes_at.isoformat(),
    }
    folder = Path(rules_package.__file__).parent
    bases = {span["base"] for span in report.inputs["rules"]["spans"]}
    files = {
        "claim.json": canonical_json(about),
        "result.json": canonical_json(report.result),
        "inputs.json": canonical_json(report.inputs),
        "contract.json": report.version.terms.encode(),
        "overlays.json": canonical_json(report.inputs["overlays"]),
        "coverage.json": canonical_json(
            {"contract": result["coverage"], **{unit["name"]: unit["coverage"] for unit in result["units"]}}
        ),
        "incidents.csv": incidents_csv(result),
        **{
            f"rules/{base}/{path.name}": path.read_bytes()
            for base in sorted(bases)
            for path in sorted((folder / base).glob("*.toml"))
        },
    }
    if "ticket" in report.result:
        files["tickets.json"] = canonical_json(report.result["ticket"])
    return files


def _csv(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(head)
    writer.writerows([cell(value) for value in row] for row in rows)
    return out.getvalue().encode()


def incidents_csv(result: dict[str, Any]) -> bytes:
    """What counted, one line an incident."""
    return _csv(INCIDENTS, incident_lines(result))


def _runs(report: Report, documents: Mapping[str, bytes]) -> dict[str, bytes]:
    """Each node's verdict runs as the report used them, and the tables that a person can open in a sheet.

    `documents`: those of the pack that `_documents` made.
    """
    files: dict[str, bytes] = {}
    hours = []
    first, end = _period_slots(report)
    for one in report.inputs["node_months"]:
        kept = NodeMonth.objects.filter(node_id=int(one["id"]), month=one["month"], digest=one["digest"]).first()
        if kept is None:
            raise PackError(
                f"The verdicts of {one['node']} in {one['month']} were folded again since the report was issued. "
                "Restate the report, then make its pack."
            )
        files[f"runs/{one['id']}-{one['month']}.json"] = decompress(kept.body)
    for node_id, name in sorted({(int(one["id"]), one["node"]) for one in report.inputs["node_months"]}):
        found = NodeHour.objects.filter(
            node_id=node_id, hour__gte=first // SLOTS_PER_HOUR, hour__lt=-(-end // SLOTS_PER_HOUR)
        ).order_by("hour")
        for row in found.values_list("hour", "gpus", "unknown_s", "down_s", "degraded_s", "lower_sum", "upper_sum"):
            hours.append((name, datetime.fromtimestamp(row[0] * 3600, UTC).strftime("%Y-%m-%dT%H:00Z"), *row[1:]))
    files["slots.csv"] = _csv(SLOTS, slot_lines({**documents, **files}))
    columns = ("node", "hour_utc", "gpus", "unknown_s", "down_s", "degraded_s", "lower_weight_s", "upper_weight_s")
    files["hourly.csv"] = _csv(columns, hours)
    return files


def _period_slots(report: Report) -> tuple[int, int]:
    period = report.result["assessment"]["result"]["period"]
    first = int(period["first_slot"])
    return first, first + int(period["slots"])


def _evidence(report: Report, checkpoint: SignedCheckpoint | None) -> dict[str, bytes]:
    """Windows with their exact batches and opening states, the month's skeleton, proofs and checkpoints."""
    first, end = _period_slots(report)
    nodes = {int(one["id"]): one["node"] for one in report.inputs["node_months"]}
    windows, bodies = _windows(report)
    files: dict[str, bytes] = {}
    for window in windows:
        state = window.pop("state_bytes")
        if state:
            window["state"] = f"states/{window['node_id']}-{window['first_hour']}.bin"
            files[window["state"]] = state
    size = 0 if checkpoint is None else checkpoint.size
    hashes = all_hashes(size)
    rows = _rows(nodes, first * SLOT_MS, end * SLOT_MS, bodies)
    skeleton = _skeleton(rows)
    known = leaves_of(bytes.fromhex(one["sha256"]) for one in skeleton)
    proofs: dict[str, Any] = {}
    tree = Proofs(hashes) if hashes else None
    if tree is not None and checkpoint is not None and tree.root != bytes(checkpoint.root):
        raise PackError("The stored leaves do not give the root of the last checkpoint: the log was changed.")
    for one in skeleton:
        leaf = known.get(bytes.fromhex(one["sha256"]))
        one["leaf"] = None if leaf is None or leaf.position >= size else str(leaf.position)
        if tree is not None and one["leaf"] is not None and one["sha256"] in bodies:
            proofs[one["sha256"]] = {"index": one["leaf"], "path": [h.hex() for h in tree.of(int(one["leaf"]))]}
    for sha, body in bodies.items():
        files[f"batches/{sha}.msgpack.gz"] = body
    files[AGENTS] = canonical_json(agents_of((rows[sha] for sha in sorted(bodies)), size, tree))
    files["adoptions.json"] = canonical_json(_adoptions(report, size, tree))
    files["windows.json"] = canonical_json(windows)
    files["skeleton.json"] = canonical_json(skeleton)
    files["clock.csv"] = _csv(HEAD, clock_lines(files))
    logged = [int(one["leaf"]) for one in skeleton if one["leaf"] is not None]
    shared = [] if tree is None or not logged else [hashed.hex() for hashed in tree.beside(logged)]
    files["proofs.json"] = canonical_json({"size": str(size), "inclusion": proofs, "skeleton": shared})
    for signed in SignedCheckpoint.objects.filter(size__lte=size).order_by("size"):
        files[f"checkpoints/{signed.size:012d}.note"] = signed.note.encode()
        files[f"checkpoints/{signed.size:012d}.json"] = canonical_json(
            {"size": str(signed.size), "proof": signed.proof}
        )
    return files


#: How an anchor's evidence is named in the pack.
ENDINGS = {"rfc3161": "tsr", "mail": "eml", "ticket": "txt", "token": "jwt"}


def _anchors(checkpoint: SignedCheckpoint | None) -> dict[str, bytes]:
    """Every anchor of the log up to the checkpoint, with its evidence and the key that checks it."""
    files: dict[str, bytes] = {}
    lines = []
    made = Anchor.objects.filter(state="made", checkpoint__size__lte=checkpoint.size if checkpoint else 0)
    for one in made.select_related("checkpoint").order_by("at", "pk"):
        name = f"anchors/{one.checkpoint.size:012d}-{one.kind}-{one.pk}.{ENDINGS[one.kind]}"
        files[name] = bytes(one.evidence or b"")
        line = {
            "kind": one.kind,
            "size": str(one.checkpoint.size),
            "at": one.at.astimezone(UTC).isoformat(timespec="milliseconds") if one.at else "",
            "who": one.who,
            "reference": one.reference,
            "file": name,
        }
        if one.key:
            ending = "pem" if one.kind == "rfc3161" else "json"
            line["key"] = f"anchors/key-{hashlib.sha256(one.key.encode()).hexdigest()[:16]}.{ending}"
            files[line["key"]] = one.key.encode()
        lines.append(line)
    files["anchors.json"] = canonical_json(lines)
    return files


def _adoptions(report: Report, size: int, tree: Proofs | None) -> list[dict[str, Any]]:
    """The log's leaves of the contract's version, the rule sets and the amendments that the report rests on."""
    wanted = {report.version.digest}
    for span in report.inputs["rules"]["spans"]:
        wanted.add(load_rules(span["base"]).digest)
    for one in read_spans(report.inputs["rules"]["spans"], load_rules):
        wanted.update(amended.digest() for amended in one.amendments)
    if tree is None:
        return []
    leaves = Leaf.objects.filter(
        what=Leaf.What.DOCUMENT, position__lt=size, batch_sha256__in=[bytes.fromhex(one) for one in wanted]
    )
    return [
        {
            "name": leaf.detail,
            "digest": bytes(leaf.batch_sha256).hex(),
            "adopted_us": str(micros(leaf.received_at)),
            "index": str(leaf.position),
            "path": [hashed.hex() for hashed in tree.of(leaf.position)],
        }
        for leaf in leaves.order_by("position")
    ]


def _windows(report: Report) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """The claimed hours with their batches and what dated rows said while they were folded, and the batches' bytes."""
    spans = read_spans(report.inputs["rules"]["spans"], load_rules)
    is_beside = "unamended" in report.result
    windows: list[dict[str, Any]] = []
    bodies: dict[str, bytes] = {}
    for window in find_windows(report.result, report.inputs["node_months"]):
        mine = {one.sha256.hex(): one.member() for one in window.batches}
        bodies.update(mine)
        setting = Recording(window.dated)
        window.fold(setting)
        if is_beside:
            window.fold(Under(setting, without_amendments(spans, load_rules)))
        windows.append(
            {
                "node": window.node,
                "node_id": str(window.node_id),
                "first_hour": window.first_hour,
                "last_hour": window.last_hour,
                "margin": MARGIN_HOURS - 1,
                "months": window.months,
                "batches": sorted(mine),
                "moved": window.moved,
                "setting": setting.plain(),
                "state": "",
                "state_bytes": window.state,
            }
        )
    return windows, bodies


def _rows(nodes: dict[int, str], first_ms: int, end_ms: int, bodies: dict[str, bytes]) -> dict[str, Row]:
    """Every batch of the month of every node, and those that are enclosed, by hash."""
    found = evidence.all_of(list(nodes), first_ms // HOUR_MS, (end_ms - 1) // HOUR_MS, bodies=False)
    rows = {one.sha256.hex(): one.row for one in found if one.reason != "seq_conflict" and not one.row.is_seq_conflict}
    for sha in bodies:
        if sha not in rows and (one := evidence.get_batch(bytes.fromhex(sha))) is not None:
            rows[sha] = one.row
    return rows


def _skeleton(rows: dict[str, Row]) -> list[dict[str, Any]]:
    """What the log's leaves of these batches are made of."""
    out = [
        {
            "sha256": sha,
            "received_us": str(row.received_us),
            "cluster": row.cluster,
            "node": row.node,
            "agent": row.agent_id,
            "seq": None if row.seq is None else str(row.seq),
        }
        for sha, row in rows.items()
    ]
    return sorted(out, key=lambda one: (int(one["received_us"]), one["sha256"]))


__all__ = ["incidents_csv", "make_pack", "zipped"]
