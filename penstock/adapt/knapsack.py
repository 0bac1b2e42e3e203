"""A budget as a knapsack: which paths to fill it with, in whole cycles or in any fraction ("JAQPOT", section 4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from penstock.plan.paths import Load

_GRAINS = 1 << 14


@dataclass(frozen=True)
class Portion:
    """What a path takes at once: its probes and what they bring, and how many of them there are (None: any number)."""

    probes: int
    results: float
    most: int | None = None

    def fits(self, probes: int) -> int:
        return probes // self.probes if self.most is None else min(self.most, probes // self.probes)


def whole_greedy(portions: Sequence[Portion], budget: int) -> list[int]:
    """How many portions of each path, the most productive first; what a path leaves over may be wasted."""
    counts = [0] * len(portions)
    for place in sorted(range(len(portions)), key=lambda at: -portions[at].results / portions[at].probes):
        counts[place] = portions[place].fits(budget)
        budget -= counts[place] * portions[place].probes
    return counts


def whole_optimum(portions: Sequence[Portion], budget: int) -> list[int]:
    """The best number of portions of each path: dynamic programming over the budget, O(k · μ · log μ)."""
    best = np.zeros(budget + 1)
    bundles: list[tuple[int, int, np.ndarray[tuple[int], np.dtype[np.bool_]]]] = []
    for place, portion in enumerate(portions):
        left = portion.fits(budget)
        size = 1
        while left > 0:  # bundles of 1, 2, 4, … and a rest make every number
            size = min(size, left)
            weight = size * portion.probes
            better = np.zeros(budget + 1, np.bool_)
            candidate = best[:-weight] + size * portion.results
            better[weight:] = candidate > best[weight:]
            best[weight:] = np.maximum(best[weight:], candidate)
            bundles.append((place, size, better))
            left -= size
            size *= 2
    counts = [0] * len(portions)
    at = budget
    for place, size, better in reversed(bundles):
        if better[at]:
            counts[place] += size
            at -= size * portions[place].probes
    return counts


def grepp(load: Load, budget: float, taken: dict[str, float]) -> dict[str, float]:
    """The continuous greedy: the most productive path as far as its stream goes, then the next; added to `taken`."""
    entering = dict(taken)
    for path in sorted(load.paths, key=lambda path: -path.productivity):
        room = max(0.0, load.rates[path.alias] - entering[path.alias])
        more = min(room, max(0.0, budget) / path.cost)
        entering[path.alias] += more
        budget -= more * path.cost
    return entering


def in_whole_tuples(load: Load, budget: float, *, optimal: bool) -> dict[str, float]:
    """The discrete model on a load: whole tuples enter a path each second, each at its cost rounded up.

    A large budget is divided into grains, so that the dynamic program stays small.
    """
    grain = max(1.0, budget / _GRAINS)
    portions = []
    for path in load.paths:
        tuples = max(1, int(grain / path.cost))  # the least that fills a grain
        most = int(min(load.rates[path.alias], 1e15) / tuples)
        portions.append(Portion(ceil(tuples * path.cost / grain), tuples * path.results, most))
    solve = whole_optimum if optimal else whole_greedy
    counts = solve(portions, int(budget / grain))
    return {
        path.alias: float(count * max(1, int(grain / path.cost)))
        for path, count in zip(load.paths, counts, strict=True)
    }
