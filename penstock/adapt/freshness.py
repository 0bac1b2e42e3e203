"""Refresh rates that FRESHNESS requires of join states, and the cheapest paths that meet them.

The state of a join becomes stale or empty if the joins below it get too little of the budget. Its refresh rate is the
number of new rows per second that it needs. One tuple refreshes every state along its path, so meeting all rates with
the fewest probes is a weighted multiple set cover ("JAQPOT", section 4.2): elements are the susceptible states, sets
are the paths.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt

from penstock.plan import InputPath, JoinPair, Leaf, PlanLoad, Tree

_TOLERANCE = 1e-9


@dataclass(frozen=True)
class RefreshRate:
    """New rows per second that a state needs, and the stream whose FRESHNESS requires them."""

    rate: float
    stream: str


RefreshRates = Mapping[Tree, RefreshRate]


def compute_refresh_rates(load: PlanLoad, freshness: Mapping[str, float]) -> dict[Tree, RefreshRate]:
    """The rates of Lemma 1, where states of fixed sizes hand a tuple on: φ_I >= Σ_j |S_j| / λ_j along the path of I.

    The leaf's share of φ_I is |S_I| / λ_I; the rest is divided among the states above it in proportion to the roots of
    their sizes, which makes the sum of their rates smallest.
    """
    demands: list[tuple[Tree, RefreshRate]] = []
    for path in load.paths:
        above = [node for node in path.probing_nodes if isinstance(node, JoinPair)]
        if path.alias not in freshness or not above:
            continue
        rest = freshness[path.alias] - load.states[Leaf(path.alias)] / load.rates[path.alias]
        roots = sum(sqrt(load.states[node]) for node in above)
        for node in above:
            rate = sqrt(load.states[node]) * roots / rest if rest > 0 else inf
            demands.append((node, RefreshRate(rate, path.alias)))
    return _select_strictest(demands)


def compute_renewal_rates(load: PlanLoad, freshness: Mapping[str, float]) -> dict[Tree, RefreshRate]:
    """The rates if a row expires with its parts, as in this engine: φ_I >= |S_n| / λ_n.

    Times spent in several states do not add up, so each state must be renewed once within the freshness of each of its
    streams.
    """
    return _select_strictest(
        (node, RefreshRate(load.states[node] / freshness[path.alias], path.alias))
        for path in load.paths
        if path.alias in freshness
        for node in path.probing_nodes
        if isinstance(node, JoinPair)
    )


def _select_strictest(demands: Iterable[tuple[Tree, RefreshRate]]) -> dict[Tree, RefreshRate]:
    rates: dict[Tree, RefreshRate] = {}
    for node, refresh in demands:
        if node not in rates or rates[node].rate < refresh.rate:
            rates[node] = refresh
    return {node: refresh for node, refresh in rates.items() if refresh.rate > 0}


@dataclass(frozen=True)
class Shortage:
    """Why a FRESHNESS cannot be met: the limiting stream and state, and the μ that would suffice (None: no μ)."""

    stream: str
    state: Tree
    required_mu: float | None

    def __str__(self) -> str:
        what = f"the freshness of {self.stream} cannot be kept: {self.state} is not refreshed often enough"
        if self.required_mu is None:
            return f"{what}, however large the budget; give {self.stream} a longer FRESHNESS"
        return f"{what}; that takes a budget of {self.required_mu:.6g} probes per second, or a longer FRESHNESS"


def limit_to_supply(load: PlanLoad, refreshes: RefreshRates) -> tuple[dict[Tree, RefreshRate], Shortage | None]:
    """The rates, reduced to what the streams can supply; and a shortage for the first that was reduced."""
    shortage = None
    possible = {}
    for node, refresh in refreshes.items():
        supply = sum(load.rates[path.alias] * path.rows_of(node) for path in load.paths)
        if supply < refresh.rate * (1 - _TOLERANCE):
            shortage = shortage or Shortage(refresh.stream, node, None)
        rate = min(refresh.rate, supply)
        if rate > 0:
            possible[node] = RefreshRate(rate, refresh.stream)
    return possible, shortage


@dataclass(frozen=True)
class Cover:
    """Tuples per second that must enter each path, their total cost, and the costliest state."""

    tuple_rates: dict[str, float]
    hops: dict[str, int]
    """How many hops of a path its tuples must take: after the last state with a rate they refresh nothing."""
    cost: float
    costliest: Tree | None


def find_greedy_cover(load: PlanLoad, refreshes: RefreshRates) -> Cover:
    """GH-WMSCP: repeatedly take the path that refreshes most per probe, until all rates are met.

    The gain of a path is counted in parts of the rates that are not met yet. At the end paths are reduced where others
    made them unnecessary, the most expensive first. The rates must be within supply.
    """
    paths, nodes = load.paths, list(refreshes)
    gains = [[path.rows_of(node) / refreshes[node].rate for node in nodes] for path in paths]
    entering = [0.0] * len(paths)
    lacking = dict.fromkeys(range(len(nodes)), 1.0)
    spent = [0.0] * len(nodes)
    while lacking:
        useful = [(sum(gains[at][node] for node in lacking) / path.cost, at) for at, path in enumerate(paths)
                  if entering[at] < load.rates[path.alias]]  # fmt: skip
        worth, at = max(useful, default=(0.0, -1))
        if not worth:  # within supply only up to rounding
            break
        refreshed = [node for node in lacking if gains[at][node]]
        room = load.rates[paths[at].alias] - entering[at]
        more = min(room, *(lacking[node] / gains[at][node] for node in refreshed))
        entering[at] += more
        for node in refreshed:
            lacking[node] -= more * gains[at][node]
            spent[node] += more * paths[at].cost / len(refreshed)
        lacking = {node: part for node, part in lacking.items() if part > _TOLERANCE}
    _trim_cover(paths, gains, entering)
    cost = sum(path.cost * tuples for path, tuples in zip(paths, entering, strict=True))
    costliest = nodes[spent.index(max(spent))] if nodes else None
    hops = {
        p.alias: max((at for at, node in enumerate(p.probing_nodes) if node in refreshes), default=0) for p in paths
    }
    return Cover(dict(zip(hops, entering, strict=True)), hops, cost, costliest)


def _trim_cover(paths: Sequence[InputPath], gains: list[list[float]], entering: list[float]) -> None:
    def price(at: int) -> float:
        return paths[at].cost / max(sum(gains[at]), 1e-300)

    for at in sorted(range(len(paths)), key=price, reverse=True):
        spare = [
            (sum(tuples * row[node] for tuples, row in zip(entering, gains, strict=True)) - 1) / part
            for node, part in enumerate(gains[at])
            if part
        ]
        entering[at] -= max(0.0, min([entering[at], *spare]))
