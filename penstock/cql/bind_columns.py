"""Columns, fields of structs and elements of arrays and maps, as typed expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from penstock.cql.types import format_type
from penstock.expr import FUNCTIONS, STRING, Call, Expr, Literal, classify_type

if TYPE_CHECKING:
    from penstock.cql.expressions import ExpressionBinder, Handler


def _bind_column(binder: ExpressionBinder, node: exp.Column) -> Expr:
    if isinstance(node.this, exp.Star):
        raise binder.typer.error(
            "SYNTAX_ERROR", f"{binder.typer.source_text(node)} is only allowed alone in SELECT", node
        )
    if node.table and (path := _bind_path(binder, node)) is not None:
        return path
    if not node.table and node.name.casefold() in binder.outputs and len(binder.scope.list_candidates(node.name)) != 1:
        return binder.outputs[node.name.casefold()]
    return binder.scope.resolve(node)


def _bind_path(binder: ExpressionBinder, node: exp.Column) -> Expr | None:
    """`s.a.b` or `t.s.a.b`, a field of a struct; None for `t.column`. An alias of FROM comes before a column."""
    parts = list(node.parts)
    own = 2 if binder.scope.has_alias(parts[0].name) else 1
    if len(parts) <= own or (own == 1 and not binder.scope.has_struct(parts[0].name)):
        return None
    base = exp.Column(this=parts[own - 1].copy(), table=parts[0].copy() if own == 2 else None)
    found = binder.scope.resolve(base)
    for part in parts[own:]:
        found = _read_field(binder, found, part.name, node)
    return found


def _bind_dot(binder: ExpressionBinder, node: exp.Expr) -> Expr:
    if not isinstance(node.expression, exp.Identifier):
        raise binder.typer.unsupported_error(node, "DOT", "the name of a field follows the dot")
    return _read_field(binder, binder.bind(node.this), node.expression.name, node)


def _read_field(binder: ExpressionBinder, whole: Expr, name: str, node: exp.Expr) -> Expr:
    fields = list(whole.type) if classify_type(whole.type) == "struct" else []
    field = next((each for each in fields if each.name.casefold() == name.casefold()), None)
    if field is None:
        known = ", ".join(each.name for each in fields)
        has = f"it has {known}" if fields else f"it is {format_type(whole.type)}, not a struct"
        message = f"{binder.typer.source_text(node)}: unknown field {name}; {has}"
        raise binder.typer.error("UNKNOWN_COLUMN", message, node)
    return Call("field", (whole, Literal(field.name, STRING)), field.type)


def _bind_subscript(binder: ExpressionBinder, node: exp.Expr) -> Expr:
    base = node.this
    named = isinstance(base, exp.Column) and not base.table and base.name.casefold() == "array"
    if named and not binder.scope.list_candidates(base.name):
        return _bind_array(binder, node)
    if len(node.expressions) != 1:
        raise binder.typer.unsupported_error(node, "SUBSCRIPT", "write one index, as in a[0]")
    operands = binder.bind_all([node.this, node.expressions[0]])
    return binder.typer.call(FUNCTIONS["subscript"], operands, node)


def _bind_array(binder: ExpressionBinder, node: exp.Expr) -> Expr:
    if not node.expressions:
        message = "an empty array has no type; write CAST(NULL AS ARRAY<INT>), or at least one element"
        raise binder.typer.error("SYNTAX_ERROR", message, node)
    return binder.typer.call(FUNCTIONS["array"], binder.bind_all(node.expressions), node)


COLUMN_HANDLERS: dict[type[exp.Expr], Handler] = {
    exp.Column: _bind_column,
    exp.Dot: _bind_dot,
    exp.Bracket: _bind_subscript,
}
