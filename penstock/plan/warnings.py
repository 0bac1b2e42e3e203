"""Warnings about queries that are valid but seldom intended. Pure functions over bound queries.

Each rule of `QUERY_RULES` takes a query and yields warnings with a remedy. Figures are estimates for one hour, from the
rates that sources declare; a stream without a declared rate is assumed to have `ASSUMED_RATE` rows per second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

import pyarrow as pa

from penstock.cql import (
    Query,
    QueryBody,
    Select,
    SetOperation,
    Source,
    Span,
    Stream,
    find_line_and_column,
    find_rate,
    format_duration,
    format_excerpt,
)
from penstock.expr import COMPARISONS, Call, Expr, Literal, find_aliases, find_columns, to_sql, walk

ASSUMED_RATE = 1000.0
_HOUR = 3600
_MICROSECONDS = 1e6
_ROW_BYTES = 48
"""Times, key codes and index entries of a row in a window, besides its columns."""
_TEXT_BYTES = 24
_PARTITIONS = 100
"""The assumed number of partitions of a window with PARTITION BY."""


@dataclass(frozen=True)
class QueryWarning:
    """A warning. `span` is its place in the text that was bound, if it has one."""

    condition: str
    message: str
    span: Span | None = None

    def __str__(self) -> str:
        return f"[{self.condition}] {self.message}"

    def format(self, text: str, offset: int = 0) -> str:
        """The warning with its line, its column and the text underlined. `text` begins at `offset` of the bound one."""
        if self.span is None:
            return str(self)
        span = self.span[0] - offset, self.span[1] - offset
        line, column = find_line_and_column(text, span[0])
        return f"{self} (line {line}, column {column})\n{format_excerpt(text, span)}"


@dataclass(frozen=True)
class WarningContext:
    """What is known besides the query: the rows of tables, by name."""

    table_rows: Mapping[str, int] = field(default_factory=dict)


Warnings = Iterator[QueryWarning]


def list_query_warnings(query: Query, context: WarningContext) -> tuple[QueryWarning, ...]:
    """The warnings about a query, in the order of the rules."""
    return tuple(warning for rule in QUERY_RULES for warning in rule(query, context))


def warn_unbounded_state(query: Query, _context: WarningContext) -> Warnings:
    """Rows of a stream without a window never expire, so joins, sequences, groups and sets keep them all."""
    for select in list_selects(query.body):
        keeper = _find_keeper(query, select)
        if keeper is None:
            continue
        others_static = len(select.sources) > sum(not source.is_table for source in select.sources) == 1
        for source in filter(_never_expires, select.sources):
            rows = _get_rate(source) * _HOUR
            growth = f"{rows:,.0f} rows and about {_format_bytes(rows * _estimate_row_bytes(source, select))} an hour"
            remedy = f"Write a window, such as {source.relation.name} [RANGE {_suggest_range(source)}]"
            if others_static and query.emit == "istream" and keeper == "the join":
                remedy = f"Write {source.relation.name} [NOW]: rows of a table do not change, so the results are equal"
            yield QueryWarning(
                "UNBOUNDED_STATE",
                f"rows of {source.alias} never expire, so {keeper} keeps them for ever: "
                f"{_format_rates((source,))}, {growth}. {remedy}",
                source.span,
            )


def warn_cross_products(query: Query, context: WarningContext) -> Warnings:
    """Inputs that no condition connects: every row pairs with every row of the other window."""
    for select in list_selects(query.body):
        parts = _group_connected(select)
        if len(parts) < 2 or select.sequence is not None:
            continue
        results = _estimate_results(select.sources, context)
        if results <= sum(_get_rate(source) for source in select.sources if not source.is_table):
            continue  # not more results than rows
        unknown = [s.alias for s in select.sources if s.is_table and not context.table_rows.get(s.relation.name)]
        each = f", for each row of {' and '.join(unknown)}" if unknown else ""
        sides = " and ".join(f"({', '.join(part)})" if len(part) > 1 else part[0] for part in parts)
        yield QueryWarning(
            "CROSS_PRODUCT",
            f"no condition connects {sides}, so every row pairs with every row: "
            f"{_format_rates(select.sources)}, up to {_format_count(results * _HOUR)} results an hour{each}. "
            f"Write a condition, such as {parts[0][0]}.key = {parts[1][0]}.key",
            select.sources[-1].span,
        )


def warn_skipped_rows(query: Query, _context: WarningContext) -> Warnings:
    """A SLIDE that is longer than its RANGE leaves rows out of every report."""
    for source in query.body.inputs:
        window, stream = source.window, source.relation
        if isinstance(stream, Stream) and window.slide is not None and window.duration is not None:
            if window.slide <= window.duration:
                continue
            size, slide = (format_duration(each, stream.time_type) for each in (window.duration, window.slide))
            message = (
                f"{source.alias} reports every {slide} about the last {size}: rows between are in no report. "
                f"Write [RANGE {slide.upper()} SLIDE {slide.upper()}] to count every row once"
            )
            yield QueryWarning("SLIDE_SKIPS_ROWS", message, source.span)


def warn_null_comparisons(query: Query, _context: WarningContext) -> Warnings:
    """A comparison with NULL is never true."""
    for select in list_selects(query.body):
        conditions = [*select.where, *(() if select.having is None else (select.having,))]
        for node in (node for condition in conditions for node in walk(condition)):
            if _compares_null(node):
                message = f"{to_sql(node)} is never true: NULL equals nothing. Write IS NULL or IS NOT NULL"
                yield QueryWarning("COMPARED_WITH_NULL", message)


def warn_silent_emits(query: Query, _context: WarningContext) -> Warnings:
    """DSTREAM of rows that never expire emits nothing; RSTREAM of them repeats an answer that only grows."""
    body = query.body
    if not isinstance(body, Select) or body.group_by is not None or query.emit == "istream":
        return
    if not all(source.is_table or _never_expires(source) for source in body.sources):
        return
    names = ", ".join(source.alias for source in body.sources if not source.is_table)
    if query.emit == "dstream":
        message = f"rows of {names} never expire, so DSTREAM emits nothing. Write a window, such as [RANGE 10 MINUTES]"
    else:
        message = (
            f"rows of {names} never expire, and RSTREAM emits the whole answer at every change: the n-th row causes n "
            "results. Write a window, or ISTREAM to get each row once"
        )
    yield QueryWarning("NO_EXPIRY", message, next(each.span for each in body.sources if not each.is_table))


def warn_equal_instants(query: Query, _context: WarningContext) -> Warnings:
    """[NOW] on every stream of a join: only rows of the same microsecond join."""
    for select in list_selects(query.body):
        streams = [source for source in select.sources if isinstance(source.relation, Stream)]
        if len(streams) < 2 or select.sequence is not None:
            continue
        if pa.types.is_timestamp(query.time_type) and all(source.window.lifetime == 1 for source in streams):
            names = " and ".join(source.alias for source in streams)
            message = (
                f"{names} have [NOW]: rows join only if their times are equal to the microsecond. Write a RANGE, such "
                f"as {streams[0].relation.name} [RANGE 1 SECOND]"
            )
            yield QueryWarning("EQUAL_INSTANTS", message, streams[0].span)


QUERY_RULES: tuple[Callable[[Query, WarningContext], Warnings], ...] = (
    warn_unbounded_state,
    warn_cross_products,
    warn_skipped_rows,
    warn_null_comparisons,
    warn_silent_emits,
    warn_equal_instants,
)


def list_selects(body: QueryBody) -> Iterator[Select]:
    """The SELECTs of a body, in the order of the text."""
    if isinstance(body, SetOperation):
        yield from list_selects(body.left)
        yield from list_selects(body.right)
    else:
        yield body


def _find_keeper(query: Query, select: Select) -> str | None:
    """What keeps the rows of the windows of a SELECT: the name of the construct; None if nothing does."""
    if select.sequence is not None:
        return "the sequence" if select.sequence.mode == "chronicle" else None
    if select.group_by is not None:
        return "the aggregate"
    if select.distinct:
        return "DISTINCT"
    if len(select.sources) > 1:
        return "the join"
    return "EXCEPT" if _has_difference(query.body) else None


def _has_difference(body: QueryBody) -> bool:
    if not isinstance(body, SetOperation):
        return False
    return body.kind == "except" or _has_difference(body.left) or _has_difference(body.right)


def _get_rate(source: Source) -> float:
    """Rows per second: as declared, else assumed."""
    declared = find_rate(source.relation.connector)
    return ASSUMED_RATE if declared is None else declared


def _format_rates(sources: tuple[Source, ...]) -> str:
    rates = {source.relation.name: _get_rate(source) for source in sources if not source.is_table}
    if len(set(rates.values())) == 1:
        return f"at {next(iter(rates.values())):,.0f} rows per second" + (" of each stream" if len(rates) > 1 else "")
    return f"at {', '.join(f'{rate:,.0f} rows per second of {name}' for name, rate in rates.items())}"


def _never_expires(source: Source) -> bool:
    window = source.window
    return not source.is_table and not window.bounded and not window.counted


def _compares_null(node: Expr) -> bool:
    return (
        isinstance(node, Call)
        and node.op in COMPARISONS
        and any(isinstance(arg, Literal) and arg.value is None for arg in node.args)
    )


def _suggest_range(source: Source) -> str:
    stream = source.relation
    return "10 MINUTES" if isinstance(stream, Stream) and pa.types.is_timestamp(stream.time_type) else "1000"


def _group_connected(select: Select) -> list[list[str]]:
    """The aliases in groups that conditions connect, in the order of FROM."""
    group = {source.alias: {source.alias} for source in select.sources}
    for condition in select.where:
        used = [alias for alias in find_aliases(condition) if alias in group]
        together = set().union(*(group[alias] for alias in used)) if used else set()
        group |= dict.fromkeys(together, together)
    found: list[list[str]] = []
    for alias in group:
        if not any(alias in part for part in found):
            found.append([other for other in group if other in group[alias]])
    return found


def _estimate_results(sources: tuple[Source, ...], context: WarningContext) -> float:
    """Results per second without any condition: each arriving row pairs with all rows of the other windows."""
    rows = [_estimate_window_rows(source, context) for source in sources]
    return sum(
        _get_rate(source) * prod(rows[:place] + rows[place + 1 :])
        for place, source in enumerate(sources)
        if not source.is_table
    )


def _estimate_window_rows(source: Source, context: WarningContext) -> float:
    """Rows in a window; of one that never ends, its average over the first hour."""
    window, relation = source.window, source.relation
    if not isinstance(relation, Stream):
        return float(context.table_rows.get(relation.name) or 1)
    if window.row_count is not None:
        return float(window.row_count * (_PARTITIONS if window.partition else 1))
    if window.lifetime is None:
        return _get_rate(source) * _HOUR / 2
    if pa.types.is_timestamp(relation.time_type):
        return _get_rate(source) * window.lifetime / _MICROSECONDS
    return float(window.lifetime)


def _estimate_row_bytes(source: Source, select: Select) -> int:
    """The bytes of a row in a window: its entry, and the columns that the query reads."""
    shown = [*select.where, *(item.expr for item in select.items), *(select.group_by or ())]
    columns = {column for expr in shown for column in find_columns(expr) if column.alias == source.alias}
    return _ROW_BYTES + sum(_estimate_value_bytes(column.type) for column in columns)


def _estimate_value_bytes(kind: pa.DataType) -> int:
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:  # text
        return _TEXT_BYTES


def _format_bytes(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:,.0f} {unit}"
    return f"{count:,.0f} bytes"


def _format_count(count: float) -> str:
    return f"{count:.1e}" if count >= 1e12 else f"{count:,.0f}"
