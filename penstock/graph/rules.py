"""Next-operator selection: what runs after the current operator. Pure functions of the state table and what is seen.

A strategy is an order of moves; the first that leads anywhere is taken:

- forward: to a successor that can do something with what was produced;
- encore: the same operator again, while it has more;
- backtrack: the selection is repeated on the predecessor.

Tuples in batches of k is not a strategy of its own: k is the budget an operator is run with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.graph.state_table import Row


class Sight(Protocol):
    """What a rule sees of the graph."""

    def row(self, state: str) -> Row:
        """The row of a state in the table."""

    def more(self, state: str) -> bool:
        """Whether the operator could do something now."""

    def enabler(self, state: str) -> str | None:
        """For one that has no more: if it idles, tuples waiting but time not far enough, what could help it on."""

    def moving(self, state: str) -> str | None:
        """The operator itself if it has more, else its enabler."""

    def furthest_behind(self, fork: Row) -> Sequence[str]:
        """The readers of the arc a Fork stands for, those with the most tuples before them first."""

    def holding_back(self, row: Row) -> str:
        """The predecessor whose register is the lowest."""


Move = Callable[[Row, Sight], str | None]


def forward(row: Row, see: Sight) -> str | None:
    if row.forks:
        row = see.row(row.successors[0])
    for state in see.furthest_behind(row) if row.fork else row.successors:
        found = see.moving(state)
        if found is not None:
            return found
    return None


def encore(row: Row, see: Sight) -> str | None:
    return row.state if not row.fork and see.more(row.state) else None


def backtrack(row: Row, see: Sight) -> str | None:
    """An idle operator goes back to what holds it back, up to a source that can make an Enabling Time-Stamp."""
    enabler = None if row.fork else see.enabler(row.state)
    if enabler is not None or not row.predecessors:
        return enabler
    return select(see.row(see.holding_back(row)), see)


STRATEGIES: dict[str, tuple[Move, ...]] = {
    "dfs": (forward, encore, backtrack),
    "bfs": (encore, forward, backtrack),
    "rr": (encore, forward),
}


def select(row: Row, see: Sight) -> str | None:
    """The next state; None leaves it to the scheduler."""
    for move in STRATEGIES[row.strategy]:
        found = move(row, see)
        if found is not None:
            return found
    return None
