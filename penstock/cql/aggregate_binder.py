"""Aggregates in expressions: their forms, DISTINCT, FILTER, ORDER BY and WITHIN GROUP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.cql.operands import Operand
from penstock.cql.over import SortKey, bind_sort_keys
from penstock.cql.types import to_arrow_type
from penstock.expr import (
    AGGREGATE_SYNONYMS,
    BOOLEAN_AGGREGATES,
    INT,
    NAMED_AGGREGATES,
    STRING,
    Aggregate,
    AggregateFunction,
    Call,
    Expr,
    Literal,
)

if TYPE_CHECKING:
    from penstock.cql.expressions import ExpressionBinder

_SEPARATORS = {"string_agg": "", "listagg": "", "group_concat": ","}
"""What stands between texts if none is given, by the name of the aggregate."""


@dataclass(frozen=True)
class _Arguments:
    """What stands between the parentheses of an aggregate, and behind them."""

    nodes: list[exp.Expr]
    distinct: bool
    order: Sequence[exp.Expr] | None


def _split_arguments(node: exp.Expr, within: exp.Expr | None) -> _Arguments:
    nodes = list(node.expressions)
    order: Sequence[exp.Expr] | None = None if within is None else within.expressions
    if nodes and isinstance(nodes[-1], exp.Order):
        order, nodes[-1] = nodes[-1].expressions, nodes[-1].this
    distinct = bool(nodes) and isinstance(nodes[0], exp.Distinct)
    return _Arguments([*nodes[0].expressions, *nodes[1:]] if distinct else nodes, distinct, order)


class AggregateBinder:
    """Binds the aggregates of one clause; `binder` binds its other expressions."""

    def __init__(self, binder: ExpressionBinder) -> None:
        self._binder = binder
        self._typer = binder.typer

    def bind(self, node: exp.Expr, within: exp.Expr | None = None) -> Aggregate:
        """The aggregate of a call; `within` is its WITHIN GROUP."""
        name = node.name.casefold()
        self._check_allowed(node)
        given = _split_arguments(node, within)
        if name in AGGREGATE_SYNONYMS:
            return self._bind_synonym(name, node, given)
        entry = NAMED_AGGREGATES.get(name)
        if given.order is not None and (entry is None or entry.form not in ("percentile", "list", "array")):
            advice = (
                "only percentiles, STRING_AGG and ARRAY_AGG have an order; "
                "write ARG_MIN or ARG_MAX for the value of one row"
            )
            raise self._typer.unsupported_error(node, f"ORDER BY in {name.upper()}", advice)
        if entry is None:
            return self._bind_user_aggregate(name, node, given)
        match entry.form:
            case "percentile":
                return self._bind_percentile(entry, node, given)
            case "by_time":
                return self._bind_by_time(entry, node, given)
            case "list":
                self._check_count(node, given, 1, 2)
                return self._bind_list(entry, node, given, self._read_separator(node, given))
            case "array":
                self._check_count(node, given, 1, 1)
                given = replace(given, distinct=given.distinct or node.name.casefold() == "collect_set")
                return self._bind_list(entry, node, given, None)
        return self._bind_plain(entry, node, given)

    def bind_filter(self, node: exp.Expr) -> Expr:
        """FILTER (WHERE condition): the aggregate of values that are NULL, and so ignored, where it is not true."""
        aggregate = self._binder.bind(node.this)
        if not isinstance(aggregate, Aggregate):
            raise self._typer.error("SYNTAX_ERROR", "FILTER comes after an aggregate, such as COUNT(*)", node)
        condition = self._make_inner("FILTER").bind_condition(node.expression.this, "FILTER")
        values = aggregate.args or (Literal(1, INT),)
        kept = tuple(Call("case", (condition, value, Literal(None, value.type)), value.type) for value in values)
        return replace(aggregate, args=kept)

    # ── forms ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _bind_plain(self, entry: AggregateFunction, node: exp.Expr, given: _Arguments) -> Aggregate:
        if entry.takes_star and len(given.nodes) == 1 and isinstance(given.nodes[0], exp.Star):
            return Aggregate(entry.name, (), False, INT)
        if given.distinct and len(given.nodes) > entry.arity:
            raise self._typer.unsupported_error(node, "DISTINCT of several columns")
        self._check_count(node, given, entry.arity, entry.arity)
        distinct = given.distinct and entry.arity == 1  # equal rows do not change the value of one of them
        return self._typer.aggregate(entry, self._bind_values(node, given.nodes), distinct=distinct)

    def _bind_percentile(self, entry: AggregateFunction, node: exp.Expr, given: _Arguments) -> Aggregate:
        """`PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY x DESC)`, `PERCENTILE(x, 0.9)` or `MEDIAN(x)`."""
        descending = False
        if node.name.casefold() == "median":
            self._check_count(node, given, 1, 1)
            value, fraction = given.nodes[0], 0.5
        elif given.order is not None:
            self._check_count(node, given, 1, 1)
            if len(given.order) != 1:
                raise self._typer.error("ARGUMENT_COUNT", "WITHIN GROUP of a percentile has one term", node)
            value, descending = given.order[0].this, bool(given.order[0].args.get("desc"))
            fraction = self._read_fraction(given.nodes[0])
        else:
            self._check_count(node, given, 2, 2)
            value, fraction = given.nodes[0], self._read_fraction(given.nodes[1])
        aggregate = self._typer.aggregate(entry, self._bind_values(node, [value]), distinct=given.distinct)
        return replace(aggregate, parameters=(fraction, descending))

    def _bind_by_time(self, entry: AggregateFunction, node: exp.Expr, given: _Arguments) -> Aggregate:
        self._check_count(node, given, 1, 1)
        time = self._binder.scope.time
        if time is None:
            other = "ARG_MIN" if entry.name == "first" else "ARG_MAX"
            message = (
                f"{node.name.upper()} compares the times of rows; those of a subquery, view or outer join have none; "
                f"write {other}(x, t) with the column t that orders them"
            )
            raise self._typer.error("ROWS_WITHOUT_TIME", message, node)
        operands = [*self._bind_values(node, given.nodes), Operand(given.nodes[0], time)]
        return self._typer.aggregate(entry, operands, distinct=False)

    def _read_separator(self, node: exp.Expr, given: _Arguments) -> str:
        if len(given.nodes) == 1:
            return _SEPARATORS[node.name.casefold()]
        constant = self._binder.bind(given.nodes[1])
        if not isinstance(constant, Literal) or constant.type != STRING or constant.value is None:
            raise self._typer.error("TYPE_MISMATCH", "the separator is a string constant", given.nodes[1])
        return str(constant.value)

    def _bind_list(
        self, entry: AggregateFunction, node: exp.Expr, given: _Arguments, separator: str | None
    ) -> Aggregate:
        """Values in the order of ORDER BY; without it, in the order of the times of their rows, where they have one.

        `separator`: what stands between texts; None for an array.
        """
        (value,) = self._bind_values(node, given.nodes[:1])
        keys = self._bind_order(node, given, value)
        operands = [value, *(Operand(value.node, key.expr) for key in keys)]
        aggregate = self._typer.aggregate(entry, operands, distinct=given.distinct)
        return replace(aggregate, parameters=(separator, *((key.descending, key.nulls_first) for key in keys)))

    def _bind_order(self, node: exp.Expr, given: _Arguments, value: Operand) -> tuple[SortKey, ...]:
        time = self._binder.scope.time
        if given.order is None:
            return () if given.distinct or time is None else (SortKey(time, False, True),)
        keys = bind_sort_keys(given.order, self._make_inner(f"ORDER BY of {node.name.upper()}").bind_value)
        if given.distinct and any(key.expr != value.expr for key in keys):
            message = "with DISTINCT, ORDER BY names the value itself"
            raise self._typer.error("ORDER_BY_NOT_SHOWN", message, node)
        return keys

    def _bind_synonym(self, name: str, node: exp.Expr, given: _Arguments) -> Aggregate:
        """An aggregate that another one computes."""
        self._check_count(node, given, 1, 1)
        aggregate = self._bind_plain(NAMED_AGGREGATES[AGGREGATE_SYNONYMS[name]], node, given)
        if not aggregate.args:
            raise self._typer.error("SYNTAX_ERROR", f"{name.upper()} needs a column or an expression", node)
        (value,) = aggregate.args
        if name in BOOLEAN_AGGREGATES:
            value = self._typer.require_boolean(Operand(given.nodes[0], value), name.upper())
        if name == "count_if":
            value = Call("case", (value, Literal(1, INT), Literal(None, INT)), INT)
        return replace(aggregate, args=(value,), distinct=aggregate.distinct or name == "approx_count_distinct")

    def _bind_user_aggregate(self, name: str, node: exp.Expr, given: _Arguments) -> Aggregate:
        self._check_count(node, given, 1, None)
        result = to_arrow_type(str(getattr(self._binder.user_defined.aggregates[name], "type", "double")))
        args = tuple(operand.expr for operand in self._bind_values(node, given.nodes))
        return Aggregate(name, args, given.distinct, result)

    # ── arguments ────────────────────────────────────────────────────────────────────────────────────────────────

    def _check_allowed(self, node: exp.Expr) -> None:
        where = self._binder.no_aggregates_in
        if where:
            name = node.name.upper()
            instead = f"write {name} in SELECT or HAVING"
            if where.startswith("the argument of"):
                instead = f"name its result in a subquery: FROM (SELECT {name}(...) AS n FROM ... GROUP BY ...)"
            message = f"an aggregate is not allowed in {where}; {instead}"
            raise self._typer.error("AGGREGATE_NOT_ALLOWED", message, node)

    def _check_count(self, node: exp.Expr, given: _Arguments, least: int, most: int | None) -> None:
        self._binder.check_arguments(node, given.nodes, least, most)

    def _bind_values(self, node: exp.Expr, nodes: Sequence[exp.Expr]) -> list[Operand]:
        inner = self._make_inner(f"the argument of {node.name.upper()}")
        return [Operand(each, inner.bind_value(each)) for each in nodes]

    def _make_inner(self, clause: str) -> ExpressionBinder:
        """The binder of what stands inside an aggregate."""
        return replace(self._binder, no_aggregates_in=clause, outputs={}, queries={}, ranks=None)

    def _read_fraction(self, node: exp.Expr) -> float:
        constant = self._binder.bind(node)
        value = constant.value if isinstance(constant, Literal) else None
        if isinstance(value, bool) or value is None or isinstance(value, str) or not 0 <= float(str(value)) <= 1:
            raise self._typer.error("BAD_FRACTION", "the fraction of a percentile is a constant from 0 to 1", node)
        return float(str(value))
