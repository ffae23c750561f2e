"""How the bytes of a state that an older release wrote are read by this one.

What is not sealed is folded again from the facts after a change of the format. A sealed hour never is: its closing
state is all that is left of what was open then, so it must be read for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Tree = list[Any]

#: The format of the first release: each from it on can be read.
FIRST = 3

#: Format → what makes the tree of the next format out of its own; a tree is the JSON that `NodeState.to_bytes` writes.
#: A release that raises the format adds a line here, and a file of its bytes to fleet/tests/domain/data/states.
UPGRADES: dict[int, Callable[[Tree], Tree]] = {3: lambda tree: [4, *tree[1:], []]}  # 4: other boots' clocks


def upgraded(tree: Tree) -> Tree:
    """The tree in the newest format that can be made of it."""
    while tree[0] in UPGRADES:
        tree = UPGRADES[tree[0]](tree)
    return tree
