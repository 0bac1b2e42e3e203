"""The first push after a change of plan, through the engine: against an ordinary push, and against Moving State.

Joins without an equality are the paper's nested-loops joins (Figure 10b). Here they are answered from sorted indexes
where the predicate is a range, and a probe completes only the stored tuples that it selects.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from time import process_time
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.engine import Engine

How = Literal["jisc", "moving-state"]
_STREAMS = "ABC"
_FILL = 1_000
_ORDINARY = 40


@dataclass(frozen=True)
class JoinCase:
    """A join of three streams, the plan it starts with and the plan it changes to.

    Values are uniform in [0, window).
    """

    name: str
    where: str
    before: str = "((A B) C)"
    after: str = "(A (B C))"


THETA_CASES = (
    JoinCase("band", "ABS(A.x - B.x) <= 1 AND ABS(B.y - C.y) <= 1"),
    JoinCase("two inequalities", "A.x > B.x AND A.x < B.x + 2 AND B.y > C.y AND B.y < C.y + 2"),
    JoinCase(
        "a key and a band", "CAST(A.x AS BIGINT) * 7 % 10007 = CAST(B.x AS BIGINT) * 3 % 10009 AND ABS(B.y - C.y) <= 1"
    ),
    JoinCase(
        "any predicate",
        "(CAST(A.x AS BIGINT) * 7 + CAST(B.x AS BIGINT) * 3) % 10007 = 0 AND ABS(B.y - C.y) <= 1",
    ),
)
ALIAS_ORDER = JoinCase("other order of streams", "A.k = B.k AND B.k = C.k", after="(C (B A))")


@dataclass(frozen=True)
class FirstPush:
    """CPU seconds of an ordinary push, of the call to migrate, and of the first push after it."""

    ordinary: float
    migrate: float
    first: float

    @property
    def ratio(self) -> float:
        """The halt, as a multiple of an ordinary push."""
        return (self.migrate + self.first) / self.ordinary


def measure_first_push(case: JoinCase, window: int, how: How, rounds: int) -> FirstPush:
    """The best round of each part."""
    found = [_measure_round(case, window, how) for _ in range(rounds)]
    return FirstPush(
        min(one.ordinary for one in found), min(one.migrate for one in found), min(one.first for one in found)
    )


def _measure_round(case: JoinCase, window: int, how: How) -> FirstPush:
    rng, engine = np.random.default_rng(window), Engine(state="lazy")
    for name in _STREAMS:
        engine.stream(name, {"ts": "bigint", "x": "double", "y": "double", "k": "bigint"}, time="ts")
    items = ", ".join(f"{name} [RANGE {window}]" for name in _STREAMS)
    engine.query("q", f"SELECT A.x, B.x AS bx, C.x AS cx FROM {items} WHERE {case.where}", plan=case.before)

    def push(begin: int, size: int) -> float:
        tables = {name: _draw_tuples(rng, begin, size, window) for name in _STREAMS}
        start = process_time()
        engine.push(tables)
        return process_time() - start

    for begin in range(0, window, _FILL):
        push(begin, min(_FILL, window - begin))
    ordinary = median(push(window + 10 * number, 10) for number in range(_ORDINARY))
    start = process_time()
    engine.migrate("q", case.after, how=how)
    migrate = process_time() - start
    return FirstPush(ordinary, migrate, push(window + 10 * _ORDINARY, 10))


def _draw_tuples(rng: np.random.Generator, begin: int, size: int, window: int) -> pa.Table:
    x, y = rng.random((2, size)) * window
    return pa.table({"ts": np.arange(begin, begin + size), "x": x, "y": y, "k": rng.integers(0, window, size)})
