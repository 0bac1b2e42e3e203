"""Input paths: the pipelines of half-way joins from each stream to the root, and their results per probe.

A half-way join is one direction of a join: rows of a node probe the state of its sibling. The probing node identifies
it, so a plan over k streams has 2(k - 1) half-way joins. The path of a stream consists of the half-way joins of its
leaf and of the joins above it, without the root. Paths share the half-way joins above the point where they meet.

Let ρ be the average number of partners that a probe finds. A tuple that enters path I becomes φ_j = ρ_1 · … · ρ_j rows
after j hops. If every one of these rows probes (producer and consumer match), the tuple costs 1 + φ_1 + … + φ_{n-1}
probes and gives φ_n results. The quotient is the productivity of the path ("JAQPOT", section 4.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from operator import mul

from penstock.plan.tree import JoinPair, Leaf, Tree, list_joins, list_leaves

Allowances = Mapping[Tree, float]
"""Probes per second of each half-way join, by its probing node."""


def list_halfway_joins(tree: Tree) -> dict[Tree, Tree]:
    """The half-way joins: each probing node with the node whose state it probes, children first."""
    return {side: other for join in list_joins(tree) for side, other in list_directions(join)}


def list_directions(join: JoinPair) -> tuple[tuple[Tree, Tree], tuple[Tree, Tree]]:
    """The two directions of a join."""
    return (join.left, join.right), (join.right, join.left)


def list_susceptible_joins(tree: Tree) -> tuple[JoinPair, ...]:
    """The joins whose states depend on probes below them: all joins but the root, k - 2 of them (Lemma 2)."""
    return tuple(list_joins(tree))[:-1]


@dataclass(frozen=True)
class InputPath:
    """The path of one stream. `probing_nodes` are in order, from its leaf to a child of the root."""

    alias: str
    probing_nodes: tuple[Tree, ...]
    cardinalities: tuple[float, ...]
    """φ_0 = 1, φ_1, …, φ_n: the rows that one tuple becomes, after each hop."""

    @property
    def cost(self) -> float:
        """Probes for one tuple of the stream."""
        return sum(self.cardinalities[:-1])

    @property
    def results(self) -> float:
        """Results of one tuple of the stream."""
        return self.cardinalities[-1]

    @property
    def productivity(self) -> float:
        """ρ_p: results per probe, over all probes of the path (equation 8)."""
        return self.results / self.cost

    def compute_probes(self, tuples: float, first: int = 0, last: int | None = None) -> dict[Tree, float]:
        """The probes of the half-way joins of the path, or of some, for a number of entering tuples (equation 7)."""
        hops = zip(self.probing_nodes[first:last], self.cardinalities[first:last], strict=False)
        return {node: tuples * rows for node, rows in hops}

    def rows_of(self, node: Tree) -> float:
        """The rows that one tuple becomes at a node of the path; 0 for a node that is not on the path."""
        return self._rows_by_node.get(node, 0.0)

    @cached_property
    def _rows_by_node(self) -> dict[Tree, float]:
        return dict(zip(self.probing_nodes, self.cardinalities, strict=False))


@dataclass(frozen=True)
class PlanLoad:
    """The measured load of a running plan.

    `rates`: tuples per second by alias (λ). `productivity`: partners per probe of each half-way join (ρ_h = σ|S|), by
    its probing node. `states`: rows in the state of each node but the root, for callers that need them.
    """

    tree: Tree
    rates: Mapping[str, float]
    productivity: Mapping[Tree, float]
    states: Mapping[Tree, float] = field(default_factory=dict)

    @cached_property
    def paths(self) -> tuple[InputPath, ...]:
        """The input paths, in the order of the leaves."""
        found = []
        for alias in list_leaves(self.tree):
            probing = tuple(_walk_upward(self.tree, alias))
            factors = (self.productivity[node] for node in probing)
            found.append(InputPath(alias, probing, tuple(accumulate(factors, mul, initial=1.0))))
        return tuple(found)

    @cached_property
    def full_allowances(self) -> dict[Tree, float]:
        """Probes per second of each half-way join without shedding."""
        return self.compute_allowances({path.alias: self.rates[path.alias] for path in self.paths})

    @cached_property
    def saturation(self) -> float:
        """The μ at which nothing is shed."""
        return sum(self.full_allowances.values())

    def compute_allowances(self, entering: Mapping[str, float]) -> dict[Tree, float]:
        """Allowances that match along every path, from the tuples per second that enter each path."""
        table = dict.fromkeys(list_halfway_joins(self.tree), 0.0)
        for path in self.paths:
            for node, probes in path.compute_probes(entering.get(path.alias, 0.0)).items():
                table[node] += probes
        return table

    def compute_output(self, table: Allowances) -> dict[Tree, float]:
        """Rows per second that each join makes under allowances; the rows of the root are the throughput.

        A half-way join probes with as many rows as its allowance, or with all of its rows if they are fewer.
        """
        made: dict[Tree, float] = {Leaf(alias): rate for alias, rate in self.rates.items()}
        for join in list_joins(self.tree):
            made[join] = sum(
                min(table[side], made[side]) * self.productivity[side] for side, _ in list_directions(join)
            )
        return {join: made[join] for join in list_joins(self.tree)}

    def compute_selectivity(self, join: JoinPair) -> float:
        """σ of a join: results per pair of rows that a probe compares."""
        found = sum(self.productivity[side] for side, _ in list_directions(join))
        return found / max(sum(self.states[side] for side, _ in list_directions(join)), 1e-12)


def _walk_upward(tree: Tree, alias: str) -> Iterator[Tree]:
    """The nodes over an alias from its leaf upward, without the root."""
    if isinstance(tree, JoinPair):
        side = tree.left if alias in list_leaves(tree.left) else tree.right
        yield from _walk_upward(side, alias)
        yield side
