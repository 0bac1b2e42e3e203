"""Which joins can be one, and what each query needs of the one they share. Pure functions over frozen values.

Two joins fit if their FROM items are of the same streams and tables and their equality classes agree, whatever their
windows, their filters on streams, their further predicates and what they show. Where a class is missing, so that a
predicate alone decides what is joined, the predicates must agree as well: a join wide enough for both would be a cross
product. So must ROWS windows, whose tuples die by a count of their own, and filters on static tables.

A join of some of another's streams is nested in it if a node of the other's tree joins exactly these, by the same
classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations, product

from penstock.cql.bound import UNBOUNDED, Source, Window
from penstock.expr.nodes import Column, Expr, columns, rewrite
from penstock.plan.join_graph import JoinClass, JoinGraph
from penstock.plan.query import JoinPart, Outputs
from penstock.plan.tree import Eddy, Outline, leaves, subtrees

ENDLESS = 2**63 - 1


def lifetime(window: Window | None) -> int:
    """How long a tuple lives by time alone; ENDLESS where only a count, or nothing, ends it."""
    if window is None or window.kind in ("rows", "unbounded"):
        return ENDLESS
    return 1 if window.kind == "now" else window.size or 0


@dataclass(frozen=True)
class Need:
    """What a query needs of a join, in the join's aliases.

    `lives`: how long it can use a tuple of each item. `residuals`: its predicates over several items.
    """

    lives: tuple[tuple[str, int], ...]
    filters: tuple[tuple[str, Expr], ...]
    residuals: frozenset[Expr]
    outputs: Outputs
    freshness: tuple[tuple[str, int], ...] = ()
    """How old a tuple of a stream may be under a budget: as declared, else its window."""
    scope: frozenset[str] | None = None
    """The items it reads, if those are not all of the join's."""

    @cached_property
    def ageing(self) -> tuple[tuple[str, int], ...]:
        """The streams whose windows alone do not keep their tuples fresh."""
        lives = dict(self.lives)
        return tuple((alias, bound) for alias, bound in self.freshness if bound < lives.get(alias, ENDLESS))

    @cached_property
    def life(self) -> int | None:
        """The window all its streams have in common, None if they differ."""
        lives = {life for _, life in self.lives}
        return next(iter(lives)) if len(lives) == 1 else None

    @cached_property
    def shown(self) -> frozenset[tuple[str, str]]:
        """The columns of what it shows."""
        return frozenset((column.alias, column.name) for _, expr in self.outputs for column in columns(expr))

    @cached_property
    def columns(self) -> frozenset[tuple[str, str]]:
        """The columns it reads above the leaves."""
        return self.shown | {(column.alias, column.name) for expr in self.residuals for column in columns(expr)}


def need(part: JoinPart, renaming: Mapping[str, str], *, nested: bool = False) -> Need:
    """What a query's join needs, said in the aliases of the join it shares; `nested`: it has not all of its items.

    Tables and ROWS windows are alike in all that share: `lives` are those of the other streams, or of all if there are
    no others.
    """

    def renamed(expr: Expr) -> Expr:
        return _renamed(expr, renaming)

    timed = [s for s in part.sources if not s.is_table and (s.window is None or s.window.kind != "rows")]
    return Need(
        tuple(sorted((renaming[s.alias], lifetime(s.window)) for s in timed)),
        tuple(sorted(((renaming[alias], renamed(expr)) for alias, expr in part.graph.filters), key=repr)),
        frozenset(renamed(expr) for expr in part.graph.residuals),
        tuple((name, renamed(expr)) for name, expr in part.outputs),
        tuple((renaming[s.alias], bound) for s in part.sources if (bound := _freshness(s)) < ENDLESS),
        frozenset(renaming.values()) if nested else None,
    )


def _freshness(source: Source) -> int:
    return source.freshness or lifetime(source.window)


def fitting(part: JoinPart, host: JoinPart) -> dict[str, str] | None:
    """The host's alias for each of the part's, if the two can be one join."""
    return next((names for names in _renamings(part.sources, host.sources) if _fits(part, host, names)), None)


def nested(part: JoinPart, host: JoinPart, shape: Outline) -> dict[str, str] | None:
    """The host's alias for each of the part's, if the part is the join at a node of the host's tree.

    Only where time alone ends tuples and classes connect all items: then the node's rows do not depend on the others.
    """
    timed = all(not s.is_table and (s.window is None or s.window.kind != "rows") for s in host.sources)
    if isinstance(shape, Eddy) or not timed or not connected(part.graph) or not connected(host.graph):
        return None
    for node in subtrees(shape):
        inside = set(leaves(node))
        below = tuple(source for source in host.sources if source.alias in inside)
        if len(part.sources) == len(below) < len(host.sources):
            for names in _renamings(part.sources, below):
                if {terms(class_, names) for class_ in part.graph.classes} == set(_classes_among(host.graph, inside)):
                    return names
    return None


def _classes_among(graph: JoinGraph, items: Collection[str]) -> Iterator[frozenset[tuple[str, Expr]]]:
    """What the classes of a graph make equal among some of its items."""
    for class_ in graph.classes:
        bound = frozenset((alias, term) for alias, term in class_.terms if alias in items)
        if len(bound) > 1:
            yield bound


def _kind(source: Source) -> tuple[str, bool, Window | None]:
    """What must be equal of two FROM items."""
    counted = source.window is not None and source.window.kind == "rows"
    return source.relation.name, source.is_table, source.window if counted else None


def _renamings(part: Sequence[Source], host: Sequence[Source]) -> Iterator[dict[str, str]]:
    """All ways to pair items of one kind; there is one unless a stream is joined with itself."""
    if Counter(map(_kind, part)) != Counter(map(_kind, host)):
        return
    kinds = list(dict.fromkeys(map(_kind, part)))
    ours = [[source.alias for source in part if _kind(source) == kind] for kind in kinds]
    theirs = [[source.alias for source in host if _kind(source) == kind] for kind in kinds]
    for choice in product(*(permutations(names) for names in theirs)):
        pairs = (zip(mines, others, strict=True) for mines, others in zip(ours, choice, strict=True))
        yield {mine: other for each in pairs for mine, other in each}


def _fits(part: JoinPart, host: JoinPart, names: Mapping[str, str]) -> bool:
    ours, theirs = part.graph, host.graph
    if {terms(class_, names) for class_ in ours.classes} != {frozenset(class_.terms) for class_ in theirs.classes}:
        return False
    tables = {source.alias for source in host.sources if source.is_table}
    on_tables = {(names[alias], _renamed(expr, names)) for alias, expr in ours.filters if names[alias] in tables}
    if on_tables != {(alias, expr) for alias, expr in theirs.filters if alias in tables}:
        return False
    return connected(theirs) or {_renamed(expr, names) for expr in ours.residuals} == set(theirs.residuals)


def terms(class_: JoinClass, names: Mapping[str, str]) -> frozenset[tuple[str, Expr]]:
    """What a class makes equal, in other aliases."""
    return frozenset((names[alias], _renamed(term, names)) for alias, term in class_.terms)


def _renamed(expr: Expr, names: Mapping[str, str]) -> Expr:
    return rewrite(expr, lambda node: replace(node, alias=names[node.alias]) if isinstance(node, Column) else node)


def connected(graph: JoinGraph) -> bool:
    """Whether equality classes lead from every item to every other."""
    reached, grown = {graph.aliases[0]}, True
    while grown:
        more = {alias for class_ in graph.classes if reached & set(class_.aliases) for alias in class_.aliases}
        grown = not more <= reached
        reached |= more
    return reached == set(graph.aliases)


def widest(source: Source, lives: int | None) -> Source:
    """The FROM item with a window that holds a tuple for `lives`; None leaves it as it is."""
    if lives is None:
        return source
    window = UNBOUNDED if lives == ENDLESS else Window("range", lives)
    same = source.window is not None and lifetime(source.window) == lives
    return source if same else replace(source, window=window)
