"""What the provider's expert would try: whole forgeries by who holds the log's key, computed again to the end.

Each fails on a named check, or a named check says in words that it is not proved.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from claims import pdf
from claims.domain.contract_load import contract_from_json, digest
from claims.domain.merkle import Checkpoint, inclusion_proof, leaf_hash, read_checkpoint, root_of
from claims.errors import PdfUnavailable
from claims.inputs import canonical_json
from claims.tests.packs import Files, Made, agents, edited, first_batch, note_name, verdict
from claims.verify.checks import FAIL, NOT_PROVEN, PASS, Finding, check_pack
from claims.verify.embedded import embedded_files
from claims.verify.notes import document_bytes
from claims.verify.recompute import result_of
from claims.verify.rule_sets import base_of

pytestmark = pytest.mark.django_db


def again(files: Files) -> Files:
    """With the result that the changed inputs come to, and the rows beside them."""
    out = {**files, "overlays.json": canonical_json(json.loads(files["inputs.json"])["overlays"])}
    out["result.json"] = canonical_json(result_of(out))
    return out


def under(files: Files, **terms: Any) -> Files:
    """Under other terms, with the digest that fits them and the result that they give."""
    raw = canonical_json({**json.loads(files["contract.json"]), **terms})
    changed = edited(
        {**files, "contract.json": raw},
        "inputs.json",
        lambda one: one["contract"].update(digest=digest(contract_from_json(raw))),
    )
    return again(changed)


def lines(change: Callable[[list[dict[str, Any]]], None]) -> Callable[[Files], Files]:
    return lambda files: edited(files, "skeleton.json", change)


def not_enclosed(files: Files, document: list[dict[str, Any]]) -> dict[str, Any]:
    """A line of the month's list whose batch is not in the pack."""
    return next(one for one in document if f"batches/{one['sha256']}.msgpack.gz" not in files)


def later_receipt(files: Files) -> Files:
    return edited(files, "skeleton.json", lambda one: not_enclosed(files, one).update(received_us="1"))


def invented(files: Files) -> Files:
    """A batch that never was, in the place of one that the log holds."""
    return edited(files, "skeleton.json", lambda one: not_enclosed(files, one).update(sha256="ab" * 32))


def more_downtime(files: Files) -> Files:
    head, first, rest = files["slots.csv"].split(b"\r\n", 2)
    cells = first.split(b",")
    cells[4:9] = [b"observed", b"0", b"0", b"0", b"XID_79"]
    return {**files, "slots.csv": b"\r\n".join([head, b",".join(cells), rest])}


def other_reason(files: Files) -> Files:
    """A lighter word for what happened, in the list that a person reads."""
    return {**files, "incidents.csv": re.sub(rb",[A-Z0-9_]+=", b",XID_48=", files["incidents.csv"], count=1)}


def swapped_columns(name: str, one: bytes, other: bytes) -> Callable[[Files], Files]:
    """The same numbers under each other's heading."""
    return lambda files: {**files, name: files[name].replace(b"%b,%b" % (one, other), b"%b,%b" % (other, one), 1)}


def shorter_proof(files: Files) -> Files:
    return edited(files, "proofs.json", lambda one: one.update(skeleton=one["skeleton"][:-1]))


def log_beside_the_log(files: Files) -> Files:
    """A document that a larger log adopted, whose note nobody signed and no checkpoint leads to."""
    name, digest = "contract of ours", "00" * 32
    hashes = [leaf_hash(document_bytes(digest, 1, name))] * 10_000
    path = [one.hex() for one in inclusion_proof(hashes, 0)]
    adopted = [{"digest": digest, "adopted_us": "1", "name": name, "index": "0", "path": path}]
    note = Checkpoint("beside", len(hashes), root_of(hashes)).text().encode()
    return {**files, "adoptions.json": canonical_json(adopted), "beside.note": note}


def other_zone(files: Files) -> Files:
    return {**files, "contract.json": files["contract.json"].replace(b"UTC", b"Europe/Berlin")}


FAILING: list[tuple[str, str, Callable[[Files], Files]]] = [
    ("a batch listed twice", "sequence", lines(lambda one: one.append({**one[0], "leaf": "999999999"}))),
    ("another receipt of a batch that is not enclosed", "skeleton", later_receipt),
    ("a batch that never was in the list", "skeleton", invented),
    ("a list without a line", "skeleton", lines(lambda one: one.pop(1))),
    ("a shorter proof of the list", "skeleton", shorter_proof),
    (
        "another machine's hours",
        "nodes",
        lambda f: edited(f, "windows.json", lambda one: one[0].update(node="sim-0002")),
    ),
    ("a log beside the log", "terms", log_beside_the_log),
    ("more downtime in the sheet", "tables", more_downtime),
    ("another reason in the list", "tables", other_reason),
    ("the verdicts' headings swapped", "tables", swapped_columns("slots.csv", b"lower", b"upper")),
    ("the clocks' headings swapped", "clock", swapped_columns("clock.csv", b"first_sample_utc", b"last_sample_utc")),
    ("another ticket", "tables", lambda f: {**f, "tickets.json": b'{"body":"We told you in March."}'}),
    ("a revocation that nobody made", "revocations", agents(lambda one: one["revocations"].append(["00" * 32, "1"]))),
    ("another month", "result", lambda f: edited(f, "inputs.json", lambda one: one.update(month="2026-09"))),
    ("another zone without its digest", "result", other_zone),
    ("a PDF that carries nothing", "pdf", lambda f: {**f, "claim.pdf": b"%PDF-1.7 480,000.00 EUR"}),
]  # fmt: skip


@pytest.mark.parametrize(("what", "check", "change"), FAILING, ids=[one[0] for one in FAILING])
def test_a_forgery_fails_on_its_named_check(made: Made, what: str, check: str, change: Any) -> None:
    assert verdict(made.signed(change(made.files)), check) == FAIL
    assert verdict(made.files, check) != FAIL


def told(made: Made, files: Files, check: str) -> str:
    """The words of a check that can't say it for sure."""
    found: list[Finding] = check_pack(made.signed(files), only=("result", check))
    assert [one.verdict for one in found] == [PASS, NOT_PROVEN]
    return found[1].detail


def test_terms_that_were_swapped_and_computed_again_are_not_in_the_log(made: Made) -> None:
    terms = told(made, under(made.files, zone="Europe/Berlin"), "terms")
    assert "contract" in terms
    assert "(not in the log)" in terms
    assert "(not in the log)" in told(made, under(made.files, tiers=[["99.99", "20"], ["99", "50"]]), "terms")


def test_a_rule_set_revised_under_its_own_name_is_not_in_the_log(made: Made) -> None:
    name = next(one for one in sorted(made.files) if one.startswith("rules/"))
    files = {**made.files, name: made.files[name] + b"\n# revised\n"}

    def fit(document: Any) -> None:
        for span in document["rules"]["spans"]:
            span["digest"] = base_of(files)(span["base"]).digest

    files = again(edited(files, "inputs.json", fit))
    terms = told(made, files, "terms")
    assert "rules" in terms
    assert "(not in the log)" in terms


def test_rows_that_were_moved_or_taken_away_are_said_to_be_the_claimants_word(made: Made) -> None:
    assert "1 entitlement" in told(made, made.files, "rows")
    slot = json.loads(made.files["inputs.json"])["overlays"][0]["first_slot"]
    moved = edited(made.files, "inputs.json", lambda one: one["overlays"][0].update(first_slot=str(int(slot) - 240)))
    assert "compare them with your own records" in told(made, again(moved), "rows")
    ticket = {**json.loads(made.files["overlays.json"])[0], "kind": "ticket"}
    more = edited(made.files, "inputs.json", lambda one: one["overlays"].append(ticket))
    assert "1 entitlement, 1 ticket" in told(made, again(more), "rows")


def test_a_node_under_another_ones_name_is_told(made: Made) -> None:
    files = edited(made.files, "windows.json", lambda one: one[0].update(node="sim-0002"))
    files = edited(files, "inputs.json", lambda one: one["node_months"][0].update(node="sim-0002"))
    (found,) = check_pack(made.signed(files), only=("nodes",))
    assert found.verdict == NOT_PROVEN
    assert "sim-0001 for sim-0002" in found.detail


def test_the_order_in_which_batches_are_named_changes_nothing(made: Made) -> None:
    files = edited(made.files, "windows.json", lambda one: one[0]["batches"].reverse())
    assert check_pack(files, only=("fold", "inclusion")) == check_pack(made.files, only=("fold", "inclusion"))


def test_a_pack_under_another_orgs_name_names_its_own_log(made: Made) -> None:
    files = edited(made.files, "manifest.json", lambda one: one.update(org="somebody-else"))
    (found,) = check_pack(made.signed(files), only=("checkpoints",))
    assert read_checkpoint(made.files[note_name(made.files)].decode()).origin in found.detail


def test_what_an_older_pack_does_not_hold_is_not_proved(made: Made) -> None:
    name = note_name(made.files)
    bare = "\n".join(made.files[name].decode().split("\n")[:3]) + "\n"
    files = {**made.files, name: made.key.sign(bare).encode()}
    files = agents(lambda one: one.pop("revocations"))(files)
    files = edited(files, "proofs.json", lambda one: one.pop("skeleton"))
    found = check_pack(made.signed(files), only=("checkpoints", "revocations", "skeleton"))
    assert {one.check: one.verdict for one in found} == {
        "checkpoints": PASS,
        "revocations": NOT_PROVEN,
        "skeleton": NOT_PROVEN,
    }


@pytest.mark.full
def test_the_pdf_carries_the_packs_own_result(made: Made) -> None:
    def document(result: bytes) -> bytes:
        return pdf.run_child(
            {
                "html": "<title>A claim</title><p>480.00 EUR</p>",
                "css": "",
                "attachments": [
                    ["result.json", "Every number", result.decode()],
                    ["incidents.csv", "What counted", made.files["incidents.csv"].decode()],
                ],
                "at": "2026-11-09T00:00:00+00:00",
                "identifier": "00",
            }
        )

    try:
        own = document(made.files["result.json"])
    except PdfUnavailable as error:
        pytest.skip(str(error))
    assert sorted(embedded_files(own)) == sorted([made.files["result.json"], made.files["incidents.csv"]])
    assert verdict({**made.files, "claim.pdf": own}, "pdf") == PASS
    other = document(made.files["result.json"].replace(b'"claim":"', b'"claim":"9'))
    assert verdict({**made.files, "claim.pdf": other}, "pdf") == FAIL
    with pytest.raises(ValueError, match="unpacked|cut short|no end"):
        embedded_files(own[: own.index(b"/EmbeddedFile") + 400])


def test_a_first_batch_is_enclosed(made: Made) -> None:
    """The forgeries above are of a pack that has batches, a list that is longer, and a proof for it."""
    assert first_batch(made.files)
    enclosed = sum(name.startswith("batches/") for name in made.files)
    assert len(json.loads(made.files["skeleton.json"])) > enclosed > 100
    assert json.loads(made.files["proofs.json"])["skeleton"]
