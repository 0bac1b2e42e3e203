"""What a bound SELECT must satisfy: columns beside aggregates are grouped, GROUPING takes keys, windows slide alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlglot import exp

from penstock.cql.bound import Source
from penstock.cql.dialect import find_span
from penstock.cql.errors import Origin, Span
from penstock.cql.group_relation import is_reserved_value
from penstock.cql.grouping import find_grouping_calls
from penstock.cql.over import has_rank
from penstock.cql.scope import Scope
from penstock.cql.syntax import SourceSyntax
from penstock.cql.windows import Window
from penstock.expr import Aggregate, Column, Expr, Literal


def check_grouped(expr: Expr, keys: tuple[Expr, ...], node: exp.Expr, scope: Scope) -> None:
    """Every column outside an aggregate must be part of a grouping expression."""
    if expr in keys or isinstance(expr, (Aggregate, Literal)) or is_reserved_value(expr):
        return
    if isinstance(expr, Column):
        if not has_rank(expr):
            message = f"column {'.'.join(scope.describe(expr))} is outside an aggregate and not in GROUP BY"
            raise scope.origin.error("NOT_GROUPED", message, _find_column_span(expr, node, scope))
        return
    for arg in expr.args:
        check_grouped(arg, keys, node, scope)


def _find_column_span(column: Column, node: exp.Expr, scope: Scope) -> Span:
    for written in node.find_all(exp.Column):
        if not isinstance(written.this, exp.Star) and scope.find(written) == column:
            return find_span(written)
    return find_span(node)


def check_grouping(exprs: Sequence[Expr], keys: tuple[Expr, ...] | None, node: exp.Expr, origin: Origin) -> None:
    """GROUPING takes keys of GROUP BY."""
    for call in find_grouping_calls(exprs):
        if keys is None or any(arg not in keys for arg in call.args):
            raise origin.error("GROUPING_WITHOUT_KEY", "GROUPING takes keys of GROUP BY", find_span(node))


def check_slides(sources: Iterable[tuple[Source, SourceSyntax]], origin: Origin, *, is_grouped: bool) -> None:
    """Windows with SLIDE belong to an aggregate, which reports at the multiples of one slide."""
    sliding: Source | None = None
    for source, written in sources:
        if written.window is None or not source.window.slides:
            continue
        if not is_grouped:
            advice = "it makes aggregates report at each slide, and this query has none"
            raise origin.unsupported_error("SLIDE without aggregate", written.window.span, advice)
        if sliding is not None and not _slide_alike(sliding.window, source.window):
            message = "the windows of one aggregate slide by different amounts; it reports at the multiples of one"
            raise origin.error("SLIDES_DIFFER", f"{message} SLIDE", written.window.span)
        sliding = source


def _slide_alike(one: Window, other: Window) -> bool:
    """Whether two windows report at the same instants; the rows of two FROM items are counted separately."""
    return one.slide == other.slide and one.row_slide is None and other.row_slide is None
