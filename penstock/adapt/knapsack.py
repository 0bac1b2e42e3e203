"""A budget as a knapsack: which paths to fill it with, in whole cycles or in any fraction ("JAQPOT", section 4.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from penstock.plan.input_paths import InputPath, PlanLoad, list_halfway_joins
from penstock.plan.tree import Tree

_MAX_BUDGET_UNITS = 1 << 14


@dataclass(frozen=True)
class KnapsackItem:
    """What a path takes at once: its probes and what they bring, and how many of them there are (None: any number)."""

    probes: int
    results: float
    max_count: int | None = None

    def count_fitting(self, probes: int) -> int:
        return probes // self.probes if self.max_count is None else min(self.max_count, probes // self.probes)


def solve_greedy(portions: Sequence[KnapsackItem], budget: int) -> list[int]:
    """How many portions of each path, the most productive first; what a path leaves over may be wasted."""
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


@dataclass(frozen=True)
class PathSuffix:
    """A path from one of its hops to the root, for so many tuples of its stream."""

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
    """The continuous greedy: the most productive path as far as its stream goes, then the next.

    `refreshing` gives tuples per second that must enter the path of an alias, and how many hops they must take. What
    lies beyond that is a stretch like any other: whether rows that have refreshed a state probe on is a question of
    what else the probes would bring.
    """
    table = dict.fromkeys(list_halfway_joins(load.tree), 0.0)
    stretches = []

    def spend(probes: Mapping[Tree, float]) -> None:
        for node, more in probes.items():
            table[node] += more

    for path in load.paths:
        tuples, hops = refreshing.get(path.alias, (0.0, 0))
        spend(path.compute_probes(tuples, last=hops))
        stretches += [PathSuffix(path, hops, tuples), PathSuffix(path, 0, max(0.0, load.rates[path.alias] - tuples))]
    left = mu - sum(table.values())
    for stretch in sorted(stretches, key=lambda each: -each.productivity):
        tuples = min(stretch.tuples, max(0.0, left) / max(stretch.cost, 1e-300))
        spend(stretch.path.compute_probes(tuples, first=stretch.hop))
        left -= tuples * stretch.cost
    return table


def allocate_whole_tuples(load: PlanLoad, budget: float, *, optimal: bool) -> dict[str, float]:
    """The discrete model on a load: whole tuples enter a path each second, each at its cost rounded up.

    A large budget is divided into grains, so that the dynamic program stays small.
    """
    grain = max(1.0, budget / _MAX_BUDGET_UNITS)
    portions = []
    for path in load.paths:
        tuples = max(1, int(grain / path.cost))  # the least that fills a grain
        most = int(min(load.rates[path.alias], 1e15) / tuples)
        portions.append(KnapsackItem(ceil(tuples * path.cost / grain), tuples * path.results, most))
    solve = solve_optimal if optimal else solve_greedy
    counts = solve(portions, int(budget / grain))
    return {
        path.alias: float(count * max(1, int(grain / path.cost)))
        for path, count in zip(load.paths, counts, strict=True)
    }
