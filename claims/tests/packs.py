"""Packs for the tests of the verifier: the simulated claim's, and what a forger does with one."""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from claims.domain.month_runs import decode, encode
from claims.inputs import canonical_json
from claims.verify.checks import check_pack
from claims.verify.pack_file import MANIFEST_TAG, read_pack
from claims.verify.recompute import result_of
from fleet.domain.verdicts import HEALTHY

NOW = datetime(2026, 11, 9, 8, tzinfo=UTC)
HOURS = 24  # of simulated uploads in the pack that the tests share
Files = dict[str, bytes]


class Made:
    """A pack, its files, and the key that signed it."""

    def __init__(self, body: bytes, key: Any) -> None:
        self.body, self.key = body, key
        self.files = read_pack(io.BytesIO(body))

    def signed(self, files: Files, key: Any = None) -> Files:
        """The files with a manifest and a signature that fit them: what a forger who holds a key would do."""
        key = key or self.key
        manifest = json.loads(files["manifest.json"])
        manifest["files"] = {
            name: hashlib.sha256(raw).hexdigest()
            for name, raw in files.items()
            if name not in ("manifest.json", "manifest.sig")
        }
        raw = canonical_json(manifest)
        signature = base64.b64encode(key.private.sign(MANIFEST_TAG + raw))
        return {**files, "manifest.json": raw, "manifest.sig": signature}


def make(var: Path) -> Made:
    """The pack of the simulated claim; nothing of it stays in the database or in memory."""
    from django.test import override_settings

    from claims.demo import make_demo_pack
    from claims.ledger import load_key
    from claims.verify import batches
    from orgs.models import Org

    with override_settings(GOODPUT_VAR=var):
        body = make_demo_pack(NOW, hours=HOURS)
        assert not Org.objects.filter(slug__startswith="demo-claim").exists()
        assert not batches._known
        return Made(body, load_key())


def verdict(files: Files, check: str, key: str = "") -> str:
    return check_pack(files, key, only=(check,))[0].verdict


def edited(files: Files, name: str, change: Callable[[Any], None]) -> Files:
    document = json.loads(files[name])
    change(document)
    return {**files, name: canonical_json(document)}


def agents(change: Callable[[Any], None]) -> Callable[[Files], Files]:
    return lambda files: edited(files, "agents.json", change)


def first_batch(files: Files) -> str:
    return next(name for name in sorted(files) if name.startswith("batches/"))


def note_name(files: Files) -> str:
    return next(name for name in files if name.endswith(".note"))


def healthy_runs(files: Files, fits: bool) -> Files:
    """Verdicts as a forger would like them, with the digests that fit; `fits`: the result too."""
    out = dict(files)
    inputs = json.loads(files["inputs.json"])
    for one in inputs["node_months"]:
        name = f"runs/{one['id']}-{one['month']}.json"
        runs = decode(files[name])
        bad = next(v for _, _, v in runs["g0"] + [r for s in runs for r in runs[s]] if v.lower == 0)
        runs = {s: [(a, b, bad if v == HEALTHY and s == "g1" else v) for a, b, v in line] for s, line in runs.items()}
        out[name] = encode(runs)
        one["digest"] = hashlib.sha256(out[name]).hexdigest()
    if fits:
        out["inputs.json"] = canonical_json(inputs)
        out["result.json"] = canonical_json(result_of(out))
    return out
