"""Which joins can be one shared join, and what each query requires of it. Pure functions over frozen values.

Two joins can be shared if they read the same streams and tables and have equal equality classes. Their windows, filters
on streams, other predicates and outputs can differ. Filters on static tables must agree. Row-counted windows can differ
in size if all queries have the same filters and select by birth (`have_fitting_counts`). If classes do not connect all
items, the predicates must also agree, except for constants that bound the same terms (`predicate_bounds`); otherwise
the shared join would be a cross product.

A join is nested in another join over more streams if a node of the other's tree joins exactly its streams, with the
same classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, permutations, product
from math import factorial, prod

from penstock.cql import UNBOUNDED, Range, Source, Stream, Subquery
from penstock.expr import Column, Expr, calls_user_function, find_columns, rewrite
from penstock.plan.join_graph import EqualityClass, JoinGraph
from penstock.plan.predicate_bounds import find_families
from penstock.plan.query import GroupPart, JoinPart, Outputs
from penstock.plan.tree import Eddy, PlanShape, list_joins, list_leaves

UNLIMITED = 2**63 - 1

_MOST_RENAMINGS = 720
"""As many ways to pair the items of two joins are tried at most: six items of one stream."""

RowCounts = tuple[tuple[str, int], ...]
"""By alias, the number of tuples of a row-counted window."""
Filters = tuple[tuple[str, Expr], ...]
"""By alias, the conditions over one item."""


@dataclass(frozen=True)
class JoinRequirement:
    """What a query requires of a shared join, in the aliases of that join.

    `lifetimes`: how long the query uses a tuple of each item. `residuals`: its predicates over several items.
    """

    lifetimes: tuple[tuple[str, int], ...]
    filters: Filters
    residuals: frozenset[Expr]
    outputs: Outputs
    freshness: tuple[tuple[str, int], ...] = ()
    """The maximum age of a tuple under a budget: the declared FRESHNESS, else the window."""
    scope: frozenset[str] | None = None
    """The items that the query reads, if it does not read all items of the join."""
    clock_checks: tuple[tuple[str, int], ...] = ()
    """The streams whose tuples are compared with the clock when a result leaves, with the maximum age."""
    accepts_losses: bool = False
    """Whether a budget may leave results out."""
    row_counts: RowCounts = ()
    """How many tuples the row-counted windows have."""

    @cached_property
    def freshness_checks(self) -> tuple[tuple[str, int], ...]:
        """The streams whose FRESHNESS is shorter than the window, with the maximum age."""
        lifetimes = dict(self.lifetimes)
        return tuple((alias, bound) for alias, bound in self.freshness if bound < lifetimes.get(alias, UNLIMITED))

    @cached_property
    def common_lifetime(self) -> int | None:
        """The lifetime that all streams have in common, None if they differ."""
        distinct = {lifetime for _, lifetime in self.lifetimes}
        return next(iter(distinct)) if len(distinct) == 1 else None

    @cached_property
    def output_columns(self) -> frozenset[tuple[str, str]]:
        """The columns that the outputs read."""
        return frozenset((column.alias, column.name) for _, expr in self.outputs for column in find_columns(expr))

    @cached_property
    def input_columns(self) -> frozenset[tuple[str, str]]:
        """The columns that are read above the leaves."""
        return self.output_columns | {
            (column.alias, column.name) for expr in self.residuals for column in find_columns(expr)
        }


def derive_requirement(part: JoinPart, renaming: Mapping[str, str], *, nested: bool = False) -> JoinRequirement:
    """The requirement of a query, in the aliases of the join that it shares. `nested`: it reads only some of the items.

    `lifetimes` has the streams with windows in time only: tables are equal in all queries that share a join.
    """

    def renamed(expr: Expr) -> Expr:
        return rename_aliases(expr, renaming)

    timed = [s for s in part.sources if not s.is_table and not s.window.ends_late]
    return JoinRequirement(
        tuple(sorted((renaming[s.alias], _limit(s.window.lifetime)) for s in timed)),
        tuple(sorted(((renaming[alias], renamed(expr)) for alias, expr in part.graph.filters), key=repr)),
        frozenset(renamed(expr) for expr in part.graph.residuals),
        tuple((name, renamed(expr)) for name, expr in part.outputs),
        tuple((renaming[s.alias], bound) for s in part.sources if (bound := _find_freshness(s)) < UNLIMITED),
        frozenset(renaming.values()) if nested else None,
        tuple((renaming[s.alias], s.freshness) for s in part.sources if s.clock_freshness and s.freshness is not None),
        accepts_losses(part),
        tuple(sorted((renaming[s.alias], s.window.row_count) for s in part.sources if s.window.row_count is not None)),
    )


def have_fitting_counts(counts: Collection[RowCounts], filters: Collection[Filters], *, at_birth: bool) -> bool:
    """Whether queries with these different row-counted windows and filters can share a join.

    The join counts by the largest windows. A query with smaller ones tests how many tuples were newer when a
    combination was born (`at_birth`: all queries select their combinations then, and read nothing later). With filters
    of its own, a query with large windows would keep tuples that only one with small windows needs.
    """
    return len(counts) < 2 or (len(filters) < 2 and at_birth)


def accepts_losses(part: JoinPart) -> bool:
    """Whether a budget may leave results of the join out: FRESHNESS says so."""
    return any(source.freshness is not None for source in part.sources)


def _find_freshness(source: Source) -> int:
    return source.freshness or _limit(source.window.lifetime)


def _limit(lifetime: int | None) -> int:
    """A lifetime as a number, so that lifetimes can be compared."""
    return UNLIMITED if lifetime is None else lifetime


def can_be_shared(part: JoinPart) -> bool:
    """Whether other queries can share the join.

    A subquery belongs to one query. A user-defined function in a condition of the join may fail, which stops its query
    and no other.
    """
    graph = part.graph
    terms = [
        *graph.residuals,
        *(term for class_ in graph.classes for _, term in class_.terms),
        *(term for _, term in graph.filters),
    ]
    return not any(isinstance(source.relation, Subquery) for source in part.sources) and not any(
        map(calls_user_function, terms)
    )


def groups_one_window(part: GroupPart) -> bool:
    """Whether a group reads the rows of one stream in a window in time, so that other windows can share them."""
    below, plan = part.input, part.plan
    if not isinstance(below, JoinPart) or len(below.sources) != 1 or not can_be_shared(below):
        return False
    (source,) = below.sources
    window, shown = source.window, [expr for _, expr in (*plan.inputs, *plan.items)]
    exprs = shown if plan.having is None else [*shown, plan.having]
    timed = window.lifetime is not None and not window.ends_late and source.freshness is None and not plan.slides
    return isinstance(source.relation, Stream) and timed and not any(map(calls_user_function, exprs))


def find_shared_renaming(part: JoinPart, host: JoinPart) -> dict[str, str] | None:
    """The host's alias for each alias of the part, if both can be one join."""
    return next((names for names in _list_renamings(part.sources, host.sources) if _can_share(part, host, names)), None)


def find_nested_renaming(part: JoinPart, host: JoinPart, shape: PlanShape) -> dict[str, str] | None:
    """The host's alias for each alias of the part, if the part is the join at a node of the host's tree.

    Tuples must expire by time and classes must connect all items: then the rows of the node do not depend on the
    others.
    """
    timed = all(not s.is_table and not s.window.ends_late for s in host.sources)
    if isinstance(shape, Eddy) or not timed or not is_connected(part.graph) or not is_connected(host.graph):
        return None
    for node in list_joins(shape):
        inside = set(list_leaves(node))
        below = tuple(source for source in host.sources if source.alias in inside)
        if len(part.sources) == len(below) < len(host.sources):
            for names in _list_renamings(part.sources, below):
                if {rename_terms(class_, names) for class_ in part.graph.classes} == set(
                    _restrict_classes(host.graph, inside)
                ):
                    return names
    return None


def _restrict_classes(graph: JoinGraph, items: Collection[str]) -> Iterator[frozenset[tuple[str, Expr]]]:
    """The classes of a graph, restricted to some of its items."""
    for class_ in graph.classes:
        bound = frozenset((alias, term) for alias, term in class_.terms if alias in items)
        if len(bound) > 1:
            yield bound


def _compute_signature(source: Source) -> tuple[object, ...]:
    """What two FROM items must have in common."""
    counted = (source.window.counted, source.window.partition)
    return source.relation.name, source.is_table, counted, source.hidden


def _list_renamings(part: Sequence[Source], host: Sequence[Source]) -> Iterator[dict[str, str]]:
    """All ways to pair items with equal signatures: one way, unless a stream is joined with itself.

    If that are very many, items are paired in their order.
    """
    if Counter(map(_compute_signature, part)) != Counter(map(_compute_signature, host)):
        return
    signatures = list(dict.fromkeys(map(_compute_signature, part)))
    ours = [[source.alias for source in part if _compute_signature(source) == each] for each in signatures]
    theirs = [[source.alias for source in host if _compute_signature(source) == each] for each in signatures]
    if prod(factorial(len(names)) for names in theirs) > _MOST_RENAMINGS:
        yield dict(zip(chain(*ours), chain(*theirs), strict=True))
        return
    for choice in product(*(permutations(names) for names in theirs)):
        pairs = (zip(mines, others, strict=True) for mines, others in zip(ours, choice, strict=True))
        yield {mine: other for each in pairs for mine, other in each}


def have_equal_classes(part: JoinPart, host: JoinPart, names: Mapping[str, str]) -> bool:
    """Both joins make the same terms equal."""
    ours = {rename_terms(class_, names) for class_ in part.graph.classes}
    return ours == {frozenset(class_.terms) for class_ in host.graph.classes}


def have_equal_table_filters(part: JoinPart, host: JoinPart, names: Mapping[str, str]) -> bool:
    """Both joins read the same rows of their tables."""
    tables = {source.alias for source in host.sources if source.is_table}
    ours = {(names[alias], rename_aliases(expr, names)) for alias, expr in part.graph.filters}
    return {each for each in ours if each[0] in tables} == {each for each in host.graph.filters if each[0] in tables}


def have_bounded_combinations(part: JoinPart, host: JoinPart, names: Mapping[str, str]) -> bool:
    """Classes connect all items, or the predicates bound the same terms: otherwise it would be a cross product."""
    ours = (rename_aliases(expr, names) for expr in part.graph.residuals)
    return is_connected(host.graph) or find_families(ours) == find_families(host.graph.residuals)


SHARING_CONDITIONS: tuple[Callable[[JoinPart, JoinPart, Mapping[str, str]], bool], ...] = (
    have_equal_classes,
    have_equal_table_filters,
    have_bounded_combinations,
)
"""The conditions for two joins to be one, in addition to FROM items with equal signatures."""


def _can_share(part: JoinPart, host: JoinPart, names: Mapping[str, str]) -> bool:
    return all(condition(part, host, names) for condition in SHARING_CONDITIONS)


def rename_terms(class_: EqualityClass, names: Mapping[str, str]) -> frozenset[tuple[str, Expr]]:
    """The terms of a class, in other aliases."""
    return frozenset((names[alias], rename_aliases(term, names)) for alias, term in class_.terms)


def rename_aliases(expr: Expr, names: Mapping[str, str]) -> Expr:
    """The expression, in other aliases."""
    return rewrite(expr, lambda node: replace(node, alias=names[node.alias]) if isinstance(node, Column) else node)


def is_connected(graph: JoinGraph) -> bool:
    """Whether equality classes connect all items."""
    reached, grown = {graph.aliases[0]}, True
    while grown:
        more = {alias for class_ in graph.classes if reached & set(class_.aliases) for alias in class_.aliases}
        grown = not more <= reached
        reached |= more
    return reached == set(graph.aliases)


def widen_window(source: Source, lifetime: int | None, row_count: int | None = None) -> Source:
    """The FROM item with a window of this lifetime or so many tuples; None keeps the window."""
    if row_count is not None:
        return replace(source, window=source.window.with_row_count(row_count))
    if lifetime is None:
        return source
    if not source.is_table and _limit(source.window.lifetime) == lifetime:
        return source
    return replace(source, window=UNBOUNDED if lifetime == UNLIMITED else Range(lifetime))
