"""Timing of contenders that do the same work step by step.

Contenders take turns at every step, in an order that rotates, so that a busy moment of the machine affects all of
them. The work is repeated in several rounds, and the best round of each step counts: a disturbance only makes a step
slower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import process_time
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Name = TypeVar("Name")
Result = TypeVar("Result")

Clock = Callable[[], float]


class TurnTimer(Generic[Name]):
    """Seconds of each contender by round and step. The default clock counts the CPU time of this process."""

    def __init__(self, names: Sequence[Name], rounds: int, steps: int, clock: Clock = process_time) -> None:
        self.seconds = {name: np.zeros((rounds, steps)) for name in names}
        self._names = tuple(names)
        self._clock = clock

    def order(self, step: int) -> tuple[Name, ...]:
        """The contenders in the order of their turns at a step."""
        first = step % len(self._names)
        return self._names[first:] + self._names[:first]

    def run(self, name: Name, round_number: int, step: int, work: Callable[[], Result]) -> Result:
        """Do the work of one contender at one step, and record its time."""
        begin = self._clock()
        result = work()
        self.seconds[name][round_number, step] = self._clock() - begin
        return result

    def best(self, name: Name) -> NDArray[np.float64]:
        """The seconds of each step, in its best round."""
        best: NDArray[np.float64] = self.seconds[name].min(axis=0)
        return best

    def total(self, name: Name, first: int = 0) -> float:
        """The best seconds of all steps, or of those from `first` on."""
        return float(self.best(name)[first:].sum())
