"""Binds SELECT and set operations against the catalog."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import pyarrow as pa
from sqlglot import exp

from penstock.cql.bound import QueryBody, Select, SelectItem, SequenceClause, SetOperation, Subquery
from penstock.cql.dialect import find_span
from penstock.cql.errors import Span
from penstock.cql.expressions import ExpressionBinder
from penstock.cql.from_binder import FromBinder, FromBlock
from penstock.cql.output_names import OutputColumn, expand_star, name_outputs
from penstock.cql.scope import Scope
from penstock.cql.sources import Names, bind_freshness, check_sources, check_time_types
from penstock.cql.syntax import BodySyntax, FromSyntax, SelectSyntax, SourceSyntax, WithSyntax
from penstock.cql.types import format_type
from penstock.cql.window_functions import rewrite_spark_windows
from penstock.expr import Aggregate, Call, Column, Expr, Literal, find_common_type, split_conjuncts, walk


def bind_body(syntax: BodySyntax, names: Names) -> QueryBody:
    """Bind a SELECT, or a UNION ALL or EXCEPT of two bodies."""
    if isinstance(syntax, WithSyntax):
        return bind_body(syntax.body, _declare_queries(syntax, names))
    if isinstance(syntax, SelectSyntax):
        return _SelectBinder(rewrite_spark_windows(syntax, names.origin), names).bind()
    origin = names.origin
    left, right = bind_body(syntax.left, names), bind_body(syntax.right, names)
    if len(left.items) != len(right.items):
        message = (
            f"{syntax.kind.upper()} needs equally many columns on both sides: {len(left.items)} and {len(right.items)}"
        )
        raise origin.error("COLUMN_COUNT", message, syntax.span)
    types: list[pa.DataType] = []
    for one, two in zip(left.items, right.items, strict=True):
        met = find_common_type(one.expr.type, two.expr.type)
        if met is None:
            sides = f"{one.name} ({format_type(one.expr.type)}) and {two.name} ({format_type(two.expr.type)})"
            raise origin.error("TYPE_MISMATCH", f"{syntax.kind.upper()} cannot pair {sides}", syntax.span)
        types.append(met)
    check_time_types([(left, syntax.span), (right, syntax.span)], origin)
    return SetOperation(syntax.kind, _cast_items(left, types), _cast_items(right, types))


def _declare_queries(syntax: WithSyntax, names: Names) -> Names:
    """The names with the queries of WITH; each can name those before it, and hides a declaration of its name."""
    known = replace(names, queries=names.queries.copy())
    written: set[str] = set()
    for name, body in syntax.queries:
        if name.text.casefold() in written:
            raise names.origin.error("DUPLICATE_NAME", f"WITH has two queries {name.text}", name.span, name=name.text)
        written.add(name.text.casefold())
        known.queries.add(Subquery(name.text, bind_body(body, known)))
    return known


def _cast_items(body: QueryBody, types: list[pa.DataType]) -> QueryBody:
    """The body with its columns cast to given types."""
    if isinstance(body, SetOperation):
        return replace(body, left=_cast_items(body.left, types), right=_cast_items(body.right, types))
    items = [
        item if item.expr.type == goal else SelectItem(item.name, Call("cast", (item.expr,), goal))
        for item, goal in zip(body.items, types, strict=True)
    ]
    return replace(body, items=tuple(items))


class _SelectBinder:
    """Binds one SELECT."""

    def __init__(self, syntax: SelectSyntax, names: Names) -> None:
        self.syntax = syntax
        self.origin = names.origin
        self.user_aggregates = names.catalog.aggregates
        block, written = self._bind_from(names)
        self.conditions = block.conditions
        self.sources = bind_freshness(block.sources, syntax, names.origin)
        self.scope = Scope(names.origin, block.items, block.merged)
        self.written = written

    def _bind_from(self, names: Names) -> tuple[FromBlock, tuple[SourceSyntax, ...]]:
        """The FROM clause, and the items of the text that it reads directly or in inner joins."""
        binder = FromBinder(names, self.syntax.window, bind_body, self._bind_on)
        blocks = []
        for syntax in self.syntax.from_items:
            blocks.append(binder.bind(syntax))
            for earlier in blocks[:-1]:
                binder.check_aliases(earlier, blocks[-1], syntax)
        block = reduce(FromBlock.join, blocks)
        written = tuple(source for syntax in self.syntax.from_items for source in _list_written(syntax))
        check_time_types(
            [(source, syntax.relation.span) for source, syntax in zip(block.sources, written, strict=True)],
            names.origin,
        )
        check_sources(block.sources, written, self.syntax, names)
        return block, written

    def _bind_on(self, node: exp.Expr, scope: Scope) -> tuple[Expr, ...]:
        binder = ExpressionBinder(scope, self.user_aggregates, no_aggregates_in="WHERE or ON")
        return split_conjuncts(binder.bind_condition(node, "a condition"))

    def bind(self) -> Select:
        where = self._bind_where()
        outputs = self._bind_outputs()
        items = name_outputs(outputs, self.scope)
        aliases = {output.alias.casefold(): output.expr for output in outputs if output.alias}
        group_by = self._bind_group_by(items, aliases)
        having = self._bind_having(aliases)
        aggregated = any(
            _has_aggregate(expr) for expr in [*(item.expr for item in items), *([having] if having else [])]
        )
        if group_by is None and aggregated:
            group_by = ()
        if group_by is not None:
            for output in outputs:
                self._check_grouped(output.expr, group_by, output.node)
            if having is not None and self.syntax.having is not None:
                self._check_grouped(having, group_by, self.syntax.having)
        elif self.syntax.having is not None:
            message = "HAVING needs GROUP BY or an aggregate; write WHERE for single rows"
            raise self.origin.error("HAVING_WITHOUT_GROUP", message, find_span(self.syntax.having))
        self._check_slides(group_by)
        return Select(
            sources=self.sources,
            where=where,
            items=items,
            distinct=self.syntax.distinct,
            group_by=group_by,
            having=having,
            sequence=SequenceClause(self.syntax.sequence) if self.syntax.sequence else None,
        )

    def _bind_where(self) -> tuple[Expr, ...]:
        own = () if self.syntax.where is None else self._bind_on(self.syntax.where, self.scope)
        return (*self.conditions, *own)

    def _bind_outputs(self) -> list[OutputColumn]:
        binder = ExpressionBinder(self.scope, self.user_aggregates)
        outputs: list[OutputColumn] = []
        for node in self.syntax.items:
            if (columns := expand_star(node, self.scope)) is not None:
                outputs.extend(OutputColumn(column, None, node, name) for name, column in columns)
            elif isinstance(node, exp.Alias):
                outputs.append(OutputColumn(binder.bind_value(node.this), node.alias, node))
            else:
                outputs.append(OutputColumn(binder.bind_value(node), None, node))
        return outputs

    def _bind_group_by(self, items: tuple[SelectItem, ...], aliases: dict[str, Expr]) -> tuple[Expr, ...] | None:
        if self.syntax.group_by is None:
            return None
        binder = ExpressionBinder(self.scope, self.user_aggregates, "GROUP BY", aliases)
        keys: list[Expr] = []
        for node in self.syntax.group_by:
            key = binder.bind(node)
            if isinstance(key, Literal) and isinstance(node, exp.Literal) and isinstance(key.value, int):
                if not 1 <= key.value <= len(items):
                    message = f"GROUP BY {key.value} is not a position in SELECT; it has {len(items)} columns"
                    raise self.origin.error("GROUP_BY_POSITION", message, find_span(node))
                key = items[key.value - 1].expr
            if _has_aggregate(key):
                message = "GROUP BY names an aggregate; group by the columns that it is computed from"
                raise self.origin.error("AGGREGATE_NOT_ALLOWED", message, find_span(node))
            keys.append(key)
        return tuple(dict.fromkeys(keys))

    def _bind_having(self, aliases: dict[str, Expr]) -> Expr | None:
        if self.syntax.having is None:
            return None
        return ExpressionBinder(self.scope, self.user_aggregates, None, aliases).bind_condition(
            self.syntax.having, "HAVING"
        )

    def _check_grouped(self, expr: Expr, keys: tuple[Expr, ...], node: exp.Expr) -> None:
        """Every column outside an aggregate must be part of a grouping expression."""
        if expr in keys or isinstance(expr, (Aggregate, Literal)):
            return
        if isinstance(expr, Column):
            message = f"column {'.'.join(self.scope.describe(expr))} is outside an aggregate and not in GROUP BY"
            raise self.origin.error("NOT_GROUPED", message, self._find_column_span(expr, node))
        for arg in expr.args:
            self._check_grouped(arg, keys, node)

    def _find_column_span(self, column: Column, node: exp.Expr) -> Span:
        for written in node.find_all(exp.Column):
            if not isinstance(written.this, exp.Star) and self.scope.find(written) == column:
                return find_span(written)
        return find_span(node)

    def _check_slides(self, group_by: tuple[Expr, ...] | None) -> None:
        slide: int | None = None
        for source, written in zip(self.sources, self.written, strict=True):
            if written.window is None or source.window.slide is None:
                continue
            if group_by is None:
                advice = "it makes aggregates report at each slide, and this query has none"
                raise self.origin.unsupported_error("SLIDE without aggregate", written.window.span, advice)
            slide = slide or source.window.slide
            if source.window.slide != slide:
                message = "the windows of one aggregate slide by different amounts; it reports at the multiples of one"
                raise self.origin.error("SLIDES_DIFFER", f"{message} SLIDE", written.window.span)


def _has_aggregate(expr: Expr) -> bool:
    return any(isinstance(node, Aggregate) for node in walk(expr))


def _list_written(syntax: FromSyntax) -> tuple[SourceSyntax, ...]:
    """One item of the text for each source of a FROM item: of an outer join, its first one."""
    if isinstance(syntax, SourceSyntax):
        return (syntax,)
    left = _list_written(syntax.left)
    return (*left, *_list_written(syntax.right)) if syntax.kind in ("inner", "cross") else left[:1]
