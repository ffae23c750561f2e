"""The checks of a pack, each with a name. None of them is enough, and no single PASS is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from claims.errors import ClaimsError
from claims.verify.checks_arithmetic import (
    amount_check,
    fold_check,
    pdf_check,
    result_check,
    tables_check,
    windows_check,
)
from claims.verify.checks_beyond import anchors_check, rows_check, signed_check, source_check, states_check, terms_check
from claims.verify.checks_integrity import (
    batches_check,
    checkpoints_check,
    clock_check,
    consistency_check,
    inclusion_check,
    known_key_check,
    manifest_check,
    nodes_check,
    revocations_check,
    sequence_check,
    signature_check,
    skeleton_check,
)
from claims.verify.finding import FAIL, NOT_PROVEN, PASS, Files, Finding, Wrong
from claims.verify.work import Work

ARITHMETIC, INTEGRITY, ANCHORS, SOURCE = "arithmetic", "integrity", "anchors", "source"
ANSWERS = (ARITHMETIC, INTEGRITY, ANCHORS, SOURCE)


def check_pack(
    files: Files,
    known_key: str = "",
    progress: Callable[[int, int], None] = lambda done, of: None,
    only: tuple[str, ...] = (),
    work: Work | None = None,
) -> list[Finding]:
    """Every check in order, or `only` those named; a check that breaks is a FAIL, never an escape.

    `work`: what folds and checks signatures, in this process unless it is told; who made it ends it.
    """
    work = work or Work(files, progress=progress)
    out = []
    for name, answer, run in CHECKS:
        if only and name not in only:
            continue
        try:
            verdict, detail = run(files, known_key, work)
        except Wrong as wrong:
            verdict, detail = FAIL, str(wrong)
        except (ClaimsError, ValueError, KeyError, TypeError, IndexError, AttributeError, ArithmeticError) as error:
            verdict, detail = FAIL, f"{type(error).__name__}: {error}"
        except Exception as error:
            verdict, detail = FAIL, f"can't be checked: {type(error).__name__}: {error}"
        out.append(Finding(name, answer, verdict, detail[:500]))
    return out


def answers(findings: list[Finding]) -> dict[str, str]:
    """The four answers: FAIL where one check of it fails, NOT PROVEN where one is not, else PASS."""
    out = {}
    for answer in ANSWERS:
        verdicts = {one.verdict for one in findings if one.answer == answer}
        out[answer] = FAIL if FAIL in verdicts else NOT_PROVEN if NOT_PROVEN in verdicts else PASS
    return out


CHECKS = (
    ("manifest", INTEGRITY, manifest_check),
    ("signature", INTEGRITY, signature_check),
    ("key", INTEGRITY, known_key_check),
    ("checkpoints", INTEGRITY, checkpoints_check),
    ("consistency", INTEGRITY, consistency_check),
    ("inclusion", INTEGRITY, inclusion_check),
    ("skeleton", INTEGRITY, skeleton_check),
    ("sequence", INTEGRITY, sequence_check),
    ("revocations", INTEGRITY, revocations_check),
    ("result", ARITHMETIC, result_check),
    ("amount", ARITHMETIC, amount_check),
    ("tables", ARITHMETIC, tables_check),
    ("pdf", ARITHMETIC, pdf_check),
    ("windows", ARITHMETIC, windows_check),
    ("fold", ARITHMETIC, fold_check),
    ("batches", INTEGRITY, batches_check),  # after the fold, which unpacks every batch
    ("nodes", INTEGRITY, nodes_check),
    ("clock", INTEGRITY, clock_check),
    ("anchors", ANCHORS, anchors_check),
    ("terms", ANCHORS, terms_check),
    ("agent", SOURCE, source_check),
    ("signed", SOURCE, signed_check),
    ("rows", SOURCE, rows_check),
    ("states", SOURCE, states_check),
)


def lines(findings: list[Finding]) -> Iterator[str]:
    """The findings and the four answers, as text."""
    for one in findings:
        yield f"{one.verdict:10s} {one.answer:10s} {one.check:11s} {one.detail}"
    yield ""
    for answer, verdict in answers(findings).items():
        yield f"{answer:10s} {verdict}"


__all__ = ["ANSWERS", "CHECKS", "FAIL", "NOT_PROVEN", "PASS", "Finding", "answers", "check_pack", "lines"]
