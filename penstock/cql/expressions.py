"""Scalar expressions: sqlglot's trees as typed values, with every implicit cast made explicit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, TypeVar

from sqlglot import exp

from penstock.cql import advice
from penstock.cql.aggregate_binder import AggregateBinder
from penstock.cql.casts import bind_cast
from penstock.cql.catalog import UserDefined
from penstock.cql.durations import convert_duration, count_months
from penstock.cql.errors import list_similar
from penstock.cql.grouping import GROUPING
from penstock.cql.literals import parse_number
from penstock.cql.null_safe import build_null_safe_equality
from penstock.cql.operands import Operand, OperandTyper, type_null
from penstock.cql.over import WindowCalls
from penstock.cql.scope import Scope
from penstock.cql.types import format_type, to_arrow_type
from penstock.errors import QueryError
from penstock.expr import (
    AGGREGATE_SYNONYMS,
    BOOL,
    FUNCTIONS,
    INT,
    INTERVAL,
    NAMED_AGGREGATES,
    NAMED_FUNCTIONS,
    NULL,
    STRING,
    TIMESTAMP,
    Call,
    Expr,
    Literal,
    Op,
    UserFunction,
    classify_type,
    find_argument_problem,
    is_instant,
    is_nested,
)

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
_CONSTRUCT_NAMES: dict[type[exp.Expr], str] = {
    exp.Window: "OVER",
    exp.IntDiv: "DIV",
}
# The arguments that a node can have besides its operands. A node with any other argument is refused.
_PLAIN_ARGS = frozenset({"this", "expression", "expressions", "to", "typed", "safe", "table", "unit", "low", "high"})
_EXTRA_ARGS: dict[type[exp.Expr], frozenset[str]] = {
    exp.Column: frozenset({"db", "catalog"}),
    exp.Case: frozenset({"ifs", "default"}),
    exp.Literal: frozenset({"is_string"}),
    exp.Like: frozenset({"negate"}),
    exp.Window: frozenset({"partition_by", "order", "spec", "over", "alias"}),
}


@dataclass
class ExpressionBinder:
    """Binds the expressions of one clause.

    `no_aggregates_in` names the clause if aggregates are not allowed in it. `outputs` are the aliases of SELECT, if the
    clause can use them.
    """

    scope: Scope
    user_defined: UserDefined = field(default_factory=UserDefined)
    no_aggregates_in: str | None = None
    outputs: Mapping[str, Expr] = field(default_factory=dict)
    queries: Mapping[int, Expr] = field(default_factory=dict)
    """The values of subqueries, by the identity of their nodes."""
    ranks: WindowCalls | None = None
    """Collects window functions; None if they are not allowed."""

    @cached_property
    def typer(self) -> OperandTyper:
        return OperandTyper(self.scope.origin)

    def bind(self, node: exp.Expr) -> Expr:
        handler = _HANDLERS.get(type(node))
        if handler is None:
            construct = _CONSTRUCT_NAMES.get(type(node), type(node).key.upper())
            raise self.typer.unsupported_error(node, construct, advice.CONSTRUCTS.get(construct, ""))
        allowed = _PLAIN_ARGS | _EXTRA_ARGS.get(type(node), frozenset())
        for key, value in node.args.items():
            if value and key not in allowed:
                raise self.typer.unsupported_error(node, f"{type(node).key} with {key}".upper())
        return handler(self, node)

    def bind_condition(self, node: exp.Expr, what: str) -> Expr:
        """An expression that must be boolean."""
        return self.typer.require_boolean(Operand(node, self.bind(node)), what)

    def bind_value(self, node: exp.Expr) -> Expr:
        """An expression whose value is kept: a NULL without a type becomes a string."""
        expr = self.bind(node)
        return self.typer.cast(Operand(node, expr), STRING) if expr.type == NULL else expr

    def _bind_all(self, nodes: Iterable[exp.Expr]) -> list[Operand]:
        return [Operand(node, self.bind(node)) for node in nodes]

    def _bind_column(self, node: exp.Column) -> Expr:
        if isinstance(node.this, exp.Star):
            raise self.typer.error(
                "SYNTAX_ERROR", f"{self.typer.source_text(node)} is only allowed alone in SELECT", node
            )
        if node.table and (path := self._bind_path(node)) is not None:
            return path
        if not node.table and node.name.casefold() in self.outputs and len(self.scope.list_candidates(node.name)) != 1:
            return self.outputs[node.name.casefold()]
        return self.scope.resolve(node)

    def _bind_path(self, node: exp.Column) -> Expr | None:
        """`s.a.b` or `t.s.a.b`, a field of a struct; None for `t.column`. An alias of FROM comes before a column."""
        parts = list(node.parts)
        own = 2 if self.scope.has_alias(parts[0].name) else 1
        if len(parts) <= own or (own == 1 and not self.scope.has_struct(parts[0].name)):
            return None
        base = exp.Column(this=parts[own - 1].copy(), table=parts[0].copy() if own == 2 else None)
        found = self.scope.resolve(base)
        for part in parts[own:]:
            found = self._read_field(found, part.name, node)
        return found

    def _bind_dot(self, node: exp.Expr) -> Expr:
        if not isinstance(node.expression, exp.Identifier):
            raise self.typer.unsupported_error(node, "DOT", "the name of a field follows the dot")
        return self._read_field(self.bind(node.this), node.expression.name, node)

    def _read_field(self, whole: Expr, name: str, node: exp.Expr) -> Expr:
        fields = list(whole.type) if classify_type(whole.type) == "struct" else []
        field = next((each for each in fields if each.name.casefold() == name.casefold()), None)
        if field is None:
            known = ", ".join(each.name for each in fields)
            has = f"it has {known}" if fields else f"it is {format_type(whole.type)}, not a struct"
            message = f"{self.typer.source_text(node)}: unknown field {name}; {has}"
            raise self.typer.error("UNKNOWN_COLUMN", message, node)
        return Call("field", (whole, Literal(field.name, STRING)), field.type)

    def _bind_subscript(self, node: exp.Expr) -> Expr:
        base = node.this
        named = isinstance(base, exp.Column) and not base.table and base.name.casefold() == "array"
        if named and not self.scope.list_candidates(base.name):
            return self._bind_array(node)
        if len(node.expressions) != 1:
            raise self.typer.unsupported_error(node, "SUBSCRIPT", "write one index, as in a[0]")
        operands = self._bind_all([node.this, node.expressions[0]])
        return self.typer.call(FUNCTIONS["subscript"], operands, node)

    def _bind_array(self, node: exp.Expr) -> Expr:
        if not node.expressions:
            message = "an empty array has no type; write CAST(NULL AS ARRAY<INT>), or at least one element"
            raise self.typer.error("SYNTAX_ERROR", message, node)
        return self.typer.call(FUNCTIONS["array"], self._bind_all(node.expressions), node)

    def _bind_literal(self, node: exp.Expr) -> Expr:
        return Literal(node.this, STRING) if node.is_string else self._bind_number(node.name, node)

    def _bind_number(self, text: str, node: exp.Expr) -> Literal:
        literal = parse_number(text)
        if literal is None:
            raise self.typer.error("NUMBER_OUT_OF_RANGE", f"{text} does not fit a bigint or a double", node)
        return literal

    def _bind_interval(self, node: exp.Expr) -> Expr:
        amount, unit = node.this, node.args.get("unit")
        if not isinstance(amount, exp.Literal) or not isinstance(unit, exp.Var):
            raise self.typer.error("SYNTAX_ERROR", "an interval is written INTERVAL 5 SECONDS", node)
        try:
            microseconds = convert_duration(amount.name, unit.name, TIMESTAMP)
            return Literal(timedelta(microseconds=microseconds), INTERVAL)
        except QueryError as error:
            raise self.typer.error(error.condition, error.message, node) from None
        except OverflowError:
            raise self.typer.error(
                "INVALID_DURATION", f"{self.typer.source_text(node)} is out of range", node
            ) from None

    def _bind_negation(self, node: exp.Expr) -> Expr:
        inner = node.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return self._bind_number("-" + inner.name, node)
        return self.typer.call(FUNCTIONS["neg"], self._bind_all([inner]), inner)

    def _bind_arithmetic(self, node: exp.Binary) -> Expr:
        function = FUNCTIONS[_ARITHMETIC[type(node)]]
        if (months := count_months(node.right)) is not None and function.name in "+-":
            return self._add_months(node.left, months if function.name == "+" else -months, node)
        if (months := count_months(node.left)) is not None and function.name == "+":
            return self._add_months(node.right, months, node)
        left, right = self._bind_all([node.left, node.right])
        left, right = type_null(left, right), type_null(right, left)
        if function.name == "+" and classify_type(left.expr.type) == "interval" and is_instant(right.expr.type):
            left, right = right, left
        return self.typer.call(function, [left, right], node)

    def _add_months(self, node: exp.Expr, months: int, whole: exp.Expr) -> Expr:
        operands = [Operand(node, self.bind(node)), Operand(node, Literal(months, INT))]
        return self.typer.call(FUNCTIONS["add_months"], operands, whole)

    def _bind_call(self, name: str, *nodes: exp.Expr) -> Expr:
        """The call of a function that is written as an operator."""
        return self.typer.call(FUNCTIONS[name], self._bind_all(nodes), nodes[0].parent or nodes[0])

    def _bind_null_safe(self, node: exp.Binary) -> Expr:
        """`a <=> b` as equalities, which joins can use as keys: both are NULL or neither, and the values are equal."""
        operands = self._bind_all([node.left, node.right])
        if any(is_nested(operand.expr.type) for operand in operands):
            raise self.typer.mismatch_error("cannot compare", operands, node)
        left, right = self.typer.unify(operands, "cannot compare", node)
        return build_null_safe_equality(left, right)

    def _bind_comparison(self, node: exp.Binary) -> Expr:
        return self._build_comparison(_COMPARISONS[type(node)], node.left, node.right, node)

    def _build_comparison(self, op: Op, left: exp.Expr, right: exp.Expr, whole: exp.Expr) -> Expr:
        return self.typer.call(FUNCTIONS[op], self._bind_all([left, right]), whole)

    def _bind_between(self, node: exp.Expr) -> Expr:
        low = self._build_comparison(">=", node.this, node.args["low"], node)
        return Call("and", (low, self._build_comparison("<=", node.this, node.args["high"], node)), BOOL)

    def _bind_connective(self, node: exp.Expr) -> Expr:
        """A chain of AND or OR as a balanced tree, so that a long chain does not make a deep tree."""
        op, connector = _CONNECTIVES[type(node)], type(node)
        terms: list[Expr] = []
        left = node
        while isinstance(left, connector) and isinstance(left, exp.Binary):
            terms.append(self.bind_condition(left.right, op.upper()))
            left = left.left
        terms.append(self.bind_condition(left, op.upper()))
        return _build_balanced(op, terms[::-1])

    def _bind_not(self, node: exp.Expr) -> Expr:
        return Call("not", (self.bind_condition(node.this, "NOT"),), BOOL)

    def _bind_is_null(self, node: exp.Expr) -> Expr:
        if not isinstance(node.expression, exp.Null):
            raise self.typer.unsupported_error(node, "IS", "only IS NULL and IS NOT NULL are")
        return Call("is_null", (self.bind_value(node.this),), BOOL)

    def _bind_query(self, node: exp.Expr) -> Expr:
        if id(node) not in self.queries:
            raise self.typer.unsupported_error(node, "SUBQUERY", advice.SUBQUERY_IN_EXPRESSION)
        return self.queries[id(node)]

    def _bind_predicate(self, node: exp.Expr) -> Expr:
        return self._bind_query(node)

    def _bind_in(self, node: exp.Expr) -> Expr:
        if len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Placeholder):
            return self._bind_predicate(node)
        if not node.expressions:
            raise self.typer.error("SYNTAX_ERROR", "IN needs at least one value in parentheses", node)
        return self.typer.call(FUNCTIONS["in"], self._bind_all([node.this, *node.expressions]), node)

    def _bind_like(self, node: exp.Expr) -> Expr:
        operands = [
            Operand(each.node, Literal(None, STRING)) if each.expr.type == NULL else each
            for each in self._bind_all([node.this, node.expression])
        ]
        like = self.typer.call(FUNCTIONS["like"], operands, node)
        pattern = like.args[1]
        if not isinstance(pattern, Literal) or pattern.value is None:
            raise self.typer.unsupported_error(node.expression, "LIKE pattern", "it must be a string constant")
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
        operands = self._bind_all([*results, default] if default else results)
        values = self.typer.unify(operands, FUNCTIONS["case"].mismatch, node)
        otherwise = values[len(branches)] if default else Literal(None, values[0].type)
        paired = [arg for pair in zip(conditions, values, strict=False) for arg in pair]
        return Call("case", (*paired, otherwise), otherwise.type)

    def _bind_cast(self, node: exp.Expr) -> Expr:
        operand, to = Operand(node.this, self.bind(node.this)), node.args["to"]
        try:
            target = to_arrow_type(to.sql("spark"))
        except QueryError as error:
            raise self.typer.error(error.condition, error.message, to) from None
        return bind_cast(self.typer, operand, target, node)

    def _bind_function(self, node: exp.Expr) -> Expr:
        name = node.name.casefold()
        function = FUNCTIONS[NAMED_FUNCTIONS[name]] if name in NAMED_FUNCTIONS else None
        if function is not None and function.arity is not None and (node.expressions or name not in advice.FUNCTIONS):
            self.check_arguments(node, node.expressions, *function.arity)
            return self.typer.call(function, self._bind_all(node.expressions), node)
        if name in ("grouping", "grouping_id"):
            return self._bind_grouping(node)
        if name in self.user_defined.functions:
            return self._bind_user_function(self.user_defined.functions[name], node)
        if self._is_aggregate(name):
            return AggregateBinder(self).bind(node)
        if name in advice.FUNCTIONS:
            raise self.typer.unsupported_error(node, *advice.FUNCTIONS[name])
        known = [*NAMED_AGGREGATES, *AGGREGATE_SYNONYMS, *NAMED_FUNCTIONS, "cast", "grouping", *self.user_defined]
        near = list_similar(name, known)
        hint = f"did you mean {' or '.join(each.upper() for each in near)}?" if near else "docs/functions.md lists all"
        raise self.typer.error("UNKNOWN_FUNCTION", f"unknown function {node.name}; {hint}", node)

    def _bind_user_function(self, user: UserFunction, node: exp.Expr) -> Expr:
        self.check_arguments(node, node.expressions, 1, None)
        args = [self.bind_value(argument) for argument in node.expressions]
        problem = find_argument_problem(user, len(args))
        if problem is not None:
            message = f"{user.name} cannot be called with {len(args)} argument(s): {problem}"
            raise self.typer.error("ARGUMENT_COUNT", message, node)
        return Call(user.name, tuple(args), user.type, user)

    def check_arguments(self, node: exp.Expr, given: Sequence[exp.Expr], least: int, most: int | None) -> None:
        """Refuse a call with too few or too many arguments."""
        found = len(given)
        if found < least or (most is not None and found > most):
            needed = f"{least}" if most == least else f"at least {least}" if most is None else f"{least} to {most}"
            raise self.typer.error(
                "ARGUMENT_COUNT", f"{node.name.upper()} takes {needed} argument(s), found {found}", node
            )

    def _bind_grouping(self, node: exp.Expr) -> Expr:
        """Which keys are not in the set of a row; the SELECT replaces it by a constant for each set."""
        if self.no_aggregates_in is not None:
            message = f"{node.name.upper()} is not allowed in {self.no_aggregates_in}; write it in SELECT or HAVING"
            raise self.typer.error("AGGREGATE_NOT_ALLOWED", message, node)
        self.check_arguments(node, node.expressions, 0 if node.name.casefold() == "grouping_id" else 1, None)
        return Call(GROUPING, tuple(self.bind(each) for each in node.expressions), INT)

    def _bind_within_group(self, node: exp.Expr) -> Expr:
        call, name = node.this, node.this.name.casefold()
        if not isinstance(call, exp.Anonymous) or not self._is_aggregate(name):
            raise self.typer.error("SYNTAX_ERROR", "WITHIN GROUP comes after a percentile or LISTAGG", node)
        return AggregateBinder(self).bind(call, node.expression)

    def _is_aggregate(self, name: str) -> bool:
        return name in NAMED_AGGREGATES or name in AGGREGATE_SYNONYMS or name in self.user_defined.aggregates

    def _bind_window(self, node: exp.Expr) -> Expr:
        if self.ranks is None:
            where = self.no_aggregates_in or "HAVING"
            message = f"a window function is not allowed in {where}; write QUALIFY, or WHERE around a subquery"
            raise self.typer.error("WINDOW_FUNCTION_NOT_ALLOWED", message, node)
        inner = replace(self, ranks=None, no_aggregates_in=None)
        return self.ranks.bind(node, self.typer, inner.bind_value, inner.bind)


def _build_balanced(op: Op, terms: list[Expr]) -> Expr:
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return Call(op, (_build_balanced(op, terms[:half]), _build_balanced(op, terms[half:])), BOOL)


Node = TypeVar("Node", bound=exp.Expr)
Handler = Callable[[ExpressionBinder, Any], Expr]


def _handle(kind: type[Node], bind: Callable[[ExpressionBinder, Node], Expr]) -> dict[type[exp.Expr], Handler]:
    """The handler of nodes of exactly this type."""
    return {kind: bind}


_HANDLERS: dict[type[exp.Expr], Handler] = {
    **_handle(exp.Column, ExpressionBinder._bind_column),
    **_handle(exp.Literal, ExpressionBinder._bind_literal),
    **_handle(exp.Boolean, lambda _, node: Literal(bool(node.this), BOOL)),
    **_handle(exp.Null, lambda _, __: Literal(None, NULL)),
    **_handle(exp.Interval, ExpressionBinder._bind_interval),
    **_handle(exp.Paren, lambda binder, node: binder.bind(node.this)),
    **_handle(exp.Neg, ExpressionBinder._bind_negation),
    **_handle(exp.Not, ExpressionBinder._bind_not),
    **_handle(exp.Is, ExpressionBinder._bind_is_null),
    **_handle(exp.In, ExpressionBinder._bind_in),
    **_handle(exp.Exists, ExpressionBinder._bind_predicate),
    **_handle(exp.Placeholder, ExpressionBinder._bind_query),
    **_handle(exp.Between, ExpressionBinder._bind_between),
    **_handle(exp.Like, ExpressionBinder._bind_like),
    **_handle(exp.Case, ExpressionBinder._bind_case),
    **_handle(exp.Dot, ExpressionBinder._bind_dot),
    **_handle(exp.Bracket, ExpressionBinder._bind_subscript),
    **_handle(exp.Cast, ExpressionBinder._bind_cast),
    **_handle(exp.TryCast, ExpressionBinder._bind_cast),
    **_handle(exp.Anonymous, ExpressionBinder._bind_function),
    **_handle(exp.Filter, lambda binder, node: AggregateBinder(binder).bind_filter(node)),
    **_handle(exp.WithinGroup, ExpressionBinder._bind_within_group),
    **_handle(exp.DPipe, lambda binder, node: binder._bind_call("concat", node.left, node.right)),
    **_handle(exp.RegexpLike, lambda binder, node: binder._bind_call("regexp_like", node.this, node.expression)),
    **_handle(exp.NullSafeEQ, ExpressionBinder._bind_null_safe),
    **_handle(exp.NullSafeNEQ, lambda binder, node: Call("not", (binder._bind_null_safe(node),), BOOL)),
    **_handle(exp.Window, ExpressionBinder._bind_window),
    **dict.fromkeys(_ARITHMETIC, ExpressionBinder._bind_arithmetic),
    **dict.fromkeys(_COMPARISONS, ExpressionBinder._bind_comparison),
    **dict.fromkeys(_CONNECTIVES, ExpressionBinder._bind_connective),
}
