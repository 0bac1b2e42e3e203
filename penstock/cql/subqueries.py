"""Subqueries in expressions, as joins of the FROM clause with the subquery.

Law, at every instant, for a row of FROM and the rows of the subquery that satisfy its correlated conditions:
    EXISTS (q)           a semi join; NOT EXISTS an anti join
    x IN (SELECT c ...)  a semi join on x = c
    x NOT IN (...)       three anti joins: on x = c, with a NULL in x, and with a NULL in c. By SQL's rules a NULL on
                         either side makes the condition unknown, unless the subquery has no row
    IN, EXISTS below OR or NOT, in CASE, or in SELECT: a mark join, which has all rows of FROM, each with a boolean. IN
                         has three marks, for the conditions of NOT IN, unless NULL and FALSE have one effect
    (SELECT MAX(c) ...)  a left join with the aggregate, grouped by the terms that the correlation makes equal; without
                         a row the value is that of the aggregate over nothing: 0 for COUNT, NULL for the others

A scalar subquery is an aggregate without GROUP BY, so that it has at most one row by its text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain, count

from sqlglot import exp

from penstock.cql.bound import OuterJoin, OuterJoinKind, QueryBody, Select, SelectItem, Source, Subquery
from penstock.cql.dialect import find_span
from penstock.cql.errors import CqlError, Origin, Span
from penstock.cql.from_binder import FromBlock, as_one_source, collapse
from penstock.cql.group_relation import RESERVED
from penstock.cql.scope import OUTER, Scope, ScopeItem
from penstock.cql.subquery_nodes import Predicate, is_filter, list_predicates, list_scalar_queries, match_predicate
from penstock.cql.subquery_sides import (
    SubquerySide,
    as_relation,
    compute_default,
    has_outer,
    match_correlation,
    read_side,
    strip_outer,
)
from penstock.cql.surrounding import (
    join_surrounding_rows,
    link_surrounding_rows,
    list_outer_columns,
    read_surrounding,
)
from penstock.cql.syntax import BodySyntax
from penstock.cql.windows import CURRENT
from penstock.expr import (
    BOOL,
    HIDDEN,
    Call,
    Column,
    Expr,
    Literal,
    find_columns,
    find_common_type,
)

BindOperand = Callable[[exp.Expr, FromBlock], Expr]
"""Binds an expression over the columns of a block."""
BindNested = Callable[[BodySyntax, Scope | None], QueryBody]
"""Binds the body of a subquery, whose conditions can name columns of a scope."""
_VALUE, _MARK = "value", "mark"


@dataclass(frozen=True)
class ScalarValue:
    """Where the value of a scalar subquery is: the item of the scope, and the value without a row."""

    item: str
    default: Expr | None

    def read(self, scope: Scope) -> Expr:
        columns = next(item.columns for item in scope.items if item.alias == self.item)
        value, mark = columns[_VALUE], columns[_MARK]
        if self.default is None:
            return value
        return Call("case", (Call("is_null", (mark,), BOOL), self.default, value), value.type)


@dataclass(frozen=True)
class MarkValue:
    """Where the value of EXISTS or IN is: the items of the scope with the marks. The first says TRUE, another NULL."""

    items: tuple[str, ...]

    @property
    def item(self) -> str:
        return self.items[-1]

    def read(self, scope: Scope) -> Expr:
        found = {item.alias: item.columns[_MARK] for item in scope.items if item.alias in self.items}
        marks: list[Expr] = [found[alias] for alias in self.items]
        first, others = marks[0], marks[1:]
        if not others:
            return first
        unknown = reduce(lambda one, other: Call("or", (one, other), BOOL), others)
        values = (first, Literal(True, BOOL), unknown, Literal(None, BOOL), Literal(False, BOOL))
        return Call("case", values, BOOL)


@dataclass
class SubqueryJoiner:
    """Joins subqueries to a FROM block. `bind` binds them."""

    origin: Origin
    bind: BindNested
    outer: Scope | None = None
    """The scope of the query around the one whose subqueries these are."""
    values: dict[int, ScalarValue | MarkValue] = field(default_factory=dict)
    """By the identity of its node, the value of each subquery that was joined as a column."""
    _aliases: set[str] = field(default_factory=set)
    """The aliases of subqueries so far."""

    def join_predicate(self, block: FromBlock, predicate: Predicate, bind_operand: BindOperand) -> FromBlock:
        """Keep the rows of the block that satisfy a predicate."""
        for test in _NULL_TESTS if predicate.negated and predicate.operand is not None else _NULL_TESTS[:1]:
            block = collapse(block)
            right, on = self._bind_test(block, predicate, test, bind_operand)
            if any(map(has_outer, on)):
                raise self.make_far_error(find_span(predicate.query))
            block = _join(block, "anti" if predicate.negated else "semi", right, on)
        return block

    def add_partners(self, block: FromBlock, predicate: Predicate, bind_operand: BindOperand) -> FromBlock | None:
        """Join the rows of an EXISTS or IN inside a subquery, if it names columns of the query around that one.

        A row can come in several pairs. None if it names none, or if it is negated.
        """
        if self.outer is None or predicate.negated:
            return None
        right, on = self._bind_test(block, predicate, "equal", bind_operand)
        if not any(map(has_outer, on)):
            return None
        return replace(block, sources=(*block.sources, right), conditions=(*block.conditions, *on))

    def names_far_columns(self, block: FromBlock, predicate: Predicate, bind_operand: BindOperand) -> bool:
        """Whether a predicate inside a subquery names columns of the query around that one."""
        if self.outer is None:
            return False
        return any(map(has_outer, self._bind_test(collapse(block), predicate, "equal", bind_operand)[1]))

    def join_far_predicates(
        self, block: FromBlock, predicates: Sequence[Predicate], near: Sequence[Expr], bind_operand: BindOperand
    ) -> FromBlock:
        """Keep the rows that satisfy negated predicates, which name columns of the query around this one.

        The rows of that query are joined to the block, where the correlated conditions `near` hold. So a row can come
        several times.
        """
        around = None if self.outer is None else self.outer.rows
        tests = [(each, test) for each in predicates for test in (_NULL_TESTS if each.operand else _NULL_TESTS[:1])]
        found = [expr for each, test in tests for expr in self._bind_test(block, each, test, bind_operand)[1]]
        if around is None:
            raise self.make_far_error(find_span(predicates[0].query))
        columns = list_outer_columns([*found, *near], around)
        alias = self._choose_alias(around.alias, block)
        rows = replace(around, alias=alias, written=around.name, surrounds=True)
        block = join_surrounding_rows(block, rows, near, columns)
        for predicate, test in tests:
            right, on = self._bind_test(block, predicate, test, bind_operand)
            on = tuple(read_surrounding(block, expr) for expr in on)
            if any(map(has_outer, on)):
                raise self.make_far_error(find_span(predicate.query))
            block = _join(block, "anti", right, on)
        return replace(block, conditions=(*block.conditions, *link_surrounding_rows(block, columns)))

    def _bind_test(
        self, block: FromBlock, predicate: Predicate, test: str, bind_operand: BindOperand
    ) -> tuple[Source, tuple[Expr, ...]]:
        """The subquery as a side of a join, and the conditions of one test of a predicate."""
        side = self._bind_predicate(block, predicate)
        if predicate.operand is None:
            return side.right, side.on
        operand = bind_operand(predicate.operand, block)
        return side.right, (*side.on, self._test(test, operand, side.values[0], find_span(predicate.query)))

    def join_marks(
        self, block: FromBlock, nodes: Iterable[exp.Expr], bind_operand: BindOperand, *, filters: bool = False
    ) -> FromBlock:
        """Give the block marks for every EXISTS and IN in some expressions. `filters`: these are conditions of rows."""
        for node in [each for root in nodes for each in list_predicates(root)]:
            predicate = match_predicate(node)
            if predicate is None or id(node) in self.values:
                continue
            is_two_valued = predicate.operand is None or (filters and is_filter(node))
            marks: list[str] = []
            for test in _NULL_TESTS[:1] if is_two_valued else _NULL_TESTS:
                block = collapse(block)
                right, on = self._bind_test(block, predicate, test, bind_operand)
                if any(map(has_outer, on)):
                    raise self.make_far_error(find_span(predicate.query))
                marks.append(f"{HIDDEN}mark{len(self._aliases)}")
                block = _join_mark(block, marks[-1], right, on)
            self.values[id(node)] = MarkValue(tuple(marks))
        return block

    def join_scalars(self, block: FromBlock, nodes: Iterable[exp.Expr], *, correlated: bool = True) -> FromBlock:
        """Give the block a column for every scalar subquery in some expressions."""
        for node in [query for each in nodes for query in list_scalar_queries(each)]:
            block = collapse(block)
            side, default = self._bind_scalar(node, block, correlated=correlated)
            if any(map(has_outer, side.on)):
                raise self.make_far_error(find_span(node))
            columns = {column.name: column for column in side.values if isinstance(column, Column)}
            item = ScopeItem(f"{HIDDEN}{len(self.values)}", "the subquery", columns)
            self.values[id(node)] = ScalarValue(item.alias, default)
            shown = block.join(FromBlock((side.right,), (), (item,), ()))
            body = OuterJoin("left", block.sources[0], side.right, side.on, shown.list_columns())
            block = as_one_source(body, shown, shown.merged)
        return block

    def read_values(self, scope: Scope) -> dict[int, Expr]:
        """The values of the subqueries that were joined as columns, by the identity of their nodes."""
        known = {item.alias for item in scope.items}
        return {node: value.read(scope) for node, value in self.values.items() if value.item in known}

    def reserve_values(self, nodes: Iterable[exp.Placeholder], predicates: Iterable[exp.Expr]) -> dict[int, Expr]:
        """Names for the values of subqueries that will be joined to groups."""
        reserved: dict[int, Expr] = {}
        for node in predicates:
            reserved[id(node)] = Column(RESERVED, f"{len(reserved)}", BOOL)
        for node in nodes:
            body = self._bind(node, None)
            self._check_columns(body, find_span(node))
            reserved[id(node)] = Column(RESERVED, f"{len(reserved)}", body.items[0].expr.type)
        return reserved

    def _test(self, test: str, operand: Expr, value: Expr, span: Span) -> Expr:
        if test != "equal":
            return Call("is_null", (operand if test == "operand" else value,), BOOL)
        kind = find_common_type(operand.type, value.type)
        if kind is None:
            raise self.origin.error("TYPE_MISMATCH", "IN compares values whose types cannot be compared", span)
        return Call("=", (_cast(operand, kind), _cast(value, kind)), BOOL)

    # ── binding ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _bind_predicate(self, block: FromBlock, predicate: Predicate) -> SubquerySide:
        body, span = self._bind(predicate.query, block), find_span(predicate.query)
        if predicate.operand is not None:
            self._check_columns(body, span)
        if isinstance(body, Select) and body.group_by == ():
            what = "EXISTS" if predicate.operand is None else "IN"
            instead = "an aggregate without GROUP BY has one row; compare with its value: x = (SELECT MAX(c) FROM ...)"
            raise self.origin.unsupported_error(f"{what} with one aggregate", span, instead)
        return self._make_side(body, block, span)

    def _bind_scalar(
        self, node: exp.Placeholder, block: FromBlock, *, correlated: bool
    ) -> tuple[SubquerySide, Expr | None]:
        """A scalar subquery, and its value without a row; None for NULL."""
        body, span = self._bind(node, block if correlated else None), find_span(node)
        self._check_columns(body, span)
        if not isinstance(body, Select) or body.group_by != () or body.having is not None or body.distinct:
            message = (
                "a subquery that stands for a value is an aggregate without GROUP BY and HAVING, so that it has one "
                "row: write (SELECT MAX(x) FROM ...), or join the query in FROM"
            )
            raise self.origin.error("SCALAR_SUBQUERY", message, span)
        value = body.items[0].expr
        marked = replace(body, items=(SelectItem(_VALUE, value), SelectItem(_MARK, Literal(True, BOOL))))
        return self._make_side(marked, block, span), compute_default(value)

    def _bind(self, node: exp.Placeholder, outer: FromBlock | None) -> QueryBody:
        scope = Scope(self.origin, (), ())
        if outer is not None:
            rows = outer.sources[0] if len(outer.sources) == 1 and not outer.conditions else None
            scope = Scope(self.origin, outer.items, outer.merged, self.outer, rows=rows)
        body = self.bind(node.meta["body"], scope)
        if isinstance(body, Select):
            having = () if body.having is None else (body.having,)
            if any(has_outer(expr) for expr in (*(item.expr for item in body.items), *(body.group_by or ()), *having)):
                message = "a subquery can name columns of the query around it in WHERE only"
                raise self._make_correlation_error(message, find_span(node))
        return body

    def _check_columns(self, body: QueryBody, span: Span) -> None:
        if len(body.items) != 1:
            message = f"this subquery must have one column; it has {len(body.items)}"
            raise self.origin.error("COLUMN_COUNT", message, span)

    # ── a subquery as a side of a join ───────────────────────────────────────────────────────────────────────────────

    def _make_side(self, body: QueryBody, block: FromBlock, span: Span) -> SubquerySide:
        """A subquery as the right side of a join with the block."""
        if not isinstance(body, Select) or body.sequence is not None:
            return as_relation(body, self._choose_alias("subquery", block))
        if body.group_by is not None:
            return self._make_grouped_side(body, self._choose_alias("subquery", block), span)
        values = tuple(item.expr for item in body.items)
        if len(body.sources) == 1:
            (source,) = body.sources
            alias = self._choose_alias(source.alias, block)
            names = {column: column.name for expr in (*body.where, *values) for column in find_columns(expr)}
            return read_side(replace(source, alias=alias, written=source.name), body.where, values, names)
        self._check_stream(body, span)
        outer = tuple(term for term in body.where if has_outer(term))
        read = dict.fromkeys(column for expr in (*outer, *values) for column in find_columns(expr))
        inner = [column for column in read if not column.alias.startswith(OUTER)]
        names = {column: f"{HIDDEN}{place}" for place, column in enumerate(inner)}
        below = replace(
            body,
            where=tuple(term for term in body.where if not has_outer(term)),
            items=tuple(SelectItem(name, column) for column, name in names.items()),
            distinct=False,
        )
        alias = self._choose_alias("subquery", block)
        return read_side(Source(alias, Subquery(alias, below), CURRENT), outer, values, names)

    def _make_grouped_side(self, body: Select, alias: str, span: Span) -> SubquerySide:
        """A group is also of the terms that the correlation makes equal."""
        self._check_stream(body, span)
        keys: list[tuple[Expr, Expr]] = []
        for term in body.where:
            if has_outer(term):
                sides = match_correlation(term)
                if sides is None:
                    message = "a subquery with an aggregate can be correlated by equality only: inner.k = outer.k"
                    raise self._make_correlation_error(message, span)
                keys.append(sides)
        below = replace(
            body,
            where=tuple(term for term in body.where if not has_outer(term)),
            group_by=tuple(dict.fromkeys((*(body.group_by or ()), *(inner for inner, _ in keys)))),
            items=(*body.items, *(SelectItem(f"{HIDDEN}{place}", inner) for place, (inner, _) in enumerate(keys))),
        )
        on = (
            Call("=", (Column(alias, f"{HIDDEN}{place}", inner.type), strip_outer(known)), BOOL)
            for place, (inner, known) in enumerate(keys)
        )
        return replace(as_relation(below, alias, len(body.items)), on=tuple(on))

    def _choose_alias(self, name: str, block: FromBlock) -> str:
        """An alias that neither the block nor another subquery has."""
        known = {alias.casefold() for alias in (*block.aliases, *self._aliases)}
        names = chain([name], (f"{name}_{number}" for number in count(2)))
        alias = next(each for each in names if each.casefold() not in known)
        self._aliases.add(alias)
        return alias

    def _check_stream(self, body: Select, span: Span) -> None:
        if all(base.is_table for base in body.inputs):
            message = "this subquery joins or aggregates static tables only; compute it before, and declare the result"
            raise self.origin.error("NO_STREAM", message, span)

    def make_far_error(self, span: Span) -> CqlError:
        """Columns of a query two levels above, where they cannot be named."""
        message = (
            "only EXISTS and IN that AND connects, in a subquery without aggregate, can name columns of a query two "
            "levels above; name an equal column of the query between, or move the condition into the query that has "
            "the columns"
        )
        return self._make_correlation_error(message, span)

    def _make_correlation_error(self, message: str, span: Span) -> CqlError:
        return self.origin.error("CORRELATED_SUBQUERY", message, span)


_NULL_TESTS = ("equal", "operand", "value")
"""What makes NOT IN false or unknown: an equal value, a NULL before NOT IN, and a NULL in the subquery."""


def _join(block: FromBlock, kind: OuterJoinKind, right: Source, on: tuple[Expr, ...]) -> FromBlock:
    body = OuterJoin(kind, block.sources[0], right, on, block.list_columns())
    return as_one_source(body, block, block.merged)


def _join_mark(block: FromBlock, name: str, right: Source, on: tuple[Expr, ...]) -> FromBlock:
    shown = replace(block, items=(*block.items, ScopeItem(name, "the subquery", {_MARK: Column("", name, BOOL)})))
    body = OuterJoin("mark", block.sources[0], right, on, shown.list_columns())
    return as_one_source(body, shown, block.merged)


def _cast(expr: Expr, kind: object) -> Expr:
    return expr if expr.type == kind else Call("cast", (expr,), kind)
