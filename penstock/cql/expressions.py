"""Scalar expressions: sqlglot's trees as typed values, with every implicit cast made explicit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import pyarrow as pa
from sqlglot import exp

from penstock.cql import types
from penstock.cql.dialect import find_span
from penstock.cql.durations import convert_duration
from penstock.cql.errors import CqlError
from penstock.cql.literals import cast_literal, parse_number
from penstock.cql.scope import Scope
from penstock.cql.types import (
    NULL,
    classify_type,
    find_arithmetic_type,
    find_common_type,
    format_type,
    is_numeric,
    to_arrow_type,
)
from penstock.errors import QueryError
from penstock.expr.nodes import BOOL, DOUBLE, INT, INTERVAL, STRING, TIMESTAMP, Aggregate, Call, Expr, Literal, Op

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
_AGGREGATES = ("count", "sum", "avg", "min", "max")
_SCALAR_FUNCTIONS = ("abs", "coalesce", "cast")
_CONSTRUCT_NAMES: dict[type[exp.Expr], str] = {
    exp.Window: "OVER",
    exp.Bracket: "SUBSCRIPT",
    exp.DPipe: "concatenation",
    exp.IntDiv: "DIV",
    exp.NullSafeEQ: "null-safe equality",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}
# What a handled node may carry besides its operands; anything else it carries is refused.
_PLAIN_ARGS = frozenset({"this", "expression", "expressions", "to", "typed", "safe", "table", "unit", "low", "high"})
_EXTRA_ARGS: dict[type[exp.Expr], frozenset[str]] = {
    exp.Column: frozenset({"db", "catalog"}),
    exp.Case: frozenset({"ifs", "default"}),
    exp.Literal: frozenset({"is_string"}),
    exp.Like: frozenset({"negate"}),
}


@dataclass
class ExpressionBinder:
    """Binds the expressions of one clause.

    `no_aggregates_in` names the clause if it may hold none; `outputs` are the SELECT's aliases where the
    clause may use them.
    """

    scope: Scope
    user_aggregates: Mapping[str, type] = field(default_factory=dict)
    no_aggregates_in: str | None = None
    outputs: Mapping[str, Expr] = field(default_factory=dict)

    def bind(self, node: exp.Expr) -> Expr:
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise self.unsupported_error(node, _CONSTRUCT_NAMES.get(type(node), type(node).key.upper()))
        allowed = _PLAIN_ARGS | _EXTRA_ARGS.get(type(node), frozenset())
        for key, value in node.args.items():
            if value and key not in allowed:
                raise self.unsupported_error(node, f"{type(node).key} with {key}".upper())
        return handler(self, node)

    def bind_condition(self, node: exp.Expr, what: str) -> Expr:
        """An expression that must be boolean."""
        return self._require_boolean(self.bind(node), node, what)

    def bind_value(self, node: exp.Expr) -> Expr:
        """An expression whose value is kept: a NULL that nothing has typed becomes a string."""
        expr = self.bind(node)
        return self.cast(expr, STRING, node) if expr.type == NULL else expr

    def error(self, condition: str, message: str, node: exp.Expr) -> CqlError:
        return self.scope.origin.error(condition, message, find_span(node))

    def unsupported_error(self, node: exp.Expr, construct: str, advice: str = "") -> CqlError:
        return self.scope.origin.unsupported_error(construct, find_span(node), advice)

    def mismatch_error(self, what: str, operands: list[tuple[exp.Expr, Expr]], node: exp.Expr) -> CqlError:
        sides = " and ".join(f"{self.source_text(operand)} ({format_type(expr.type)})" for operand, expr in operands)
        return self.error("TYPE_MISMATCH", f"{what} {sides}", node)

    def source_text(self, node: exp.Expr) -> str:
        start, end = find_span(node)
        return " ".join(self.scope.origin.text[start:end].split())

    def cast(self, expr: Expr, target: pa.DataType, node: exp.Expr) -> Expr:
        """The expression in another type: itself if it has it, a new constant if it is one, else a cast."""
        if expr.type == target:
            return expr
        if not isinstance(expr, Literal):
            return Call("cast", (expr,), target)
        literal = cast_literal(expr, target)
        if literal is None:
            raise self.error("CANNOT_CAST", f"{self.source_text(node)} cannot be read as {format_type(target)}", node)
        return literal

    def _require_boolean(self, expr: Expr, node: exp.Expr, what: str) -> Expr:
        if classify_type(expr.type) not in ("boolean", "null"):
            message = f"{what} needs a boolean, but {self.source_text(node)} is {format_type(expr.type)}"
            raise self.error("TYPE_MISMATCH", message, node)
        return self.cast(expr, BOOL, node)

    def _bind_unified(self, nodes: list[exp.Expr], what: str, whole: exp.Expr) -> list[Expr]:
        """The operands in one type."""
        exprs = [self.bind(node) for node in nodes]
        goal = _narrow_type(exprs[0], exprs[1].type) if len(exprs) > 1 else exprs[0].type
        for expr, node in zip(exprs[1:], nodes[1:], strict=True):
            met = self._find_common_type(goal, expr, exprs[0])
            if met is None:
                raise self.mismatch_error(what, [(nodes[0], exprs[0]), (node, expr)], whole)
            goal = met
        goal = STRING if goal == NULL else goal
        return [self.cast(expr, goal, node) for expr, node in zip(exprs, nodes, strict=True)]

    @staticmethod
    def _find_common_type(goal: pa.DataType, expr: Expr, first: Expr) -> pa.DataType | None:
        """`common`, but a string constant next to a time is read as that time."""
        if (
            classify_type(goal) in ("timestamp", "date")
            and isinstance(expr, Literal)
            and classify_type(expr.type) == "string"
        ):
            return goal
        if (
            classify_type(expr.type) in ("timestamp", "date")
            and isinstance(first, Literal)
            and classify_type(goal) == "string"
        ):
            return expr.type
        return find_common_type(goal, _narrow_type(expr, goal))

    def _bind_column(self, node: exp.Expr) -> Expr:
        assert isinstance(node, exp.Column)
        if isinstance(node.this, exp.Star):
            raise self.error("SYNTAX_ERROR", f"{self.source_text(node)} stands only alone in SELECT", node)
        if not node.table and node.name.casefold() in self.outputs and len(self.scope.list_candidates(node.name)) != 1:
            return self.outputs[node.name.casefold()]
        return self.scope.resolve(node)

    def _bind_literal(self, node: exp.Expr) -> Expr:
        return Literal(node.this, STRING) if node.is_string else self._bind_number(node.name, node)

    def _bind_number(self, text: str, node: exp.Expr) -> Literal:
        literal = parse_number(text)
        if literal is None:
            raise self.error("NUMBER_OUT_OF_RANGE", f"{text} does not fit a bigint or a double", node)
        return literal

    def _bind_interval(self, node: exp.Expr) -> Expr:
        amount, unit = node.this, node.args.get("unit")
        if not isinstance(amount, exp.Literal) or not isinstance(unit, exp.Var):
            raise self.error("SYNTAX_ERROR", "an interval is written INTERVAL 5 SECONDS", node)
        try:
            microseconds = convert_duration(amount.name, unit.name, TIMESTAMP)
            return Literal(timedelta(microseconds=microseconds), INTERVAL)
        except QueryError as error:
            raise self.error(error.condition, error.message, node) from None
        except OverflowError:
            raise self.error("INVALID_DURATION", f"{self.source_text(node)} is out of range", node) from None

    def _bind_negation(self, node: exp.Expr) -> Expr:
        inner = node.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return self._bind_number("-" + inner.name, node)
        return self._bind_signed("neg", inner, "- needs a number, not")

    def _bind_signed(self, op: Op, node: exp.Expr, what: str) -> Expr:
        expr = self.bind(node)
        if expr.type == NULL:
            return Literal(None, INT)
        goal = {"integer": INT, "float": DOUBLE}.get(classify_type(expr.type), expr.type)
        if not is_numeric(expr.type) and classify_type(expr.type) != "interval":
            raise self.mismatch_error(what, [(node, expr)], node)
        return Call(op, (self.cast(expr, goal, node),), goal)

    def _bind_arithmetic(self, node: exp.Expr) -> Expr:
        assert isinstance(node, exp.Binary)
        op, (one, two) = _ARITHMETIC[type(node)], (node.left, node.right)
        left, right = self.bind(one), self.bind(two)
        left, right = self._type_null(left, right), self._type_null(right, left)
        if (timed := self._bind_time_arithmetic(op, (one, left), (two, right))) is not None:
            return timed
        left_type, right_type = _narrow_type(left, right.type), _narrow_type(right, left.type)
        goal = find_arithmetic_type(op, left_type, right_type)
        if goal is None:
            raise self.mismatch_error(f"cannot compute {op} of", [(one, left), (two, right)], node)
        if classify_type(goal) == "decimal":
            left_type, right_type = types.as_decimal(left_type), types.as_decimal(right_type)
        else:
            left_type = right_type = goal
        return Call(op, (self.cast(left, left_type, one), self.cast(right, right_type, two)), goal)

    @staticmethod
    def _type_null(expr: Expr, other: Expr) -> Expr:
        if expr.type != NULL:
            return expr
        return Literal(
            None,
            INT
            if other.type == NULL
            else INTERVAL
            if classify_type(other.type) in ("date", "timestamp")
            else other.type,
        )

    def _bind_time_arithmetic(self, op: Op, left: tuple[exp.Expr, Expr], right: tuple[exp.Expr, Expr]) -> Expr | None:
        """Instants and intervals; a date counts as its midnight. None where they have no sum or difference."""
        (one, a), (two, b) = left, right
        a = self.cast(a, TIMESTAMP, one) if classify_type(a.type) == "date" else a
        b = self.cast(b, TIMESTAMP, two) if classify_type(b.type) == "date" else b
        match classify_type(a.type), op, classify_type(b.type):
            case ("timestamp", "-", "timestamp"):
                goal = find_common_type(a.type, b.type)
                return Call("-", (self.cast(a, goal, one), self.cast(b, goal, two)), INTERVAL)
            case ("timestamp", "+" | "-", "interval") | ("interval", "+" | "-", "interval"):
                return Call(op, (a, b), a.type)
            case ("interval", "+", "timestamp"):
                return Call("+", (b, a), b.type)
        return None

    def _bind_comparison(self, node: exp.Expr) -> Expr:
        assert isinstance(node, exp.Binary)
        return self._build_comparison(_COMPARISONS[type(node)], node.left, node.right, node)

    def _build_comparison(self, op: Op, left: exp.Expr, right: exp.Expr, whole: exp.Expr) -> Expr:
        return Call(op, tuple(self._bind_unified([left, right], "cannot compare", whole)), BOOL)

    def _bind_between(self, node: exp.Expr) -> Expr:
        low = self._build_comparison(">=", node.this, node.args["low"], node)
        return Call("and", (low, self._build_comparison("<=", node.this, node.args["high"], node)), BOOL)

    def _bind_connective(self, node: exp.Expr) -> Expr:
        """A chain of AND or OR as a balanced tree, so that a long one is not a deep one."""
        op, connector = _CONNECTIVES[type(node)], type(node)
        terms: list[Expr] = []
        rest = node
        while isinstance(rest, connector) and isinstance(rest, exp.Binary):
            terms.append(self.bind_condition(rest.right, op.upper()))
            rest = rest.left
        terms.append(self.bind_condition(rest, op.upper()))
        return _build_balanced(op, terms[::-1])

    def _bind_not(self, node: exp.Expr) -> Expr:
        return Call("not", (self.bind_condition(node.this, "NOT"),), BOOL)

    def _bind_is_null(self, node: exp.Expr) -> Expr:
        if not isinstance(node.expression, exp.Null):
            raise self.unsupported_error(node, "IS", "only IS NULL and IS NOT NULL are")
        return Call("is_null", (self.bind_value(node.this),), BOOL)

    def _bind_in(self, node: exp.Expr) -> Expr:
        if not node.expressions:
            raise self.error("SYNTAX_ERROR", "IN needs at least one value in parentheses", node)
        return Call("in", tuple(self._bind_unified([node.this, *node.expressions], "cannot compare", node)), BOOL)

    def _bind_like(self, node: exp.Expr) -> Expr:
        text, pattern = self.bind(node.this), self.bind(node.expression)
        text, pattern = (Literal(None, STRING) if each.type == NULL else each for each in (text, pattern))
        if text.type != STRING or pattern.type != STRING:
            raise self.mismatch_error("LIKE needs strings, not", [(node.this, text), (node.expression, pattern)], node)
        if not isinstance(pattern, Literal) or pattern.value is None:
            raise self.unsupported_error(node.expression, "LIKE pattern", "it must be a string constant")
        like = Call("like", (text, pattern), BOOL)
        return Call("not", (like,), BOOL) if node.args.get("negate") else like

    def _bind_case(self, node: exp.Expr) -> Expr:
        branches, operand, default = node.args["ifs"], node.this, node.args.get("default")
        conditions = [
            self._build_comparison("=", operand, branch.this, branch)
            if operand
            else self.bind_condition(branch.this, "WHEN")
            for branch in branches
        ]
        results = [branch.args["true"] for branch in branches]
        values = self._bind_unified([*results, default] if default else results, "CASE has branches", node)
        otherwise = values[len(branches)] if default else Literal(None, values[0].type)
        paired = [arg for pair in zip(conditions, values, strict=False) for arg in pair]
        return Call("case", (*paired, otherwise), otherwise.type)

    def _bind_cast(self, node: exp.Expr) -> Expr:
        expr, to = self.bind(node.this), node.args["to"]
        try:
            target = to_arrow_type(to.sql("spark"))
        except QueryError as error:
            raise self.error(error.condition, error.message, to) from None
        if not types.can_cast(expr.type, target):
            raise self.mismatch_error(f"cannot cast to {format_type(target)}:", [(node.this, expr)], node)
        return self.cast(expr, target, node.this)

    def _bind_function(self, node: exp.Expr) -> Expr:
        name = node.name.casefold()
        match name:
            case "abs":
                (argument,) = self._check_arguments(node, 1, 1)
                return self._bind_signed("abs", argument, "ABS needs a number, not")
            case "coalesce":
                args = self._bind_unified(self._check_arguments(node, 1), "COALESCE has arguments", node)
                return Call("coalesce", tuple(args), args[0].type)
        if name in _AGGREGATES or name in self.user_aggregates:
            return self._bind_aggregate(name, node)
        known = [*_AGGREGATES, *_SCALAR_FUNCTIONS, *self.user_aggregates]
        message = f"unknown function {node.name}; known are {', '.join(each.upper() for each in known)}"
        raise self.error("UNKNOWN_FUNCTION", message, node)

    def _check_arguments(self, node: exp.Expr, least: int, most: int | None = None) -> list[exp.Expr]:
        found = len(node.expressions)
        if found < least or (most is not None and found > most):
            needed = f"{least}" if most == least else f"at least {least}"
            raise self.error("ARGUMENT_COUNT", f"{node.name.upper()} takes {needed} argument(s), found {found}", node)
        return list(node.expressions)

    def _bind_aggregate(self, name: str, node: exp.Expr) -> Expr:
        if self.no_aggregates_in:
            message = (
                f"an aggregate cannot stand in {self.no_aggregates_in}; {node.name.upper()} can in SELECT and HAVING"
            )
            raise self.error("AGGREGATE_NOT_ALLOWED", message, node)
        arguments = self._check_arguments(node, 1, 1 if name in _AGGREGATES else None)
        if name == "count" and isinstance(arguments[0], exp.Star):
            return Aggregate("count", (), False, INT)
        distinct = isinstance(arguments[0], exp.Distinct)
        if distinct:
            arguments = list(arguments[0].expressions)
            if name in _AGGREGATES and len(arguments) != 1:
                raise self.unsupported_error(node, "DISTINCT of several columns")
        inner = ExpressionBinder(
            self.scope, self.user_aggregates, no_aggregates_in=f"the argument of {node.name.upper()}"
        )
        args = tuple(inner.bind_value(argument) for argument in arguments)
        if name in self.user_aggregates and name not in _AGGREGATES:
            return Aggregate(
                name, args, distinct, to_arrow_type(str(getattr(self.user_aggregates[name], "type", "double")))
            )
        return self._bind_builtin(name, args[0], distinct, arguments[0])

    def _bind_builtin(self, name: str, arg: Expr, distinct: bool, node: exp.Expr) -> Expr:
        if name == "count":
            return Aggregate(name, (arg,), distinct, INT)
        if name in ("min", "max"):
            return Aggregate(name, (arg,), distinct, arg.type)
        if not is_numeric(arg.type):
            raise self.mismatch_error(f"{name.upper()} needs a number, not", [(node, arg)], node)
        arg = self.cast(arg, {"integer": INT, "float": DOUBLE}.get(classify_type(arg.type), arg.type), node)
        total = arg.type if classify_type(arg.type) != "decimal" else pa.decimal128(types.MAX_PRECISION, arg.type.scale)
        return Aggregate(name, (arg,), distinct, DOUBLE if name == "avg" else total)


def _narrow_type(expr: Expr, other: pa.DataType) -> pa.DataType:
    """The type of an operand; an integer constant that meets a decimal is no wider than its digits."""
    if (
        isinstance(expr, Literal)
        and isinstance(expr.value, int)
        and classify_type(expr.type) == "integer"
        and classify_type(other) == "decimal"
    ):
        return pa.decimal128(len(str(expr.value).lstrip("-")), 0)
    return expr.type


def _build_balanced(op: Op, terms: list[Expr]) -> Expr:
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return Call(op, (_build_balanced(op, terms[:half]), _build_balanced(op, terms[half:])), BOOL)


_HANDLERS: dict[type[exp.Expr], Callable[[ExpressionBinder, exp.Expr], Expr]] = {
    exp.Column: ExpressionBinder._bind_column,
    exp.Literal: ExpressionBinder._bind_literal,
    exp.Boolean: lambda _, node: Literal(bool(node.this), BOOL),
    exp.Null: lambda _, __: Literal(None, NULL),
    exp.Interval: ExpressionBinder._bind_interval,
    exp.Paren: lambda binder, node: binder.bind(node.this),
    exp.Neg: ExpressionBinder._bind_negation,
    exp.Not: ExpressionBinder._bind_not,
    exp.Is: ExpressionBinder._bind_is_null,
    exp.In: ExpressionBinder._bind_in,
    exp.Between: ExpressionBinder._bind_between,
    exp.Like: ExpressionBinder._bind_like,
    exp.Case: ExpressionBinder._bind_case,
    exp.Cast: ExpressionBinder._bind_cast,
    exp.TryCast: ExpressionBinder._bind_cast,
    exp.Anonymous: ExpressionBinder._bind_function,
    **dict.fromkeys(_ARITHMETIC, ExpressionBinder._bind_arithmetic),
    **dict.fromkeys(_COMPARISONS, ExpressionBinder._bind_comparison),
    **dict.fromkeys(_CONNECTIVES, ExpressionBinder._bind_connective),
}
