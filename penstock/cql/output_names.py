"""The names of output columns: aliases are kept, derived names avoid them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sqlglot import exp

from penstock.cql.bound import SelectItem
from penstock.cql.dialect import find_span
from penstock.cql.scope import Scope
from penstock.expr import Aggregate, Call, Column, Expr

TIMESTAMP_COLUMN = "_ts"


@dataclass(frozen=True)
class OutputColumn:
    """An expression of SELECT, its alias if it has one, its node in the text, and for `*` the name of the column."""

    expr: Expr
    alias: str | None
    node: exp.Expr
    column: str | None = None


def expand_star(node: exp.Expr, scope: Scope) -> list[tuple[str, Expr]] | None:
    """The columns of `*` or `t.*`; None for anything else. The `_ts` of a derived stream is left out."""
    if isinstance(node, exp.Star):
        columns, star = scope.expand(), node
    elif isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
        columns, star = scope.expand([scope.resolve_qualifier(node)]), node.this
    else:
        return None
    if any(star.args.values()):
        raise scope.origin.unsupported_error("modified star", find_span(node), "name the columns")
    return [(name, column) for name, column in columns if name != TIMESTAMP_COLUMN]


def name_outputs(outputs: list[OutputColumn], scope: Scope) -> tuple[SelectItem, ...]:
    """The items with their final names, which are distinct also if case is ignored."""
    origin = scope.origin
    taken: set[str] = set()
    for output in outputs:
        if output.alias is None:
            continue
        if output.alias.casefold() == TIMESTAMP_COLUMN:
            message = f"{TIMESTAMP_COLUMN} is the name of the result's timestamp; choose another"
            raise origin.error("RESERVED_NAME", message, find_span(output.node))
        if output.alias.casefold() in taken:
            message = f"column {output.alias} appears twice in SELECT"
            raise origin.error("DUPLICATE_COLUMN", message, find_span(output.node), name=output.alias)
        taken.add(output.alias.casefold())
    derived = [_derive_name(output, position, scope) for position, output in enumerate(outputs, 1)]
    counts = Counter(name.casefold() for name, output in zip(derived, outputs, strict=True) if not output.alias)
    items = []
    for name, output in zip(derived, outputs, strict=True):
        if output.alias is not None:
            items.append(SelectItem(output.alias, output.expr))
            continue
        if name.casefold() == TIMESTAMP_COLUMN:
            message = f"{TIMESTAMP_COLUMN} is the name of the result's timestamp; give this column another with AS"
            raise origin.error("RESERVED_NAME", message, find_span(output.node))
        if isinstance(output.expr, Column) and (counts[name.casefold()] > 1 or name.casefold() in taken):
            name = f"{scope.describe(output.expr)[0]}_{name}"  # noqa: PLW2901 (the qualified name replaces the short one)
        items.append(SelectItem(_make_unique(name, taken), output.expr))
    return tuple(items)


def _derive_name(output: OutputColumn, position: int, scope: Scope) -> str:
    """A plain column's own name, `avg_value` for AVG(t.value), `count` for COUNT(*), else `column_N`."""
    expr = output.expr
    if isinstance(expr, Column):
        return scope.describe(expr)[1]
    if isinstance(output.node, exp.Column) and not isinstance(output.node.this, exp.Star):
        return output.node.name  # a column of USING
    if isinstance(output.node, exp.Dot):
        return str(output.node.expression.name)  # a field of a struct
    if output.column is not None:
        return output.column
    if isinstance(expr, Aggregate):
        if not expr.args:
            return expr.function
        inner = expr.args[0]
        if isinstance(inner, Call) and inner.op == "cast":
            inner = inner.args[0]
        if isinstance(inner, Column):
            return f"{expr.function}_{scope.describe(inner)[1]}"
    return f"column_{position}"


def _make_unique(name: str, taken: set[str]) -> str:
    candidate, count = name, 1
    while candidate.casefold() in taken:
        count += 1
        candidate = f"{name}_{count}"
    taken.add(candidate.casefold())
    return candidate
