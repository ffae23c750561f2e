"""Packs as they were written once (`data/pack-DATE.zip`): whoever was handed one verifies it with today's verifier.

`./goodput manage demo_claim --hours 1 --out claims/tests/data/pack-DATE.zip` keeps one more, with each release. A kept
pack that is false in today's eyes is a change that took the proof away from everybody who holds one: a fold that judges
otherwise must count its states' format up, so that the answer is "not proven: fold them with the verifier of its own
release".
"""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from claims.tests.packs import first_batch
from claims.verify.checks import FAIL, NOT_PROVEN, PASS, answers, check_pack
from claims.verify.pack_file import read_pack

KEPT = sorted((Path(__file__).parent / "data").glob("pack-*.zip"))


def test_at_least_one_is_kept() -> None:
    assert KEPT


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_kept_pack_is_still_what_it_was(path: Path) -> None:
    files = read_pack(io.BytesIO(path.read_bytes()))
    findings = check_pack(files)
    assert [one for one in findings if one.verdict == FAIL] == []
    found = answers(findings)
    assert found["integrity"] == PASS
    assert found["arithmetic"] in (PASS, NOT_PROVEN)
    unproven = {one.check for one in findings if one.answer == "arithmetic" and one.verdict == NOT_PROVEN}
    assert unproven <= {"fold"}  # of a fold that judged otherwise
    assert next(one for one in findings if one.check == "signed").detail.startswith("100.0 %")


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_kept_pack_that_was_changed_is_false(path: Path) -> None:
    files = read_pack(io.BytesIO(path.read_bytes()))
    del files[first_batch(files)]
    assert answers(check_pack(files))["integrity"] == FAIL
