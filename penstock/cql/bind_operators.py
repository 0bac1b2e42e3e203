"""Literals, operators, predicates and CASE, as typed expressions."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.cql import advice
from penstock.cql.durations import convert_duration, count_months
from penstock.cql.literals import parse_number
from penstock.cql.null_safe import build_null_safe_equality
from penstock.cql.operands import Operand, type_null
from penstock.errors import QueryError
from penstock.expr import (
    BOOL,
    FUNCTIONS,
    INT,
    INTERVAL,
    NULL,
    STRING,
    TIMESTAMP,
    Call,
    Expr,
    Literal,
    Op,
    classify_type,
    is_instant,
    is_nested,
)

if TYPE_CHECKING:
    from penstock.cql.expressions import ExpressionBinder, Handler

_ARITHMETIC: dict[type[exp.Expr], Op] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_COMPARISONS: dict[type[exp.Expr], Op] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_CONNECTIVES: dict[type[exp.Expr], Op] = {exp.And: "and", exp.Or: "or"}


def _bind_literal(binder: ExpressionBinder, node: exp.Expr) -> Expr:
    return Literal(node.this, STRING) if node.is_string else _bind_number(binder, node.name, node)


def _bind_number(binder: ExpressionBinder, text: str, node: exp.Expr) -> Literal:
    literal = parse_number(text)
    if literal is None:
        raise binder.typer.error("NUMBER_OUT_OF_RANGE", f"{text} does not fit a bigint or a double", node)
    return literal


def _bind_interval(binder: ExpressionBinder, node: exp.Expr) -> Expr:
    amount, unit = node.this, node.args.get("unit")
    if not isinstance(amount, exp.Literal) or not isinstance(unit, exp.Var):
        raise binder.typer.error("SYNTAX_ERROR", "an interval is written INTERVAL 5 SECONDS", node)
    try:
        microseconds = convert_duration(amount.name, unit.name, TIMESTAMP)
        return Literal(timedelta(microseconds=microseconds), INTERVAL)
    except QueryError as error:
        raise binder.typer.error(error.condition, error.message, node) from None
    except OverflowError:
        raise binder.typer.error(
            "INVALID_DURATION", f"{binder.typer.source_text(node)} is out of range", node
        ) from None


def _bind_negation(binder: ExpressionBinder, node: exp.Expr) -> Expr:
    inner = node.this
    if isinstance(inner, exp.Literal) and not inner.is_string:
        return _bind_number(binder, "-" + inner.name, node)
    return binder.typer.call(FUNCTIONS["neg"], binder.bind_all([inner]), inner)


def _bind_arithmetic(binder: ExpressionBinder, node: exp.Binary) -> Expr:
    function = FUNCTIONS[_ARITHMETIC[type(node)]]
    if (months := count_months(node.right)) is not None and function.name in "+-":
        return _add_months(binder, node.left, months if function.name == "+" else -months, node)
    if (months := count_months(node.left)) is not None and function.name == "+":
        return _add_months(binder, node.right, months, node)
    left, right = binder.bind_all([node.left, node.right])
    left, right = type_null(left, right), type_null(right, left)
    if function.name == "+" and classify_type(left.expr.type) == "interval" and is_instant(right.expr.type):
        left, right = right, left
    return binder.typer.call(function, [left, right], node)


def _add_months(binder: ExpressionBinder, node: exp.Expr, months: int, whole: exp.Expr) -> Expr:
    operands = [Operand(node, binder.bind(node)), Operand(node, Literal(months, INT))]
    return binder.typer.call(FUNCTIONS["add_months"], operands, whole)


def _bind_call(binder: ExpressionBinder, name: str, *nodes: exp.Expr) -> Expr:
    """The call of a function that is written as an operator."""
    return binder.typer.call(FUNCTIONS[name], binder.bind_all(nodes), nodes[0].parent or nodes[0])


def _bind_null_safe(binder: ExpressionBinder, node: exp.Binary) -> Expr:
    """`a <=> b` as equalities, which joins can use as keys: both are NULL or neither, and the values are equal."""
    operands = binder.bind_all([node.left, node.right])
    if any(is_nested(operand.expr.type) for operand in operands):
        raise binder.typer.mismatch_error("cannot compare", operands, node)
    left, right = binder.typer.unify(operands, "cannot compare", node)
    return build_null_safe_equality(left, right)


def _bind_comparison(binder: ExpressionBinder, node: exp.Binary) -> Expr:
    return _build_comparison(binder, _COMPARISONS[type(node)], node.left, node.right, node)


def _build_comparison(binder: ExpressionBinder, op: Op, left: exp.Expr, right: exp.Expr, whole: exp.Expr) -> Expr:
    return binder.typer.call(FUNCTIONS[op], binder.bind_all([left, right]), whole)


def _bind_between(binder: ExpressionBinder, node: exp.Expr) -> Expr:
    low = _build_comparison(binder, ">=", node.this, node.args["low"], node)
    return Call("and", (low, _build_comparison(binder, "<=", node.this, node.args["high"], node)), BOOL)


def _bind_connective(binder: ExpressionBinder, node: exp.Expr) -> Expr:
    """A chain of AND or OR as a balanced tree, so that a long chain does not make a deep tree."""
    op, connector = _CONNECTIVES[type(node)], type(node)
    terms: list[Expr] = []
    left = node
    while isinstance(left, connector) and isinstance(left, exp.Binary):
        terms.append(binder.bind_condition(left.right, op.upper()))
        left = left.left
    terms.append(binder.bind_condition(left, op.upper()))
    return _build_balanced(op, terms[::-1])


def _bind_not(binder: ExpressionBinder, node: exp.Expr) -> Expr:
    return Call("not", (binder.bind_condition(node.this, "NOT"),), BOOL)


def _bind_is_null(binder: ExpressionBinder, node: exp.Expr) -> Expr:
    if not isinstance(node.expression, exp.Null):
        raise binder.typer.unsupported_error(node, "IS", "only IS NULL and IS NOT NULL are")
    return Call("is_null", (binder.bind_value(node.this),), BOOL)


def _bind_query(binder: ExpressionBinder, node: exp.Expr) -> Expr:
    if id(node) not in binder.queries:
        raise binder.typer.unsupported_error(node, "SUBQUERY", advice.SUBQUERY_IN_EXPRESSION)
    return binder.queries[id(node)]


def _bind_in(binder: ExpressionBinder, node: exp.Expr) -> Expr:
    if len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Placeholder):
        return _bind_query(binder, node)
    if not node.expressions:
        raise binder.typer.error("SYNTAX_ERROR", "IN needs at least one value in parentheses", node)
    return binder.typer.call(FUNCTIONS["in"], binder.bind_all([node.this, *node.expressions]), node)


def _bind_like(binder: ExpressionBinder, node: exp.Expr) -> Expr:
    operands = [
        Operand(each.node, Literal(None, STRING)) if each.expr.type == NULL else each
        for each in binder.bind_all([node.this, node.expression])
    ]
    like = binder.typer.call(FUNCTIONS["like"], operands, node)
    pattern = like.args[1]
    if not isinstance(pattern, Literal) or pattern.value is None:
        raise binder.typer.unsupported_error(node.expression, "LIKE pattern", "it must be a string constant")
    return Call("not", (like,), BOOL) if node.args.get("negate") else like


def _bind_case(binder: ExpressionBinder, node: exp.Expr) -> Expr:
    branches, operand, default = node.args["ifs"], node.this, node.args.get("default")
    conditions = [
        _build_comparison(binder, "=", operand, branch.this, branch)
        if operand
        else binder.bind_condition(branch.this, "WHEN")
        for branch in branches
    ]
    results = [branch.args["true"] for branch in branches]
    operands = binder.bind_all([*results, default] if default else results)
    values = binder.typer.unify(operands, FUNCTIONS["case"].mismatch, node)
    otherwise = values[len(branches)] if default else Literal(None, values[0].type)
    paired = [arg for pair in zip(conditions, values, strict=False) for arg in pair]
    return Call("case", (*paired, otherwise), otherwise.type)


def _build_balanced(op: Op, terms: list[Expr]) -> Expr:
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return Call(op, (_build_balanced(op, terms[:half]), _build_balanced(op, terms[half:])), BOOL)


OPERATOR_HANDLERS: dict[type[exp.Expr], Handler] = {
    exp.Literal: _bind_literal,
    exp.Boolean: lambda _, node: Literal(bool(node.this), BOOL),
    exp.Null: lambda _, __: Literal(None, NULL),
    exp.Interval: _bind_interval,
    exp.Paren: lambda binder, node: binder.bind(node.this),
    exp.Neg: _bind_negation,
    exp.Not: _bind_not,
    exp.Is: _bind_is_null,
    exp.In: _bind_in,
    exp.Exists: _bind_query,
    exp.Placeholder: _bind_query,
    exp.Between: _bind_between,
    exp.Like: _bind_like,
    exp.Case: _bind_case,
    exp.DPipe: lambda binder, node: _bind_call(binder, "concat", node.left, node.right),
    exp.RegexpLike: lambda binder, node: _bind_call(binder, "regexp_like", node.this, node.expression),
    exp.NullSafeEQ: _bind_null_safe,
    exp.NullSafeNEQ: lambda binder, node: Call("not", (_bind_null_safe(binder, node),), BOOL),
    **dict.fromkeys(_ARITHMETIC, _bind_arithmetic),
    **dict.fromkeys(_COMPARISONS, _bind_comparison),
    **dict.fromkeys(_CONNECTIVES, _bind_connective),
}
