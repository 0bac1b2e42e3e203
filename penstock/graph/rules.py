"""Next-operator selection: what runs after the current operator. Pure functions of the state table and of a view.

A strategy is an order of moves. The first move that finds an operator is made:

- forward: to a successor that has work;
- encore: the same operator again, while it has work;
- backtrack: repeat the selection on the predecessor.

Batches of k rows are not a strategy of their own: k is the budget with which an operator runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.graph.state_table import StateRow


class SchedulerView(Protocol):
    """What a rule sees of the graph."""

    def row(self, state: str) -> StateRow:
        """The row of a state in the table."""

    def has_work(self, state: str) -> bool:
        """Whether the operator could do something now."""

    def find_enabler(self, state: str) -> str | None:
        """For an operator without work that idles, because rows wait for time: the operator that enables it."""

    def find_runnable(self, state: str) -> str | None:
        """The operator itself if it has work, else its enabler."""

    def list_lagging_readers(self, fork: StateRow) -> Sequence[str]:
        """The readers of the arc of a Fork, those with the most unread rows first."""

    def find_lowest_input(self, row: StateRow) -> str:
        """The predecessor whose register is the lowest."""


Move = Callable[[StateRow, SchedulerView], str | None]


def forward(row: StateRow, view: SchedulerView) -> str | None:
    if row.has_fork:
        row = view.row(row.successors[0])
    for state in view.list_lagging_readers(row) if row.is_fork else row.successors:
        found = view.find_runnable(state)
        if found is not None:
            return found
    return None


def encore(row: StateRow, view: SchedulerView) -> str | None:
    return row.state if not row.is_fork and view.has_work(row.state) else None


def backtrack(row: StateRow, view: SchedulerView) -> str | None:
    """From an idle operator back along its lowest inputs, up to a source that can make an Enabling Time-Stamp."""
    enabler = None if row.is_fork else view.find_enabler(row.state)
    if enabler is not None or not row.predecessors:
        return enabler
    return select_next(view.row(view.find_lowest_input(row)), view)


STRATEGIES: dict[str, tuple[Move, ...]] = {
    "dfs": (forward, encore, backtrack),
    "bfs": (encore, forward, backtrack),
    "rr": (encore, forward),
}


def select_next(row: StateRow, view: SchedulerView) -> str | None:
    """The next state; None: the scheduler chooses."""
    for move in STRATEGIES[row.strategy]:
        found = move(row, view)
        if found is not None:
            return found
    return None
