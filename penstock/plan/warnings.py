"""Warnings about queries that are valid but seldom intended. Pure functions over bound queries.

Each rule of `QUERY_RULES` takes a query and yields warnings with a remedy. Figures are estimates for one hour; see
`penstock.plan.estimates`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.cql import (
    OuterJoin,
    Query,
    QueryBody,
    RowTransform,
    Select,
    SetOperation,
    Source,
    Span,
    Stream,
    Subquery,
    find_line_and_column,
    format_duration,
    format_excerpt,
)
from penstock.expr import COMPARISONS, Call, Column, Expr, Literal, find_aliases, rewrite, to_sql, walk
from penstock.plan.estimates import HOUR, WarningContext, estimate_results, estimate_row_bytes, get_rate, has_one_row


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


Warnings = Iterator[QueryWarning]


@dataclass(frozen=True)
class JoinScope:
    """A part of a query that reads FROM items: a SELECT, or an outer, semi or anti join."""

    body: Select | OuterJoin | RowTransform
    keeper: str | None
    """What keeps its rows: the name of the construct; None if nothing does."""
    reader: str | None
    """What keeps the rows of its answer."""

    @property
    def sources(self) -> tuple[Source, ...]:
        return (self.body.left, self.body.right) if isinstance(self.body, OuterJoin) else self.body.sources

    @property
    def conditions(self) -> tuple[Expr, ...]:
        """The conjuncts over its FROM items."""
        if isinstance(self.body, RowTransform):
            return ()
        return self.body.where if isinstance(self.body, Select) else self.body.on

    @property
    def is_sequence(self) -> bool:
        return isinstance(self.body, Select) and self.body.sequence is not None

    @property
    def read_expressions(self) -> tuple[Expr, ...]:
        """The expressions that read columns of its FROM items."""
        groups = self.body.group_by or () if isinstance(self.body, Select) else ()
        return (*self.conditions, *(item.expr for item in self.body.items), *groups)


def list_query_warnings(query: Query, context: WarningContext) -> tuple[QueryWarning, ...]:
    """The warnings about a query, in the order of the rules; of a query of WITH that is read twice, once."""
    return tuple(dict.fromkeys(warning for rule in QUERY_RULES for warning in rule(query, context)))


def warn_unbounded_state(query: Query, _context: WarningContext) -> Warnings:
    """Rows of a stream without a window never expire, so joins, sequences, groups and sets keep them all."""
    for part in list_parts(query.body):
        if part.keeper is None:
            continue
        others_static = len(part.sources) > sum(not source.is_table for source in part.sources) == 1
        for source in filter(_never_expires, part.sources):
            if source.surrounds:
                continue  # the item of the query around has the warning
            rows = get_rate(source) * HOUR
            size = _format_bytes(rows * estimate_row_bytes(source, part.read_expressions))
            remedy = f"Write a window, such as {source.relation.name} [RANGE {_suggest_range(source)}]"
            if others_static and query.emit == "istream" and part.keeper == "the join" and part.reader is None:
                remedy = f"Write {source.relation.name} [NOW]: rows of a table do not change, so the results are equal"
            yield QueryWarning(
                "UNBOUNDED_STATE",
                f"rows of {source.name} never expire, so {part.keeper} keeps them for ever: "
                f"{_format_rates((source,))}, {rows:,.0f} rows and about {size} an hour. {remedy}",
                source.span,
            )


def warn_cross_products(query: Query, context: WarningContext) -> Warnings:
    """Inputs that no condition connects: every row pairs with every row of the other window."""
    known: set[tuple[str, Span | None]] = set()
    for part in list_parts(query.body):
        groups = _group_connected(part)
        if len(groups) < 2 or part.is_sequence or (isinstance(part.body, OuterJoin) and part.body.kind in _FILTERS):
            continue
        results = estimate_results(part.sources, context)
        bases = tuple(base for source in part.sources for base in source.base_sources)
        if results <= sum(get_rate(base) for base in bases if not base.is_table):
            continue  # not more results than rows
        unknown = [base.name for base in bases if base.is_table and not context.table_rows.get(base.relation.name)]
        each = f", for each row of {' and '.join(unknown)}" if unknown else ""
        sides = " and ".join(f"({', '.join(group)})" if len(group) > 1 else group[0] for group in groups)
        around = [source for source in part.sources if source.surrounds]
        span = next((source.span for source in around or reversed(part.sources) if source.span), None)
        place = sides, None if around else span
        if place in known:
            continue  # NOT IN reads its rows once for each of its tests
        known.add(place)
        cause = f"no condition connects {sides}, so every row pairs with every row"
        remedy = f"Write a condition, such as {groups[0][0]}.key = {groups[1][0]}.key"
        if around:
            cause = (
                f"{sides} are joined without a condition, because a NOT EXISTS or NOT IN reads columns of "
                f"{around[0].name}, two levels above it, so every row pairs with every row"
            )
            remedy = "Shorter windows make them fewer; so does a condition between the two, if the question allows one"
        yield QueryWarning(
            "CROSS_PRODUCT",
            f"{cause}: {_format_rates(bases)}, up to {_format_count(results * HOUR)} results an hour{each}. {remedy}",
            span,
        )


def warn_skipped_rows(query: Query, _context: WarningContext) -> Warnings:
    """A SLIDE that is longer than its RANGE or ROWS leaves rows out of every report."""
    for source in query.body.inputs:
        window, stream = source.window, source.relation
        if not isinstance(stream, Stream):
            continue
        if window.slide is not None and window.duration is not None and window.slide > window.duration:
            size, slide = (format_duration(each, stream.time_type) for each in (window.duration, window.slide))
            message = (
                f"{source.name} reports every {slide} about the last {size}: rows between are in no report. "
                f"Write [RANGE {slide.upper()} SLIDE {slide.upper()}] to count every row once"
            )
            yield QueryWarning("SLIDE_SKIPS_ROWS", message, source.span)
        if window.row_slide is not None and window.row_slide > (window.row_count or 0):
            message = (
                f"{source.name} reports every {window.row_slide} rows about the last {window.row_count}: rows between "
                f"are in no report. Write [ROWS {window.row_slide} SLIDE {window.row_slide}] to count every row once"
            )
            yield QueryWarning("SLIDE_SKIPS_ROWS", message, source.span)


def warn_null_comparisons(query: Query, _context: WarningContext) -> Warnings:
    """A comparison with NULL is never true."""
    for part in list_parts(query.body):
        having = part.body.having if isinstance(part.body, Select) else None
        conditions = [*part.conditions, *(() if having is None else (having,))]
        for node in (node for condition in conditions for node in walk(condition)):
            if _compares_null(node):
                text = to_sql(_restore_names(node, part.sources))
                message = f"{text} is never true: NULL equals nothing. Write IS NULL or IS NOT NULL"
                yield QueryWarning("COMPARED_WITH_NULL", message)


def warn_silent_emits(query: Query, _context: WarningContext) -> Warnings:
    """DSTREAM of rows that never expire emits nothing; RSTREAM of them repeats an answer that only grows."""
    body = query.body
    if not isinstance(body, Select) or body.group_by is not None or query.emit not in ("dstream", "rstream"):
        return
    if not all(source.is_table or _never_expires(source) for source in body.sources):
        return
    names = ", ".join(source.name for source in body.sources if not source.is_table)
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
    for part in list_parts(query.body):
        streams = [source for source in part.sources if not source.is_table]
        if len(streams) < 2 or part.is_sequence:
            continue
        if pa.types.is_timestamp(query.time_type) and all(source.window.lifetime == 1 for source in streams):
            names = " and ".join(source.name for source in streams)
            message = (
                f"{names} have [NOW]: rows join only if their times are equal to the microsecond. Write a RANGE, such "
                f"as {streams[0].relation.name} [RANGE 1 SECOND]"
            )
            yield QueryWarning("EQUAL_INSTANTS", message, streams[0].span)


_FILTERS = ("semi", "anti", "mark")
QUERY_RULES: tuple[Callable[[Query, WarningContext], Warnings], ...] = (
    warn_unbounded_state,
    warn_cross_products,
    warn_skipped_rows,
    warn_null_comparisons,
    warn_silent_emits,
    warn_equal_instants,
)


def list_parts(body: QueryBody, reader: str | None = None) -> Iterator[JoinScope]:
    """The parts of a body, those of queries in FROM included. `reader` is what keeps the rows of its answer."""
    if isinstance(body, SetOperation):
        for side in (body.left, body.right):
            yield from list_parts(side, reader if body.kind == "union all" else body.kind.upper())
        return
    part = JoinScope(body, _find_keeper(body, reader), reader)
    yield part
    for source in part.sources:
        if isinstance(source.relation, Subquery):
            yield from list_parts(source.relation.body, part.keeper)


def _find_keeper(body: Select | OuterJoin | RowTransform, reader: str | None) -> str | None:
    """What keeps the rows of the windows of a body."""
    if isinstance(body, OuterJoin):
        return "the join"
    if isinstance(body, RowTransform):
        return reader
    if body.sequence is not None:
        return "the sequence" if body.sequence.mode == "chronicle" else reader
    if body.group_by is not None:
        return "the aggregate"
    if body.distinct:
        return "DISTINCT"
    return "the join" if len(body.sources) > 1 else reader


def _format_rates(sources: tuple[Source, ...]) -> str:
    rates = {source.relation.name: get_rate(source) for source in sources if not source.is_table}
    if len(set(rates.values())) == 1:
        return f"at {next(iter(rates.values())):,.0f} rows per second" + (" of each stream" if len(rates) > 1 else "")
    return f"at {', '.join(f'{rate:,.0f} rows per second of {name}' for name, rate in rates.items())}"


def _never_expires(source: Source) -> bool:
    window = source.window
    return isinstance(source.relation, Stream) and not window.bounded and not window.counted


def _compares_null(node: Expr) -> bool:
    return (
        isinstance(node, Call)
        and node.op in COMPARISONS
        and any(isinstance(arg, Literal) and arg.value is None for arg in node.args)
    )


def _suggest_range(source: Source) -> str:
    stream = source.relation
    return "10 MINUTES" if isinstance(stream, Stream) and pa.types.is_timestamp(stream.time_type) else "1000"


def _group_connected(part: JoinScope) -> list[list[str]]:
    """The aliases in groups that conditions connect, in the order of FROM, without aggregates of one row."""
    group = {source.alias: {source.alias} for source in part.sources}
    for condition in part.conditions:
        used = [alias for alias in find_aliases(condition) if alias in group]
        together = set().union(*(group[alias] for alias in used)) if used else set()
        group |= dict.fromkeys(together, together)
    sources = {source.alias: source for source in part.sources}
    found: list[set[str]] = []
    for alias, together in group.items():
        if not all(has_one_row(sources[each]) for each in together) and not any(alias in known for known in found):
            found.append(together)
    return [[name for each in group if each in known for name in _list_aliases(sources[each])] for known in found]


def _list_aliases(source: Source) -> list[str]:
    """The aliases of the text: that of the item, or those of the items that an outer join made one."""
    if not isinstance(source.relation, Subquery) or not source.relation.qualified:
        return [source.name]
    body = source.relation.body
    match body:
        case OuterJoin(kind="semi" | "anti" | "mark"):
            return _list_aliases(body.left)
        case OuterJoin():
            return [*_list_aliases(body.left), *_list_aliases(body.right)]
        case Select():
            return [alias for each in body.sources for alias in _list_aliases(each)]
        case SetOperation() | RowTransform():
            return [source.name]


def _restore_names(expr: Expr, sources: tuple[Source, ...]) -> Expr:
    """An expression with the names of the text for columns of an outer join, and of items with another alias."""
    joins = {each.alias for each in sources if isinstance(each.relation, Subquery) and each.relation.qualified}
    written = {each.alias: each.written for each in sources if each.written}

    def restore(node: Expr) -> Expr:
        if isinstance(node, Column) and node.alias in written:
            return Column(written[node.alias], node.name, node.type)
        if isinstance(node, Column) and node.alias in joins:
            alias, _, name = node.name.partition(".")
            return Column(alias, name, node.type)
        return node

    return rewrite(expr, restore)


def _format_bytes(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:,.0f} {unit}"
    return f"{count:,.0f} bytes"


def _format_count(count: float) -> str:
    return f"{count:.1e}" if count >= 1e12 else f"{count:,.0f}"
