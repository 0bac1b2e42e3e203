"""From a bound body to parts: one for every clause, in the structure of the text.

An outer join is composed of parts that exist without it. With columns that tell equal rows apart (see `identity`), the
rows of the left side without a partner are the difference of that side and of the left sides of all pairs:

    a LEFT JOIN b = pairs UNION ALL (a EXCEPT pairs[a's columns], with NULLs for b)

A semi join is DISTINCT over the left sides of all pairs, an anti join the difference alone. The pairs are a relation
that is computed once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from penstock.cql import OuterJoin, QueryBody, Select, SelectItem, SetOperation, Source, Subquery
from penstock.expr import INT, Column, Expr, Literal, find_columns
from penstock.plan.identity import (
    SIDE,
    list_identity,
    list_source_identity,
    name_side,
    read_identities,
)
from penstock.plan.join_graph import build_join_graph
from penstock.plan.physical import plan_join
from penstock.plan.projection import ProjectPart, RelationPart, UnmatchedPart
from penstock.plan.query import (
    DifferencePart,
    DistinctPart,
    GroupPart,
    GroupPlan,
    JoinPart,
    Outputs,
    PlanPart,
    UnionPart,
)
from penstock.plan.sequences import plan_sequence
from penstock.plan.tree import build_left_deep


@dataclass(frozen=True)
class Translation:
    """How bodies are translated. `stream_ranks`: the order in which streams were declared."""

    stream_ranks: Mapping[str, int]
    _translated: dict[tuple[int, frozenset[str], bool], RelationPart] = field(default_factory=dict)
    """The relations by the identity of their bodies, the columns that are read, and whether they are identified."""
    _relations: dict[RelationPart, RelationPart] = field(default_factory=dict)
    """One object for equal relations: what reads it is compared fast."""

    def translate(
        self, body: QueryBody, needed: Collection[str] | None = None, *, identified: bool = False
    ) -> PlanPart:
        """The parts of a body; joins are left-deep in the order of FROM.

        `needed`: the columns that are read; None: all. `identified`: with identity columns behind the others.
        """
        match body:
            case OuterJoin():
                return self._translate_outer_join(body, needed, identified=identified)
            case SetOperation():
                return self._translate_set(body, identified=identified)
        columns = tuple((item.name, item.expr.type) for item in body.items)
        if body.group_by is None:
            kept = None if body.distinct else needed
            items = tuple((item.name, item.expr) for item in body.items if kept is None or item.name in kept)
            numbers = read_identities(body.sources) if identified and not body.distinct else ()
            below = self._translate_rows(body, (*items, *numbers), identified=bool(numbers))
        else:
            keys = zip(list_identity(body), body.group_by, strict=False) if identified and not body.distinct else ()
            items = (
                *((item.name, item.expr) for item in body.items),
                *((name, key) for (name, _), key in keys),
            )
            # The binder refuses windows of one SELECT that slide by different amounts.
            slide = next((source.window.slide for source in body.sources if source.window.slide), None)
            group = GroupPlan(body.group_by, items, body.having, slide)
            below = GroupPart(self._translate_rows(body, group.inputs), group)
        return DistinctPart(below, columns) if body.distinct else below

    def _translate_set(self, body: SetOperation, *, identified: bool) -> PlanPart:
        columns = tuple((item.name, item.expr.type) for item in body.items)
        sides = self.translate(body.left), self.translate(body.right)
        if body.kind == "except":
            return DifferencePart(sides, columns, (1,))
        if not identified:
            return UnionPart(sides, columns)
        numbered = (self._identify_side(body, place) for place in range(2))
        return UnionPart(tuple(numbered), (*columns, *list_identity(body)))

    def _identify_side(self, body: SetOperation, place: int) -> PlanPart:
        """A side of a UNION ALL with the identity columns of both sides; those of the other one are NULL."""
        side = body.right if place else body.left
        below = self.translate(side, identified=True)
        shown = tuple((item.name, Column("", item.name, item.expr.type)) for item in side.items)
        own = dict(zip(name_side(body, place), list_identity(side), strict=True))
        padded = (
            (column[0], Column("", own[column][0], column[1]) if column in own else Literal(None, column[1]))
            for column in list_identity(body)[1:]
        )
        return ProjectPart(below, "one side", (), (*shown, (SIDE, Literal(place, INT)), *padded))

    def _translate_rows(self, select: Select, outputs: Outputs, *, identified: bool = False) -> PlanPart:
        """The rows of FROM and WHERE; `identified`: the outputs read the identity columns of the sources."""
        if select.sequence is not None:
            return plan_sequence(select, select.sequence.mode, outputs, self.stream_ranks)
        exprs = (*(expr for _, expr in outputs), *select.where)
        relations = self._translate_relations(select.sources, exprs, identified=identified)
        sources = tuple(map(_identify, select.sources)) if identified else select.sources
        return _join_sources(replace(select, sources=sources), outputs, relations)

    def _translate_relations(
        self, sources: Iterable[Source], exprs: Iterable[Expr], *, identified: bool
    ) -> dict[str, PlanPart]:
        """The subqueries among the sources, by alias, with the columns that the expressions read."""
        read = [column for expr in exprs for column in find_columns(expr)]
        found: dict[str, PlanPart] = {}
        for source in sources:
            if isinstance(source.relation, Subquery):
                names = frozenset(column.name for column in read if column.alias == source.alias)
                found[source.alias] = self._translate_relation(source.relation.body, names, identified=identified)
        return found

    def _translate_relation(self, body: QueryBody, names: frozenset[str], *, identified: bool) -> RelationPart:
        key = id(body), names, identified
        if key not in self._translated:
            part = RelationPart(self.translate(body, names, identified=identified))
            self._translated[key] = self._relations.setdefault(part, part)
        return self._translated[key]

    def _translate_outer_join(self, body: OuterJoin, needed: Collection[str] | None, *, identified: bool) -> PlanPart:
        shown = tuple(item for item in body.items if needed is None or item.name in needed)
        exprs = (*(item.expr for item in shown), *body.on)
        relations = self._translate_relations((body.left, body.right), exprs, identified=True)
        return _OuterJoinParts(body, shown, relations, identified).build()


def _join_sources(select: Select, outputs: Outputs, relations: Mapping[str, PlanPart]) -> PlanPart:
    """A join of sources, or a projection of one subquery. `relations` are the subqueries, by alias."""
    subqueries = tuple(relations[source.alias] for source in select.sources if source.alias in relations)
    if subqueries and len(select.sources) == 1:
        return ProjectPart(subqueries[0], f"select from query {select.sources[0].alias}", select.where, outputs)
    graph = build_join_graph(tuple(source.alias for source in select.sources), select.where)
    shown = tuple(expr for _, expr in outputs)
    plan = plan_join(graph, select.sources, shown, build_left_deep(graph.aliases))
    return JoinPart(select.sources, graph, outputs, plan, subqueries)


def _identify(source: Source) -> Source:
    """A FROM item with its identity columns; those of a set are among its columns."""
    known = set(source.relation.schema.names)
    return replace(source, hidden=tuple(column for column in list_source_identity(source) if column[0] not in known))


@dataclass(frozen=True)
class _OuterJoinParts:
    """The parts of one outer, semi or anti join. Every column has its name in the answer of the join."""

    body: OuterJoin
    items: tuple[SelectItem, ...]
    """The columns that are read."""
    relations: Mapping[str, PlanPart]
    """The subqueries among the two sides, by alias: pairs and rows without a partner read the same ones."""
    identified: bool
    """Whether identity columns are read above."""

    def build(self) -> PlanPart:
        left, right = self.body.left, self.body.right
        match self.body.kind:
            case "semi":
                columns = tuple((name, expr.type) for name, expr in self._list_columns(left))
                return self._show(DistinctPart(self._project_pairs(left), columns), left)
            case "anti":
                return self._show(self._find_unmatched(left), left)
        kept = (left, right) if self.body.kind == "full" else (left,)
        extended = (self._show(self._find_unmatched(side), side) for side in kept)
        columns = tuple((name, expr.type) for name, expr in self._outputs)
        return UnionPart((self._show(self._pairs, None), *extended), columns)

    @cached_property
    def _identities(self) -> Outputs:
        return read_identities((self.body.left, self.body.right))

    @cached_property
    def _outputs(self) -> Outputs:
        """The columns of the answer."""
        items = tuple((item.name, item.expr) for item in self.items)
        if not self.identified:
            return items
        if self.body.kind == "full":
            return (*items, (SIDE, Literal(0, INT)), *self._identities)
        left_only = self.body.kind in ("semi", "anti")
        return (*items, *((n, e) for n, e in self._identities if not left_only or _is_of(e, self.body.left)))

    @cached_property
    def _pairs(self) -> RelationPart:
        """The pairs of both sides that satisfy the condition."""
        sources = _identify(self.body.left), _identify(self.body.right)
        outputs = (*((item.name, item.expr) for item in self.items), *self._identities)
        return RelationPart(_join_sources(Select(sources, self.body.on, ()), outputs, self.relations))

    def _list_columns(self, side: Source) -> Outputs:
        """The columns of one side, with its identity."""
        items = ((item.name, item.expr) for item in self.items)
        return tuple((name, expr) for name, expr in (*items, *self._identities) if _is_of(expr, side))

    def _project_pairs(self, side: Source) -> PlanPart:
        """The rows of a side that have a partner, once for each."""
        outputs = tuple((name, Column("", name, expr.type)) for name, expr in self._list_columns(side))
        return ProjectPart(self._pairs, f"rows of {side.alias} with a partner", (), outputs)

    def _find_unmatched(self, side: Source) -> PlanPart:
        """The rows of a side that have no partner."""
        own = self._list_columns(side)
        kept = _join_sources(Select((_identify(side),), (), ()), own, self.relations)
        columns = tuple((name, expr.type) for name, expr in own)
        return UnmatchedPart((kept, self._project_pairs(side)), columns, (1,))

    def _show(self, below: PlanPart, side: Source | None) -> PlanPart:
        """The columns of the answer over pairs (None) or rows of one side: NULL where a column is of the other one."""
        place = 0 if side is None else 1 + (side is self.body.right)

        def show(name: str, expr: Expr) -> Expr:
            if name == SIDE:
                return Literal(place, INT)
            known = side is None or _is_of(expr, side)
            return Column("", name, expr.type) if known else Literal(None, expr.type)

        outputs = tuple((name, show(name, expr)) for name, expr in self._outputs)
        title = "pairs" if side is None else f"rows of {side.alias}"
        return ProjectPart(below, title, (), outputs)


def _is_of(expr: Expr, side: Source) -> bool:
    return isinstance(expr, Column) and expr.alias == side.alias
