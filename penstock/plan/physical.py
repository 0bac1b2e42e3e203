"""The physical plan of a join: what each leaf stores, and what each node matches on.

`plan_join` combines a join graph with a tree. Leaves have the filters and the needed columns; a residual predicate
belongs to the lowest node that has all of its columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce

from penstock.cql import Source
from penstock.expr import Expr, find_aliases, find_columns
from penstock.plan.join_graph import EqualityClass, JoinGraph
from penstock.plan.tree import Eddy, JoinPair, Leaf, PlanShape, Tree

Key = tuple[int, ...]
"""Class ids in ascending order: the key of a probe. () is a cross product."""


@dataclass(frozen=True)
class LeafPlan:
    """One FROM item: the filters of its tuples, the columns that it stores, and its term in each class."""

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
    """A join of two parts on `key`, the classes that they have in common."""

    left: Branch
    right: Branch
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
        return JoinPair(self.left.tree, self.right.tree)


@dataclass(frozen=True)
class EddyPlan:
    """A join of leaves in no fixed order."""

    leaves: tuple[LeafPlan, ...]
    residuals: tuple[Expr, ...]

    @cached_property
    def aliases(self) -> tuple[str, ...]:
        return tuple(leaf.alias for leaf in self.leaves)

    @cached_property
    def classes(self) -> frozenset[int]:
        return frozenset[int]().union(*(leaf.classes for leaf in self.leaves))

    @property
    def tree(self) -> PlanShape:
        return Eddy(self.aliases)

    def plan_route(self, route: Sequence[str]) -> Branch:
        """The half-way joins of a route, as a left-deep tree in its order."""
        leaves: dict[str, Branch] = {leaf.alias: leaf for leaf in self.leaves}
        return reduce(partial(_build_node, self.residuals), (leaves[alias] for alias in route))


Branch = LeafPlan | NodePlan
SubPlan = Branch | EddyPlan


def _build_node(residuals: tuple[Expr, ...], left: Branch, right: Branch) -> NodePlan:
    """The join of two parts, with the predicates that need columns of both."""
    sides = frozenset(left.aliases), frozenset(right.aliases)
    here = (
        residual
        for residual in residuals
        if find_aliases(residual) <= sides[0] | sides[1] and not any(find_aliases(residual) <= side for side in sides)
    )
    return NodePlan(left, right, tuple(here))


@dataclass(frozen=True)
class JoinPlan:
    """A join of one or more sources. `leaves` are in the order of the FROM clause in every tree."""

    root: SubPlan
    leaves: tuple[LeafPlan, ...]
    classes: tuple[EqualityClass, ...]

    @property
    def tree(self) -> PlanShape:
        return self.root.tree

    @cached_property
    def residuals(self) -> frozenset[Expr]:
        """The predicates that all results satisfy."""
        below = frozenset(expr for node in self.nodes() for expr in node.residuals)
        return below if not isinstance(self.root, EddyPlan) else frozenset(self.root.residuals)

    def nodes(self) -> Iterator[NodePlan]:
        """The joins, children first."""
        yield from _walk_nodes(self.root)


def _walk_nodes(part: SubPlan) -> Iterator[NodePlan]:
    if isinstance(part, NodePlan):
        yield from _walk_nodes(part.left)
        yield from _walk_nodes(part.right)
        yield part


def plan_join(graph: JoinGraph, sources: tuple[Source, ...], outputs: tuple[Expr, ...], tree: PlanShape) -> JoinPlan:
    """The physical plan for a tree. `outputs` are the expressions read above the join."""
    needed = {source.alias: dict.fromkeys(source.window.partition) for source in sources}
    for expr in (*outputs, *graph.residuals):
        for column in find_columns(expr):
            needed[column.alias][column.name] = None
    leaves = {
        source.alias: LeafPlan(
            source,
            graph.filters_of(source.alias),
            tuple(name for name in source.schema.names if name in needed[source.alias]),
            graph.terms_of(source.alias),
        )
        for source in sources
    }

    def build(shape: Tree) -> Branch:
        if isinstance(shape, Leaf):
            return leaves[shape.alias]
        return _build_node(graph.residuals, build(shape.left), build(shape.right))

    if isinstance(tree, Eddy):
        routed = EddyPlan(tuple(leaves[alias] for alias in tree.aliases), graph.residuals)
        return JoinPlan(routed, tuple(leaves.values()), graph.classes)
    return JoinPlan(build(tree), tuple(leaves.values()), graph.classes)
