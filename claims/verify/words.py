"""What every pack says of itself, in plain words."""

from __future__ import annotations

_UNANCHORED = """# Unanchored statement: how to check this pack

This pack is the claimant's statement. No outside party saw the log's checkpoints while the month ran, so it is titled
*unanchored statement*. Read what it proves, and what it does not, before you rely on it.
"""

_ANCHORED = """# Statement with outside anchors: how to check this pack

This pack is the claimant's statement. Others saw the log's checkpoints while the month ran: `anchors.json` says who and
when, and the verifier says for which share of the claimed time. Read what it proves, and what it does not.
"""

_REST = """
## Check it
    goodput-verify PACK.zip
or, from a copy of the source, `python -m claims.verify PACK.zip`. It needs Python 3.11 and nothing else, opens no
connection, and gives four answers. To bind the pack to a key that you know from elsewhere, add `--key KEY`.

| answer | what is checked |
|---|---|
| arithmetic | result.json is computed again from verdicts and terms, the claimed time folded again from the batches |
| integrity | hashes of the manifest, the log's signatures, growing checkpoints, every batch is a leaf of the last one |
| anchors | the share of the claimed seconds between two outside anchors, and whose; since when the terms stand |
| source | nothing in here can prove it; which share of the claimed batches the agents' enrolled keys signed |

## What it proves
* The amount follows from these verdicts, this contract, these rows and these rules. Anybody gets the same.
* The verdicts of the claimed time follow from these batches, from the state in `states/` on.
* Under rules that the claimant amended: what the month comes to without the amendments (`unamended` in result.json).
* The batches, and the list of every batch of the month, are what the log with this key committed to.
* No revocation of an agent's key is missing that a checkpoint in here commits to.

## What it does not prove
* That the batches tell the truth. The agent ran under the claimant's root. A batch's signature says which installation
  made it; whoever rules that machine can make it sign anything.
* That a key was revoked as soon as it was known to be lost: the log says when the claimant revoked it.
* That the log was not made afterwards, outside of two anchors. Whoever holds the log's key can sign another one; what
  an anchor covers can't be changed by anybody from its instant on. A time stamp or an instance token is proved by its
  signature: compare certificate or key with the one that you know. A mail or a ticket is proved to who received it.
* That the states in `states/`, from which the folding starts, are right: they are the claimant's.
* That the verdicts outside the claimed time are right. They only lower the claim: unknown time counts as up.
* That nothing was left out before it reached the server, or out of skeleton.json. A gap in `seq` there shows where to
  ask.
* That the dated rows in `overlays.json` (entitlement, tickets, maintenance, exclusions, records), the fees and
  automatic credits in `inputs.json`, and what `windows.json` says of declared hardware, probes and peers are right: no
  log holds them. Compare them with your own tickets and invoices.
* That the contract is the one you signed: compare its digest or its text. `terms` says since when the log holds it.
* That the printed pages of claim.pdf, `hourly.csv` and the dates in `claim.json` are right. The PDF carries the pack's
  own result.json; the numbers that count stand there.
* Whose the pack is: the name in manifest.json is a label, the log's name in the checkpoints says which log it is.

## Files
`result.json` every number of the claim · `incidents.csv` what counted · `slots.csv` every verdict by run length ·
`hourly.csv` · `contract.json`, `overlays.json`, `rules/` the terms · `runs/` verdicts as computed · `batches/` the
exact uploads of the claimed time (gzip of MessagePack) · `skeleton.json` every batch of the month · `proofs.json`,
`checkpoints/`, `keys.json` the log · `agents.json` enrolled keys of the agents, signatures of the enclosed batches ·
`anchors.json`, `anchors/` who saw the log · `adoptions.json` contract and rules in the log · `coverage.json` what was
known · `clock.csv` what each enclosed batch said of its clock · `manifest.json`, `manifest.sig`
"""


def verify_md(is_anchored: bool) -> str:
    """VERIFY.md of a pack."""
    return (_ANCHORED if is_anchored else _UNANCHORED) + _REST
