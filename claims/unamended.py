"""The result of a month under the rules without the org's amendments, for the report that is computed under them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from claims.claimed import find_windows
from claims.domain.rule_spans import read_spans
from claims.inputs import Gathered
from claims.models import NodeMonth
from claims.node_months import runs_of_months
from claims.verify.beside import Under, beside, is_amended, without_amendments
from fleet.domain.rules import load_rules


def unamended(gathered: Gathered, result: Mapping[str, Any]) -> dict[str, Any] | None:
    """What stands beside a month that is over, as the verifier computes it too; None where no rule was amended."""
    amended = read_spans(gathered.frozen["rules"]["spans"], load_rules)
    if not result["is_over"] or not is_amended(amended, gathered.inputs.period):
        return None
    kept: dict[str, list[NodeMonth]] = {}
    names = {}
    for one in gathered.frozen["node_months"]:
        names[one["id"]] = one["node"]
        kept.setdefault(one["id"], []).append(
            NodeMonth.objects.get(node_id=int(one["id"]), month=one["month"], digest=one["digest"])
        )
    nodes = [(one, names[one], runs_of_months(kept[one])) for one in sorted(kept, key=int)]
    plain = without_amendments(amended, load_rules)
    folded = [
        (str(window.node_id), *window.slots, window.fold(Under(window.dated, plain)))
        for window in find_windows(result, gathered.frozen["node_months"])
    ]
    return beside(gathered.terms, gathered.inputs, nodes, folded, amended, load_rules)
