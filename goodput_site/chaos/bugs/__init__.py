"""The deliberate bugs of `./goodput chaos --bug NAME`, and what each of them must turn red."""

from __future__ import annotations

from pathlib import Path

FINDS = {
    "ack_before_commit": "I1",
    "store_twice": "I4",
    "wrong_org": "I12",
    "any_answer_will_do": "I2",
    "seq_again": "I2",
    "fold_skips": "I11",
    "unknown_is_up": "I10",
    "no_sweep": "I7",
}


def environment(name: str) -> dict[str, str]:
    """What the product and the agents are started with, so that the bug is in them."""
    return {"PYTHONPATH": str(Path(__file__).parent), "GOODPUT_CHAOS_BUG": name}
