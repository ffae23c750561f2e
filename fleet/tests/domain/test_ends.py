"""What ends a condition is what its rule names: each evidence, on drivers with NVML's recovery action and without."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleet.domain.rules import Reason, Rules, RulesError, amend, amendment, load_rules
from fleet.domain.scenario import outcome

RULES = load_rules()
BUS = "0000:10:00.0"
EVIDENCE = ("reset", "boot", "action_none", "powered")
OWN = {"RECOVERY_REQUIRED": 1, "RECOVERY_DRAIN": 3}  # reasons that are the action itself


def conditions() -> list[Reason]:
    """One of each kind that an Xid or the driver's action opens.

    A lost GPU ends by being listed, which scenarios show.
    """
    found = [r for r in RULES.reasons.values() if r.lowers and r.lasts == "condition" and r.subject == "gpu"]
    opened = [r for r in found if (r.xid >= 0 or r.sxids or r.code in OWN) and "enumerates" not in r.ends]
    kinds = {(r.needs, r.ends, r.ends_without_action, r.weight, r.line, r.code in OWN): r for r in reversed(opened)}
    return list(kinds.values())


def scenario(reason: Reason, evidence: str, has_action: bool) -> dict[str, Any]:
    """The condition from slot 10 on, corroborated, then one kind of evidence and nothing else."""

    def shown(action: int) -> dict[str, Any]:
        return {"gpu": {"0": {"recovery_action": action} if has_action else {}}}

    def event(at: list[int], **keys: Any) -> dict[str, Any]:
        return {"kind": "xid", "pci_bus_id": BUS, "at": at, **keys}

    asks = OWN.get(reason.code, 1)
    events = [event([9, 12_000], code=reason.xid, severity=reason.line or None)] if reason.xid >= 0 else []
    if reason.sxids:
        switch = {"kind": "sxid", "code": reason.sxids[0], "severity": "fatal", "at": [9, 12_000]}
        events.append({**switch, "pci_bus_id": "0000:05:00.0"})
    if not has_action and (reason.needs or reason.code in OWN):
        events.append(event([9, 13_000], code=154, action=asks))
    samples = [{"slots": [0, 9], **shown(0)}, {"slots": [10, 14], "events": events, **shown(asks)}]
    deliveries: list[dict[str, Any]] = [{"samples": samples}]
    if evidence == "reset":  # NVML is blind after it: nothing else speaks
        line = {"kind": "gpu_reset", "pci_bus_id": BUS, "at": [14, 12_000]}
        samples.append({"slots": [15, 18], "events": [line], "sources": {"nvml": "timeout"}})
    elif evidence == "boot":
        back = [{"slots": [20, 23], **shown(asks)}]
        deliveries.append({"boot_id": "b2", "boot_at": [16, 0], "last_shutdown": "clean", "samples": back})
    elif evidence == "action_none" and has_action:
        samples.append({"slots": [15, 18], **shown(0)})
    elif evidence == "action_none":
        samples.append({"slots": [15, 18], "events": [event([14, 12_000], code=154, action=0)]})
    else:
        works = {"gpu_utilization": 90, "power": 600_000}
        samples.append({"slots": [15, 40], "gpu": {"0": {**shown(asks)["gpu"]["0"], **works}}})
    return {"id": "x", "inputs": {"gpus": 1, "ports": 0, "boottime": False, "deliveries": deliveries}}


def has_ended(reason: Reason, evidence: str, has_action: bool, rules: Rules) -> bool:
    """Whether the fold says so; that it began is a condition of the test."""
    told = scenario(reason, evidence, has_action)
    told["inputs"]["deliveries"][0]["samples"][1]["events"] = [
        {key: value for key, value in event.items() if value is not None}
        for event in told["inputs"]["deliveries"][0]["samples"][1]["events"]
    ]
    kinds = [one.kind for one in outcome.run(told, rules).node.events if one.code == reason.code]
    assert kinds[:1] == ["opened"]
    return "closed" in kinds


def without(reason: Reason, evidence: str) -> Rules:
    """The rule set in which this evidence does not end it."""
    ends = tuple(end for end in reason.ends if end != evidence) or ("replaced",)
    old = tuple(end for end in reason.ends_without_action if end != evidence)
    changed = replace(reason, ends=ends, ends_without_action=old)
    return Rules("other", RULES.digest, {**RULES.reasons, reason.code: changed})


@pytest.mark.parametrize("has_action", [True, False], ids=["action", "old driver"])
@pytest.mark.parametrize("evidence", EVIDENCE)
@pytest.mark.parametrize("reason", conditions(), ids=lambda reason: reason.code)
def test_evidence_ends_a_condition_where_its_rule_says_so(reason: Reason, evidence: str, has_action: bool) -> None:
    wanted = evidence in reason.ended_by(has_action) or (evidence == "action_none" and evidence in reason.ends)
    if reason.code in OWN and evidence == "boot" and has_action:
        wanted = False  # the driver goes on asking in the new boot
    assert has_ended(reason, evidence, has_action, RULES) == wanted
    if wanted and not (reason.code in OWN and evidence == "action_none"):  # another action is another reason
        assert not has_ended(reason, evidence, has_action, without(reason, evidence))


def test_an_org_may_say_that_work_ends_nothing() -> None:
    """An amendment of what ends a reason on drivers without a recovery action is heard, as any other."""
    rules = amend(RULES, [amendment("XID_95", {"ends_without_action": ["reset", "boot"]}, "a reset is due", 0)])
    assert has_ended(RULES.reasons["XID_95"], "powered", False, RULES)
    assert not has_ended(RULES.reasons["XID_95"], "powered", False, rules)
    assert has_ended(RULES.reasons["XID_95"], "reset", False, rules)


def test_a_rule_that_says_nothing_of_old_drivers_is_ended_there_by_work() -> None:
    """As in a rule set that is older than its list: packs enclose theirs."""
    reason = RULES.reasons["XID_95"]
    older = Rules("older", RULES.digest, {**RULES.reasons, "XID_95": replace(reason, ends_without_action=())})
    assert has_ended(reason, "powered", False, older)
    assert not has_ended(reason, "powered", True, older)


def test_samples_in_a_row_can_be_asked_only_of_what_samples_show() -> None:
    """Else an amendment would promise what nothing does."""
    four = {"persistence_samples": 4}
    for code in ("XID_95", "NODE_LOST", "IB_PORT_FLAP"):
        with pytest.raises(RulesError, match="persistence_samples: counts samples that show it"):
            amend(RULES, [amendment(code, four, "four in a row", 0)])
    for code in ("PCIE_WIDTH", "IB_PORT_DOWN"):
        assert amend(RULES, [amendment(code, four, "four in a row", 0)]).reasons[code].persistence_samples == 4


def test_a_node_that_its_org_calls_its_own_takes_nothing_when_it_dies() -> None:
    """NODE_LOST made the customer's by an amendment: the silence is shown, and no reading of money is lowered by it."""
    told = {
        "id": "x",
        "inputs": {
            **{"gpus": 1, "ports": 0, "boottime": False},
            "deliveries": [
                {"samples": [{"slots": [0, 9]}]},
                {
                    **{"boot_id": "b2", "boot_at": [90, 0], "last_shutdown": "unclean", "last_alive": [30, 5_000]},
                    "samples": [{"slots": [100, 103]}],
                },
            ],
        },
        "context": {"peers_alive": [[[0, 0], [300, 0]]]},
    }
    rules = amend(RULES, [amendment("NODE_LOST", {"party": "customer"}, "they power it off at night", 0)])
    for ruling, nominal in ((RULES, 0), (rules, None)):
        run = outcome.run(told, ruling)
        (verdict,) = run.node.verdicts("g0", run.told.zero + 50, run.told.zero + 51)
        assert verdict is not None
        assert (verdict.nominal, verdict.lower) == (nominal, 0 if nominal == 0 else 100)
