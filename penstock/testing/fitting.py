"""Random cases whose answers fit: large ones are drawn again with fewer rows, empty ones are drawn again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from penstock.testing.case import Case
from penstock.testing.combinations import TooManyRows
from penstock.testing.oracle import expected

ATTEMPTS = 15

DrawCase = Callable[[random.Random, int, int], Case]
"""Draws a case, given a generator, a seed for other generators and the number of rows of a stream."""


def find_fitting_case(seed: int, kind: str, draw: DrawCase, *, rows: int, limit: int) -> Case:
    """The first drawn case whose answer has at most `limit` rows, and some.

    `kind` makes the draws of different generators independent.
    """
    for attempt in range(ATTEMPTS):
        case = replace(
            draw(random.Random(f"penstock {kind} {seed}.{attempt}"), seed * ATTEMPTS + attempt, rows), seed=seed
        )
        try:
            answer = expected(case.query, case.accepted, case.tables, case.times, limit=limit)
        except TooManyRows:
            rows = max(3, rows * 2 // 3)
            continue
        if answer.num_rows or attempt > ATTEMPTS - 3:
            vars(case)["expected"] = answer  # fills the cached property
            return case
    raise ValueError(f"seed {seed}: no case within {limit} rows after {ATTEMPTS} attempts")
