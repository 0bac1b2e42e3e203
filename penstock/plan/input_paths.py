"""Input paths: the pipelines of half-way joins from each stream to the root, and what they bring per probe.

A half-way join is one direction of a join: rows of a node probe the state of its sibling. It is known by the node that
probes, so a plan over k streams has 2(k - 1) of them. The path of a stream is the half-way joins of its leaf and of the
joins above it, the root excepted; paths share the half-way joins above the point where they meet.

With ρ the partners that a probe finds on average, a tuple that enters the path I becomes φ_j = ρ_1 · … · ρ_j rows after
j hops. If every row it becomes is also probed on (producer and consumer match), it costs 1 + φ_1 + … + φ_{n-1} probes
and brings φ_n results; the quotient is the path's productivity ("JAQPOT", section 4.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from operator import mul

from penstock.plan.tree import Leaf, Pair, Tree, leaves

Table = Mapping[Tree, float]
"""Probes per second of each half-way join, by the node that probes."""


def joins(tree: Tree) -> Iterator[Pair]:
    """The joins of a plan, children first; the last one is the root."""
    if isinstance(tree, Pair):
        yield from joins(tree.left)
        yield from joins(tree.right)
        yield tree


def halfway_joins(tree: Tree) -> dict[Tree, Tree]:
    """The half-way joins: each node that probes, with the node whose state it probes; children first."""
    return {side: other for join in joins(tree) for side, other in sides(join)}


def sides(join: Pair) -> tuple[tuple[Tree, Tree], tuple[Tree, Tree]]:
    """The two directions of a join."""
    return (join.left, join.right), (join.right, join.left)


def susceptible(tree: Tree) -> tuple[Pair, ...]:
    """The states that live on the work of joins below them: all joins but the root, k - 2 of them (Lemma 2)."""
    return tuple(joins(tree))[:-1]


@dataclass(frozen=True)
class Path:
    """The path of one stream. `probing` are the nodes that probe, from its leaf to a child of the root."""

    alias: str
    probing: tuple[Tree, ...]
    cardinalities: tuple[float, ...]
    """φ_0 = 1, φ_1, …, φ_n: the rows a tuple has become after each hop."""

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
        """ρ_p: results per probe spent anywhere along the path (equation 8)."""
        return self.results / self.cost

    def probes(self, tuples: float, first: int = 0, last: int | None = None) -> dict[Tree, float]:
        """What the half-way joins of the path, or some of them, need if so many tuples enter it (equation 7)."""
        hops = zip(self.probing[first:last], self.cardinalities[first:last], strict=False)
        return {node: tuples * rows for node, rows in hops}

    def rows_of(self, node: Tree) -> float:
        """Rows of a node of the path that one tuple becomes; 0 for a node elsewhere."""
        return self._rows.get(node, 0.0)

    @cached_property
    def _rows(self) -> dict[Tree, float]:
        return dict(zip(self.probing, self.cardinalities, strict=False))


@dataclass(frozen=True)
class Load:
    """What is known of a running plan.

    `rates`: tuples per second by alias (λ). `productivity`: partners per probe of each half-way join (ρ_h = σ|S|), by
    the node that probes. `states`: rows in the state of each node but the root, where that matters.
    """

    tree: Tree
    rates: Mapping[str, float]
    productivity: Mapping[Tree, float]
    states: Mapping[Tree, float] = field(default_factory=dict)

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        """The input paths, in the order of the leaves."""
        found = []
        for alias in leaves(self.tree):
            probing = tuple(_upward(self.tree, alias))
            factors = (self.productivity[node] for node in probing)
            found.append(Path(alias, probing, tuple(accumulate(factors, mul, initial=1.0))))
        return tuple(found)

    @cached_property
    def full(self) -> dict[Tree, float]:
        """Probes per second of each half-way join if nothing is shed."""
        return self.table({path.alias: self.rates[path.alias] for path in self.paths})

    @cached_property
    def saturation(self) -> float:
        """μ that suffices for everything."""
        return sum(self.full.values())

    def table(self, entering: Mapping[str, float]) -> dict[Tree, float]:
        """Allowances that match along every path, for the tuples per second that enter each."""
        table = dict.fromkeys(halfway_joins(self.tree), 0.0)
        for path in self.paths:
            for node, probes in path.probes(entering.get(path.alias, 0.0)).items():
                table[node] += probes
        return table

    def output(self, table: Table) -> dict[Tree, float]:
        """Rows per second that each join makes under allowances; those of the root are the throughput.

        A half-way join probes with what it is allowed, or with all there is if that is less.
        """
        made: dict[Tree, float] = {Leaf(alias): rate for alias, rate in self.rates.items()}
        for join in joins(self.tree):
            made[join] = sum(min(table[side], made[side]) * self.productivity[side] for side, _ in sides(join))
        return {join: made[join] for join in joins(self.tree)}

    def selectivity(self, join: Pair) -> float:
        """σ of a join: results per pair that one of its directions looks at."""
        found = sum(self.productivity[side] for side, _ in sides(join))
        return found / max(sum(self.states[side] for side, _ in sides(join)), 1e-12)


def _upward(tree: Tree, alias: str) -> Iterator[Tree]:
    """The nodes over an alias from its leaf up, the root excepted."""
    if isinstance(tree, Pair):
        side = tree.left if alias in leaves(tree.left) else tree.right
        yield from _upward(side, alias)
        yield side
