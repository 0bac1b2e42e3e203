"""The physical plan of a join: what every leaf stores and every node matches.

`plan_join` combines a join graph with a tree. Filters and needed columns sit at the leaves; a residual predicate sits
at the lowest node that has all of its columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from penstock.cql.bound import Source
from penstock.expr.nodes import Expr, aliases, columns
from penstock.plan.joins import JoinClass, JoinGraph
from penstock.plan.tree import Leaf, Pair, Tree

Key = tuple[int, ...]
"""Class ids in ascending order: what a state is probed with. () is a cross product."""


@dataclass(frozen=True)
class LeafPlan:
    """One FROM item: which tuples it keeps (filters), which columns, and its term in each class."""

    source: Source
    filters: tuple[Expr, ...]
    columns: tuple[str, ...]
    terms: tuple[tuple[int, Expr], ...]

    @property
    def alias(self) -> str:
        return self.source.alias

    @property
    def aliases(self) -> tuple[str, ...]:
        return (self.source.alias,)

    @cached_property
    def classes(self) -> frozenset[int]:
        return frozenset(id for id, _ in self.terms)

    @property
    def tree(self) -> Tree:
        return Leaf(self.alias)


@dataclass(frozen=True)
class NodePlan:
    """A join of two parts on `key`, the classes they share."""

    left: Part
    right: Part
    residuals: tuple[Expr, ...]

    @cached_property
    def aliases(self) -> tuple[str, ...]:
        return self.left.aliases + self.right.aliases

    @cached_property
    def classes(self) -> frozenset[int]:
        return self.left.classes | self.right.classes

    @cached_property
    def key(self) -> Key:
        return tuple(sorted(self.left.classes & self.right.classes))

    @cached_property
    def tree(self) -> Tree:
        return Pair(self.left.tree, self.right.tree)


Part = LeafPlan | NodePlan


@dataclass(frozen=True)
class JoinPlan:
    """A join of one or more sources. `leaves` stand in the order of the FROM clause, whatever the tree."""

    root: Part
    leaves: tuple[LeafPlan, ...]
    classes: tuple[JoinClass, ...]

    @property
    def tree(self) -> Tree:
        return self.root.tree

    def nodes(self) -> Iterator[NodePlan]:
        """The joins, children first."""
        yield from _nodes(self.root)


def _nodes(part: Part) -> Iterator[NodePlan]:
    if isinstance(part, NodePlan):
        yield from _nodes(part.left)
        yield from _nodes(part.right)
        yield part


def plan_join(graph: JoinGraph, sources: tuple[Source, ...], outputs: tuple[Expr, ...], tree: Tree) -> JoinPlan:
    """The physical plan for a tree. `outputs` are the expressions read above the join."""
    partitions = {source.alias: source.window.partition if source.window else () for source in sources}
    needed = {alias: dict.fromkeys(names) for alias, names in partitions.items()}
    for expr in (*outputs, *graph.residuals):
        for column in columns(expr):
            needed[column.alias][column.name] = None
    leaves = {
        source.alias: LeafPlan(
            source,
            graph.filters_of(source.alias),
            tuple(name for name in source.relation.schema.names if name in needed[source.alias]),
            graph.terms_of(source.alias),
        )
        for source in sources
    }

    def build(shape: Tree) -> Part:
        if isinstance(shape, Leaf):
            return leaves[shape.alias]
        left, right = build(shape.left), build(shape.right)
        sides = frozenset(left.aliases), frozenset(right.aliases)
        here = tuple(
            residual
            for residual in graph.residuals
            if aliases(residual) <= sides[0] | sides[1] and not any(aliases(residual) <= side for side in sides)
        )
        return NodePlan(left, right, here)

    return JoinPlan(build(tree), tuple(leaves.values()), graph.classes)
