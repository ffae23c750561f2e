"""docs/ingest.md against the code: every code that can be raised stands in it, and nothing else does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent import wire
from fleet.errors import BatchRejected

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs/ingest.md").read_text()
CODES = re.findall(r"^\| (\d{3}) \| `([a-z_…]+)` \| (yes|no|–) \|", TEXT, re.M)


def source(*names: str) -> str:
    """The text of these modules."""
    return "\n".join((ROOT / name).read_text() for name in names)


def raised() -> set[tuple[int, str]]:
    """(status, code) of every refusal that the source of the route can make."""
    fleet = source(
        *(f"fleet/{name}.py" for name in ("decode", "msgpack_scan", "ingest", "quotas", "turns", "api_ingest"))
    )
    found = {(int(status), code) for status, code in re.findall(r'BatchRejected\(\s*(\d+),\s*"(\w+)"', fleet)}
    of_contract = fleet.partition("def _contract_error")[2].partition("\ndef ")[0]
    found |= {(422, code) for code in re.findall(r'code = "(\w+)"', of_contract)}
    if 'code = f"too_many_' in of_contract:
        found.add((422, "too_many_…"))
    for name in ("WrongCluster", "WrongNode", "SeqConflict", "QuotaExceeded", "Busy", "NotStored"):
        body = source("fleet/errors.py").partition(f"class {name}(")[2]
        code, status = re.findall(r'code = "(\w+)"\n    status = (\d+)', body)[0]
        assert f"raise {name}(" in fleet
        found.add((int(status), code))
    keys = source("orgs/keys.py")
    keys += source("orgs/authentication.py").partition("def key_of")[2].partition("\nclass ")[0]
    for arguments in re.findall(r'KeyRefused\(f?"[^"]*"([^)]*)\)', keys):
        code, status = re.fullmatch(r'(?:, "(\w+)")?(?:, (\d+))?', arguments).groups()
        found.add((int(status or 401), code or "invalid_key"))
    if '"code":"not_local"' in source("goodput_site/exposure.py"):
        found.add((421, "not_local"))
    return found


def test_every_code_stands_in_the_document_and_the_document_invents_none() -> None:
    assert {(int(status), code) for status, code, _ in CODES} == raised()
    assert len(CODES) == len(raised()), "no row twice"


@pytest.mark.parametrize(("status", "code", "permanent"), [row for row in CODES if row[2] != "–"])
def test_whether_a_refusal_is_permanent_is_told_as_documented(status: str, code: str, permanent: str) -> None:
    assert BatchRejected(int(status), code, "").is_permanent == (permanent == "yes")


@pytest.mark.parametrize(("value", "constant"), re.findall(r"^\| [^|]+ \| (\d+)[^|]* \| `(\w+)` \|", TEXT, re.M))
def test_a_documented_limit_is_the_wires(value: str, constant: str) -> None:
    assert getattr(wire, constant) == int(value)


def test_the_agents_table_is_the_agents_code() -> None:
    """What the document promises about each answer is what agent/contract.py decides."""
    from agent import contract

    problem = {"content-type": "application/problem+json"}
    actions = {
        "yes": {413: contract.SPLIT},
        "no": {401: contract.SLOW, 403: contract.SLOW},
    }
    for status, code, permanent in CODES:
        if permanent == "–":
            continue
        expected = actions[permanent].get(int(status), contract.QUARANTINE if permanent == "yes" else contract.RETRY)
        body = f'{{"code": "{code.rstrip("…")}", "permanent": {str(permanent == "yes").lower()}}}'.encode()
        outcome = contract.decide(int(status), problem, body, "0" * 64, 1, 0.0)
        assert outcome.action == expected, (status, code, outcome)


def test_every_id_of_the_attack_list_has_a_test_or_a_reason() -> None:
    tests = "\n".join(path.read_text() for path in (ROOT / "fleet/tests/ingest").glob("test_*.py"))
    tested = {f"I{number:02}" for number in range(1, 41) if f"_i{number:02}_" in tests}
    excused = set(re.findall(r"^\| (I\d\d) \|", TEXT, re.M))
    assert {f"I{number:02}" for number in range(1, 41)} == tested | excused
