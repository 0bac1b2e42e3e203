"""Calls of functions, casts and window functions, as typed expressions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.cql import advice
from penstock.cql.aggregate_binder import AggregateBinder
from penstock.cql.casts import bind_cast
from penstock.cql.errors import list_similar
from penstock.cql.grouping import GROUPING
from penstock.cql.operands import Operand
from penstock.cql.types import to_arrow_type
from penstock.errors import QueryError
from penstock.expr import (
    AGGREGATE_SYNONYMS,
    FUNCTIONS,
    INT,
    NAMED_AGGREGATES,
    NAMED_FUNCTIONS,
    Call,
    Expr,
    UserFunction,
    find_argument_problem,
)

if TYPE_CHECKING:
    from penstock.cql.expressions import ExpressionBinder, Handler


def _bind_cast(binder: ExpressionBinder, node: exp.Expr) -> Expr:
    operand, to = Operand(node.this, binder.bind(node.this)), node.args["to"]
    try:
        target = to_arrow_type(to.sql("spark"))
    except QueryError as error:
        raise binder.typer.error(error.condition, error.message, to) from None
    return bind_cast(binder.typer, operand, target, node)


def _bind_function(binder: ExpressionBinder, node: exp.Expr) -> Expr:
    name = node.name.casefold()
    function = FUNCTIONS[NAMED_FUNCTIONS[name]] if name in NAMED_FUNCTIONS else None
    if function is not None and function.arity is not None and (node.expressions or name not in advice.FUNCTIONS):
        binder.check_arguments(node, node.expressions, *function.arity)
        return binder.typer.call(function, binder.bind_all(node.expressions), node)
    if name in ("grouping", "grouping_id"):
        return _bind_grouping(binder, node)
    if name in binder.user_defined.functions:
        return _bind_user_function(binder, binder.user_defined.functions[name], node)
    if binder.is_aggregate(name):
        return AggregateBinder(binder).bind(node)
    if name in advice.FUNCTIONS:
        raise binder.typer.unsupported_error(node, *advice.FUNCTIONS[name])
    known = [*NAMED_AGGREGATES, *AGGREGATE_SYNONYMS, *NAMED_FUNCTIONS, "cast", "grouping", *binder.user_defined]
    near = list_similar(name, known)
    hint = f"did you mean {' or '.join(each.upper() for each in near)}?" if near else "docs/functions.md lists all"
    raise binder.typer.error("UNKNOWN_FUNCTION", f"unknown function {node.name}; {hint}", node)


def _bind_user_function(binder: ExpressionBinder, user: UserFunction, node: exp.Expr) -> Expr:
    binder.check_arguments(node, node.expressions, 1, None)
    args = [binder.bind_value(argument) for argument in node.expressions]
    problem = find_argument_problem(user, len(args))
    if problem is not None:
        message = f"{user.name} cannot be called with {len(args)} argument(s): {problem}"
        raise binder.typer.error("ARGUMENT_COUNT", message, node)
    return Call(user.name, tuple(args), user.type, user)


def _bind_grouping(binder: ExpressionBinder, node: exp.Expr) -> Expr:
    """Which keys are not in the set of a row; the SELECT replaces it by a constant for each set."""
    if binder.no_aggregates_in is not None:
        message = f"{node.name.upper()} is not allowed in {binder.no_aggregates_in}; write it in SELECT or HAVING"
        raise binder.typer.error("AGGREGATE_NOT_ALLOWED", message, node)
    binder.check_arguments(node, node.expressions, 0 if node.name.casefold() == "grouping_id" else 1, None)
    return Call(GROUPING, tuple(binder.bind(each) for each in node.expressions), INT)


def _bind_within_group(binder: ExpressionBinder, node: exp.Expr) -> Expr:
    call, name = node.this, node.this.name.casefold()
    if not isinstance(call, exp.Anonymous) or not binder.is_aggregate(name):
        raise binder.typer.error("SYNTAX_ERROR", "WITHIN GROUP comes after a percentile or LISTAGG", node)
    return AggregateBinder(binder).bind(call, node.expression)


def _bind_window(binder: ExpressionBinder, node: exp.Expr) -> Expr:
    if binder.ranks is None:
        where = binder.no_aggregates_in or "HAVING"
        message = f"a window function is not allowed in {where}; write QUALIFY, or WHERE around a subquery"
        raise binder.typer.error("WINDOW_FUNCTION_NOT_ALLOWED", message, node)
    inner = replace(binder, ranks=None, no_aggregates_in=None)
    return binder.ranks.bind(node, binder.typer, inner.bind_value, inner.bind)


CALL_HANDLERS: dict[type[exp.Expr], Handler] = {
    exp.Cast: _bind_cast,
    exp.TryCast: _bind_cast,
    exp.Anonymous: _bind_function,
    exp.Filter: lambda binder, node: AggregateBinder(binder).bind_filter(node),
    exp.WithinGroup: _bind_within_group,
    exp.Window: _bind_window,
}
