"""What a pack alone can't answer: who saw the log and when, since when the terms stand, where the facts come from."""

from __future__ import annotations

from typing import Any

from claims.errors import ProofError
from claims.verify.adoptions import adopted
from claims.verify.agents import BAD, VALID, WORDS, check_signed, sentence
from claims.verify.anchors import Share, percent, read_anchors, shares
from claims.verify.documents import read
from claims.verify.finding import NOT_PROVEN, PASS, Files, Wrong
from claims.verify.pack_file import ANCHORED, UNANCHORED
from claims.verify.work import Work


def anchors_check(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    """The share of the claimed seconds between outside anchors, and whose."""
    whole, proved, parties = shares(files)
    title = read(files, "manifest.json")["title"]
    if not whole.between and title != UNANCHORED:
        raise Wrong("No claimed second lies between outside anchors, and the title does not say so.")
    if whole.between and title != ANCHORED:
        raise Wrong("The title is not the one of a pack with outside anchors.")
    if not whole.between:
        return NOT_PROVEN, "0 % of the claimed seconds lie between outside anchors: an unanchored statement"
    hours = -(-whole.widest_ms // 3_600_000)
    words = "; ".join(f"{percent(one)} {who}" for who, one in parties)
    said = f"{percent(whole)} of the claimed seconds lie between outside anchors at most {hours} h apart: {words}"
    if proved.between == proved.claimed:
        return PASS, f"{said}. Compare the certificates or keys with those that you know"
    return NOT_PROVEN, f"{said}. Signatures prove {percent(proved)}; mails and tickets prove it to who received them"


def terms_check(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    """Contract, rules and amendments were in the log, and since which anchor."""
    try:
        found = adopted(files, read_anchors(files))
    except ProofError as error:
        raise Wrong(str(error)) from error
    beside = read(files, "result.json").get("unamended")
    more = "" if beside is None else f". {_beside(files, beside)}"
    late = [one.name for one in found if one.is_late]
    if not late:
        return PASS, f"{len(found)} documents (contract, rules, amendments) were anchored before they counted{more}"
    return NOT_PROVEN, f"not anchored before they counted: {', '.join(late)}{more}"


def _beside(files: Files, beside: Any) -> str:
    """What the month comes to without amendments, in words."""
    own, other = read(files, "result.json")["assessment"]["result"], beside["assessment"].get("result")
    if other is None or other["claim"] is None:
        return f"The rules are amended; without amendments the month gives no claim ({beside['assessment']['status']})"
    return f"The rules are amended; without amendments {other['claim']} {other['currency']} instead of {own['claim']}"


def source_check(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    simulated = "; the nodes are SIMULATED" if read(files, "result.json")["is_simulated"] else ""
    return NOT_PROVEN, f"the agents ran under the claimant's root{simulated}"


def rows_check(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    """What the claimant entered and no log holds."""
    rows = read(files, "overlays.json")
    kinds: dict[str, int] = {}
    for one in rows:
        kinds[one["kind"]] = kinds.get(one["kind"], 0) + 1
    said = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())) or "none"
    return NOT_PROVEN, (
        f"dated rows ({said}), fees and declared hardware are the claimant's word: compare them with your own records"
    )


def signed_check(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    """Which share of the claimed batches the keys that their agents enrolled signed."""
    try:
        found = check_signed(files, work.judged)
    except ProofError as error:
        raise Wrong(str(error)) from error
    if found is None:
        return NOT_PROVEN, "the pack names no keys of agents"
    if not found.batches:
        return NOT_PROVEN, "the pack encloses no batch"
    said = sentence(found, percent(Share(found.batches, found.states[VALID], 0)))
    if found.states[BAD]:
        raise Wrong(f"{found.states[BAD]} batches are {WORDS[BAD]}. {said}")
    return NOT_PROVEN, said


def states_check(files: Files, known_key: str, work: Work) -> tuple[str, str]:
    number = sum(name.startswith("states/") for name in files)
    return NOT_PROVEN, f"the {number} states from which the folding starts are the claimant's own"
