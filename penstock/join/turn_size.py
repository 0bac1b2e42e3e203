"""How many tuples a join reads in a turn while its results are delivered during the push.

Law: results do not depend on the size of turns. A turn aims at a bounded number of results: the size follows the
results per tuple of the last turn, doubled because they may rise, and grows at most fourfold from turn to turn. The
tuples of one instant are always read in one turn.
"""

from __future__ import annotations

_FIRST_TURN = 64
_BLOCKS = 4
"""A turn aims at this many blocks of results."""


class TurnSize:
    """The size of the next turn."""

    def __init__(self, block: int) -> None:
        self._goal = _BLOCKS * block
        self._size = _FIRST_TURN

    def limit(self, budget: int) -> int:
        """The number of tuples to read, at most `budget`."""
        return min(budget, self._size)

    def record(self, tuples: int, results: int) -> None:
        """A turn read tuples and found results."""
        if tuples:
            fitting = self._goal * tuples // (2 * results) if results else self._goal
            self._size = max(1, min(fitting, 4 * self._size))
