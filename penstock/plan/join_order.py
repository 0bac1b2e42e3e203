"""Join ordering: the cheapest tree by the cost model, of any shape or of a given one.

Dynamic programming over subsets for up to ten streams, greedy pairing for more. Of several cheapest trees, the
exhaustive search takes one whose left sides are large.
"""

from __future__ import annotations

from functools import reduce
from itertools import combinations, pairwise
from typing import Literal

from penstock.plan.cost import Statistics, estimate_output_rate
from penstock.plan.join_graph import JoinGraph
from penstock.plan.tree import JoinPair, Leaf, Tree, build_left_deep, build_right_deep, list_leaves

TreeShape = Literal["any", "left-deep", "right-deep", "bushy"]

_MAX_EXHAUSTIVE_STREAMS = 10


def choose_tree(graph: JoinGraph, stats: Statistics, shape: TreeShape = "any") -> Tree:
    """The cheapest tree. `bushy` pairs neighbours of the cheapest linear order into a balanced tree."""
    if len(graph.aliases) == 1:
        return Leaf(graph.aliases[0])
    if shape == "any":
        exhaustive = len(graph.aliases) <= _MAX_EXHAUSTIVE_STREAMS
        return _search_exhaustive(graph, stats) if exhaustive else _search_greedy(graph, stats)
    order = _choose_linear_order(graph, stats)
    if shape == "left-deep":
        return build_left_deep(order)
    if shape == "right-deep":
        return build_right_deep(order[::-1])
    return _build_balanced([Leaf(alias) for alias in order])


def _search_exhaustive(graph: JoinGraph, stats: Statistics) -> Tree:
    names = graph.aliases
    rates: dict[int, float] = {}
    best: dict[int, tuple[float, Tree]] = {}
    for size in range(1, len(names) + 1):
        for chosen in combinations(range(len(names)), size):
            subset = sum(1 << place for place in chosen)
            rates[subset] = estimate_output_rate(frozenset(names[place] for place in chosen), graph, stats)
            if size == 1:
                best[subset] = (0.0, Leaf(names[chosen[0]]))
                continue
            cost, cheapest = min(
                ((_compute_split_cost(part, subset ^ part, rates, best), part) for part in _list_left_parts(subset)),
                key=lambda choice: choice[0],
            )
            best[subset] = (cost + rates[subset], JoinPair(best[cheapest][1], best[subset ^ cheapest][1]))
    return best[(1 << len(names)) - 1][1]


def _compute_split_cost(left: int, right: int, rates: dict[int, float], best: dict[int, tuple[float, Tree]]) -> float:
    return best[left][0] + best[right][0] + rates[left] + rates[right]


def _list_left_parts(subset: int) -> list[int]:
    """The proper subsets of a bit set with its first member, larger ones first, so that ties give left-deep trees."""
    first = subset & -subset
    others = subset ^ first
    parts = []
    part = (others - 1) & others
    while True:
        parts.append(part | first)
        if not part:
            return sorted(parts, key=lambda bits: -bits.bit_count())
        part = (part - 1) & others


def _search_greedy(graph: JoinGraph, stats: Statistics) -> Tree:
    """Join the pair with the smallest output until one tree is left."""
    forest: list[Tree] = [Leaf(alias) for alias in graph.aliases]
    while len(forest) > 1:
        left, right = min(
            combinations(forest, 2),
            key=lambda pair: estimate_output_rate(frozenset(list_leaves(pair[0]) + list_leaves(pair[1])), graph, stats),
        )
        forest[forest.index(left)] = JoinPair(left, right)
        forest.remove(right)
    return forest[0]


def _choose_linear_order(graph: JoinGraph, stats: Statistics) -> list[str]:
    """Start with the cheapest pair, then add the stream with the smallest intermediate result, one by one."""
    first = min(combinations(graph.aliases, 2), key=lambda pair: estimate_output_rate(frozenset(pair), graph, stats))
    order = list(first)
    while len(order) < len(graph.aliases):
        remaining = (alias for alias in graph.aliases if alias not in order)
        order.append(min(remaining, key=lambda alias: estimate_output_rate(frozenset((*order, alias)), graph, stats)))
    return order


def _build_balanced(trees: list[Tree]) -> Tree:
    while len(trees) > 1:
        pairs = [JoinPair(left, right) for left, right in list(pairwise(trees))[::2]]
        trees = [*pairs, *trees[2 * len(pairs) :]]
    return reduce(JoinPair, trees)
