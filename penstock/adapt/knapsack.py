"""A budget as a knapsack that is filled with paths, in whole cycles or in fractions ("JAQPOT", section 4.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from penstock.plan import InputPath, PlanLoad, Tree, list_halfway_joins

_MAX_BUDGET_UNITS = 1 << 14


@dataclass(frozen=True)
class KnapsackItem:
    """One portion of a path: its probes and results, and how many portions there are (None: any number)."""

    probes: int
    results: float
    max_count: int | None = None

    def count_fitting(self, probes: int) -> int:
        return probes // self.probes if self.max_count is None else min(self.max_count, probes // self.probes)


def solve_greedy(portions: Sequence[KnapsackItem], budget: int) -> list[int]:
    """How many portions of each path, the most productive path first. A part of the budget may remain unused."""
    counts = [0] * len(portions)
    for place in sorted(range(len(portions)), key=lambda at: -portions[at].results / portions[at].probes):
        counts[place] = portions[place].count_fitting(budget)
        budget -= counts[place] * portions[place].probes
    return counts


def solve_optimal(portions: Sequence[KnapsackItem], budget: int) -> list[int]:
    """The best number of portions of each path: dynamic programming over the budget, O(k · μ · log μ)."""
    best = np.zeros(budget + 1)
    bundles: list[tuple[int, int, np.ndarray[tuple[int], np.dtype[np.bool_]]]] = []
    for place, portion in enumerate(portions):
        left = portion.count_fitting(budget)
        size = 1
        while left > 0:  # bundles of 1, 2, 4, … and the remainder make every number
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


@dataclass(frozen=True)
class PathSuffix:
    """A path from one of its hops to the root, for a number of tuples of its stream."""

    path: InputPath
    hop: int
    tuples: float

    @property
    def cost(self) -> float:
        """Probes for one tuple of the stream."""
        return sum(self.path.cardinalities[self.hop : -1])

    @property
    def productivity(self) -> float:
        return self.path.results / self.cost if self.cost else 0.0


def allocate_grepp(load: PlanLoad, mu: float, refreshing: Mapping[str, tuple[float, int]]) -> dict[Tree, float]:
    """The continuous greedy: the most productive path up to the rate of its stream, then the next.

    `refreshing` has the tuples per second that must enter the path of an alias, and how many hops they must take. The
    hops after that are a suffix like any other: rows that have refreshed a state probe further if no other suffix is
    more productive.
    """
    table = dict.fromkeys(list_halfway_joins(load.tree), 0.0)
    suffixes = []

    def spend(probes: Mapping[Tree, float]) -> None:
        for node, more in probes.items():
            table[node] += more

    for path in load.paths:
        tuples, hops = refreshing.get(path.alias, (0.0, 0))
        spend(path.compute_probes(tuples, last=hops))
        suffixes += [PathSuffix(path, hops, tuples), PathSuffix(path, 0, max(0.0, load.rates[path.alias] - tuples))]
    left = mu - sum(table.values())
    for suffix in sorted(suffixes, key=lambda each: -each.productivity):
        tuples = min(suffix.tuples, max(0.0, left) / max(suffix.cost, 1e-300))
        spend(suffix.path.compute_probes(tuples, first=suffix.hop))
        left -= tuples * suffix.cost
    return table


def allocate_whole_tuples(load: PlanLoad, budget: float, *, optimal: bool) -> dict[str, float]:
    """The discrete model: whole tuples enter a path each second, each at its cost rounded up.

    A large budget is counted in larger units, so that the dynamic program stays small.
    """
    unit = max(1.0, budget / _MAX_BUDGET_UNITS)
    portions = []
    for path in load.paths:
        tuples = max(1, int(unit / path.cost))  # the fewest that fill a unit
        most = int(min(load.rates[path.alias], 1e15) / tuples)
        portions.append(KnapsackItem(ceil(tuples * path.cost / unit), tuples * path.results, most))
    solve = solve_optimal if optimal else solve_greedy
    counts = solve(portions, int(budget / unit))
    return {
        path.alias: float(count * max(1, int(unit / path.cost))) for path, count in zip(load.paths, counts, strict=True)
    }
