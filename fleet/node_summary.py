"""What the pages show of a node now, as JSON beside its state: a function of the state and its newest batch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from fleet.domain.second_pass import domain_of
from fleet.domain.summary import NodeNow, SubjectNow


def models_of(batch: Any) -> dict[str, str]:
    """UUID -> product name of the GPUs in a decoded batch."""
    return {gpu.uuid: gpu.name for interval in batch.intervals for gpu in interval.gpus if gpu.name}


def domain_in(batch: Any) -> str:
    """The NVLink domain that most GPUs of a decoded batch name; empty where none names one."""
    fabrics = [gpu.fabric for interval in batch.intervals for gpu in interval.gpus if gpu.fabric is not None]
    named = Counter(domain for one in fabrics if (domain := domain_of(one.cluster, one.clique)))
    return max(named, key=lambda domain: (named[domain], domain), default="")


def as_json(now: NodeNow, models: Mapping[str, str], driver: str | None, domain: str = "") -> str:
    """The summary of a node as a JSON text; instants in ms since 1970 UTC, weights 0..100."""
    return json.dumps(
        {
            "node": _subject(now.node, models),
            "subjects": [_subject(subject, models) for subject in now.subjects],
            "has_conditions": any(subject.conditions for subject in (now.node, *now.subjects)),
            "sources": now.sources,
            "boot_id": now.boot_id,
            "models": dict(models),
            "driver": driver,
            **({"domain": domain} if domain else {}),
            **({"installations": now.installations} if now.installations > 1 else {}),
            **({"overruled": True} if now.overruled else {}),
        },
        separators=(",", ":"),
    )


def _subject(subject: SubjectNow, models: Mapping[str, str]) -> dict[str, Any]:
    """One subject; what is empty is left out."""
    verdict = subject.verdict
    out: dict[str, Any] = {
        "subject": subject.subject,
        "kind": subject.kind,
        "device": subject.device,
        "bus_id": subject.bus_id,
        "model": models.get(subject.device or ""),
        "state": str(verdict.state),
        "nominal": verdict.nominal,
        "lower": verdict.lower,
        "upper": verdict.upper,
        "certain": list(verdict.certain),
        "possible": list(verdict.possible),
        "conditions": [
            {
                "code": condition.code,
                "party": condition.party,
                "since_ms": condition.since_ms,
                "last_ms": condition.last_ms,
                "weight": condition.weight,
                "certain": condition.certain,
            }
            for condition in subject.conditions
        ],
    }
    return {name: value for name, value in out.items() if value not in (None, [], "")}
