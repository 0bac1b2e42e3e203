"""A growing set of numbers, against its enumeration over few numbers."""

from __future__ import annotations

import random

import numpy as np
import pytest

from penstock.state import NumberRanges

INF = float("inf")
NUMBERS = np.arange(-2, 30) / 2


@pytest.mark.parametrize("seed", range(200))
def test_number_ranges_against_enumeration(seed: int) -> None:
    """Which numbers are in the set, and which were not before, but for the ends of earlier ranges."""
    rng, ranges = random.Random(seed), NumberRanges()
    present, ends = np.zeros(NUMBERS.size, np.bool_), np.empty(0)
    for _ in range(rng.randrange(1, 7)):
        lows = np.array([rng.choice([-INF, INF, *range(10)]) for _ in range(rng.randrange(5))], np.float64)
        highs = np.array([rng.choice([INF, -INF, low, low - 1, low + 2, low + 3]) for low in lows], np.float64)
        new_lows, new_highs = ranges.add(lows, highs)
        added, found = find_covered(lows, highs), find_covered(new_lows, new_highs)
        assert (found >= (added & ~present)).all()
        assert np.isin(NUMBERS[found & (present | ~added)], ends).all()
        present |= added
        ends = np.concatenate([ends, lows, highs])
        assert (ranges.has(NUMBERS) == present).all()
    assert not ranges.has(np.array([np.nan])).any()


def find_covered(lows: np.ndarray, highs: np.ndarray) -> np.ndarray:
    return ((NUMBERS[:, None] >= lows) & (NUMBERS[:, None] <= highs)).any(axis=1)


def test_number_ranges_are_united() -> None:
    ranges = NumberRanges()
    for low, high, count in ((1.0, 2.0, 1), (4.0, 5.0, 2), (2.0, 3.0, 2), (3.0, 4.0, 1), (3.5, 4.5, 1), (9.0, 8.0, 1)):
        ranges.add(np.array([low]), np.array([high]))
        assert len(ranges) == count
    new = ranges.add(np.array([0.0, 4.0, 2.0]), np.array([1.5, 7.0, 3.0]))
    assert [part.tolist() for part in new] == [[0.0, 5.0], [1.0, 7.0]]
    ranges.clear()
    assert not ranges.has(NUMBERS).any()
