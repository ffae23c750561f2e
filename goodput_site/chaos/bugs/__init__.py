"""The deliberate bugs of `./goodput chaos --bug NAME`, and what each of them must turn red."""

from __future__ import annotations

from pathlib import Path

#: bug → (the invariant that it breaks, the name of the finding: two invariants that data can't tell apart share one,
#: and in minutes few rows are final, which I11 looks at).
FINDS = {
    "ack_before_commit": ("I1", "I1"),
    "any_answer_will_do": ("I2", "I2"),
    "change_bytes": ("I3", "I3"),
    "store_twice": ("I4", "I4"),
    "no_fsync": ("I5", "I1"),
    "seq_skips": ("I6", "I6"),
    "no_sweep": ("I7", "I7"),
    "seconds_lost": ("I8", "I8"),
    "no_leaf": ("I9", "I9"),
    "slot_forgotten": ("I10", "I10"),
    "fold_skips": ("I11", "I10"),
    "wrong_org": ("I12", "I12"),
    "wrong_root": ("I13", "I13"),
    "gives_up": ("I14", "I14"),
    "outbox_grows": ("I15", "I15"),
    "dedup_off": ("I16", "I4"),
    "unknown_is_up": ("I17", "I17"),
    "seq_again": ("I2", "I2"),
}
#: What has to strike for a bug to show, where the few faults of every such run are not enough: fault → how often.
NEEDS = {"no_fsync": {"kill -9 of PostgreSQL": 4}}


def environment(name: str) -> dict[str, str]:
    """What the product and the agents are started with, so that the bug is in them."""
    return {"PYTHONPATH": str(Path(__file__).parent), "GOODPUT_CHAOS_BUG": name}
