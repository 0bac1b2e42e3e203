"""What lookups cost that compute the rows of a join which keeps none.

Law: without `most`, a meter changes nothing. With `most` it thins the rows found on the way, so that a lookup only
estimates the cost of a complete one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from penstock.state import I64

LOOKUP_CALL = 680.0
LOOKUP_ROW = 0.1
PROBE_ROW = 0.05
PROBE_CLASS = 0.16
"""The cost of the parts of a lookup in units of about 100 ns, fitted to the points of `penstock lab jit`."""


class LookupMeter:
    """Counts the probes of windows and states, and the rows found there."""

    def __init__(self, most: int | None = None) -> None:
        """`most`: how many of the rows found in a step are looked up further; each then stands for several."""
        self.calls = 0
        self.probes = 0
        """How many rows were asked for."""
        self.work = 0.0
        """What probes and rows cost, without the cost of a call."""
        self._most = most
        self._scale = 1.0

    @property
    def cost(self) -> float:
        return LOOKUP_CALL * self.calls + self.work

    def record_probes(self, probes: int, classes: int) -> None:
        self.calls += 1
        self.work += self._scale * probes * (PROBE_ROW + PROBE_CLASS * max(classes - 1, 0))

    def record_rows(self, rows: int) -> None:
        self.work += self._scale * rows * LOOKUP_ROW

    @contextmanager
    def choose(self, rows: int) -> Iterator[I64 | None]:
        """The places of some of the rows found in a step, None for all; while the context lasts, they stand for all."""
        if self._most is None or rows <= self._most:
            yield None
            return
        before = self._scale
        self._scale *= rows / self._most
        yield np.linspace(0, rows - 1, self._most).astype(np.int64)
        self._scale = before
