"""TUMBLE, HOP and SESSION in FROM, and Spark's window() and session_window() in GROUP BY.

Law: windows are [start, end). A row of TUMBLE or HOP is valid from its time to the end of its window, and HOP has it
once for each window that it is in. A session ends when no row of its partition has come for the gap; its rows are
valid at that instant, `window_end`, because its window is not known before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from sqlglot import exp

from penstock.cql.bound import WINDOW_END, WINDOW_START, SelectItem, Source, Subquery, WindowedRows, WindowKind
from penstock.cql.catalog import Stream
from penstock.cql.dialect import find_span
from penstock.cql.errors import CqlError, Origin, Span
from penstock.cql.sources import convert_amount, resolve_partition
from penstock.cql.syntax import Amount, Name, SelectSyntax, SourceSyntax, WindowCallSyntax
from penstock.cql.windows import CURRENT, NOW, Range
from penstock.expr import Column

AMOUNTS: Mapping[WindowKind, str] = {
    "tumble": "TUMBLE(s, ts, size)",
    "hop": "HOP(s, ts, slide, size)",
    "session": "SESSION(s PARTITION BY k, ts, gap)",
}
_SPARK_KINDS = ("window", "session_window")


def bind_window_call(source: Source, call: WindowCallSyntax, origin: Origin) -> Source:
    """A stream read by a window function, as a FROM item of the same alias."""
    stream = source.relation
    if not isinstance(stream, Stream):
        what = "a query or table" if not source.is_table else "a static table"
        message = f"{call.kind.upper()} reads a stream, and {stream.name} is {what}; write it over the stream"
        raise origin.error("WINDOW_OF_NO_STREAM", message, call.span, relation=stream.name)
    _check_time(stream, call, origin)
    slide, size = _bind_amounts(stream, call, origin)
    _check_names(stream, call, origin)
    partition = resolve_partition(call.partition, stream, origin)
    columns = [SelectItem(each.name, Column(source.alias, each.name, each.type)) for each in stream.schema]
    columns += [SelectItem(name, Column("", name, stream.time_type)) for name in (WINDOW_START, WINDOW_END)]
    body = WindowedRows(
        replace(source, window=NOW if call.kind == "session" else Range(size)),
        tuple(columns),
        call.kind,
        size,
        slide,
        tuple(Column(source.alias, name, stream.schema.field(name).type) for name in partition),
    )
    return Source(source.alias, Subquery(stream.name, body), CURRENT, span=source.span)


def _check_time(stream: Stream, call: WindowCallSyntax, origin: Origin) -> None:
    if call.time.text.casefold() != stream.time.casefold():
        message = (
            f"{call.kind.upper()} divides {stream.name} by its time column {stream.time}, not by {call.time.text}; "
            f"write {stream.time}, or declare the stream with TIMESTAMP BY {call.time.text}"
        )
        raise origin.error("NOT_THE_TIME_COLUMN", message, call.time.span, name=call.time.text)


def _bind_amounts(stream: Stream, call: WindowCallSyntax, origin: Origin) -> tuple[int, int]:
    """The slide and the size of the windows; of sessions, the gap."""
    amounts = [convert_amount(amount, stream.time_type, origin) for amount in call.amounts]
    wanted = 2 if call.kind == "hop" else 1
    if len(amounts) != wanted:
        message = f"write {AMOUNTS[call.kind]}: found {len(amounts)} duration(s)"
        raise origin.error("ARGUMENT_COUNT", message, call.span)
    if call.kind == "hop" and amounts[1] < amounts[0]:
        message = "the slide of HOP is longer than its size, so that rows would be in no window; the slide comes first"
        raise origin.error("INVALID_WINDOW", message, call.span)
    return amounts[0], amounts[-1]


def _check_names(stream: Stream, call: WindowCallSyntax, origin: Origin) -> None:
    taken = {name.casefold() for name in stream.schema.names}
    for name in (WINDOW_START, WINDOW_END):
        if name in taken:
            message = f"{stream.name} has a column {name}, and {call.kind.upper()} adds one; rename it in the stream"
            raise origin.error("RESERVED_NAME", message, call.span, name=name)


# ── Spark's functions ────────────────────────────────────────────────────────────────────────────────────────────────


def rewrite_spark_windows(select: SelectSyntax, origin: Origin) -> SelectSyntax:
    """A SELECT with GROUP BY window(ts, ...) as a SELECT from TUMBLE, HOP or SESSION.

    `window.start`, `window.end` and the call itself become `window_start` and `window_end`.
    """
    calls = [node for key in select.group_by or () for node in _find_calls(key)]
    if not calls:
        return select
    first = calls[0]
    name = first.name.casefold()
    others = [node for node in calls if node.sql() != first.sql()]
    if others:
        message = "GROUP BY has two different windows; write one, or TUMBLE and HOP in FROM"
        raise origin.error("INVALID_WINDOW", message, find_span(others[0]))
    index, source = _find_source(select, first, origin)
    if source.window is not None:
        message = f"{source.relation.text} has a window in brackets and one in GROUP BY; write one of them"
        raise origin.error("INVALID_WINDOW", message, source.window.span)
    keys = [key for key in select.group_by or () if not _find_calls(key)]
    partition = tuple(_read_partition(key, origin) for key in keys) if name == "session_window" else ()
    call = _read_call(first, partition, origin)
    items = list(select.from_items)
    items[index] = replace(source, call=call)
    alias = source.name.text

    def change(node: exp.Expr) -> exp.Expr:
        return _rename(node, name, alias, origin)

    return replace(
        select,
        from_items=tuple(items),
        items=tuple(change(node) for node in select.items),
        where=None if select.where is None else change(select.where),
        group_by=tuple(part for key in select.group_by or () for part in _split_key(key, alias, origin)),
        having=None if select.having is None else change(select.having),
    )


def _find_calls(node: exp.Expr) -> list[exp.Expr]:
    return [each for each in node.find_all(exp.Anonymous) if each.name.casefold() in _SPARK_KINDS]


def _find_source(select: SelectSyntax, call: exp.Expr, origin: Origin) -> tuple[int, SourceSyntax]:
    """The FROM item whose time column a call names."""
    time = call.expressions[0] if call.expressions else None
    alias = time.table.casefold() if isinstance(time, exp.Column) else ""
    for index, item in enumerate(select.from_items):
        plain = isinstance(item, SourceSyntax) and item.subquery is None and item.call is None
        if plain and isinstance(item, SourceSyntax) and alias in ("", item.name.text.casefold()):
            return index, item
    message = (
        f"{call.name} in GROUP BY divides a stream of FROM; in a join write FROM TUMBLE(s, ts, size) AS s JOIN ..."
    )
    raise origin.error("WINDOW_OF_NO_STREAM", message, find_span(call))


def _read_partition(key: exp.Expr, origin: Origin) -> Name:
    """The column of a key: rows with other keys are in other sessions."""
    if not isinstance(key, exp.Column):
        message = "GROUP BY with session_window takes columns; compute the key in a derived stream"
        raise origin.error("INVALID_WINDOW", message, find_span(key))
    return Name(key.name, find_span(key))


def _read_call(node: exp.Expr, keys: tuple[Name, ...], origin: Origin) -> WindowCallSyntax:
    arguments, span = list(node.expressions), find_span(node)
    session = node.name.casefold() == "session_window"
    most = 2 if session else 3
    if not 2 <= len(arguments) <= most or not isinstance(arguments[0], exp.Column):
        wanted = "session_window(ts, '10 minutes')" if session else "window(ts, '10 minutes', '5 minutes')"
        raise origin.error("ARGUMENT_COUNT", f"write {wanted}: the time column, and durations in quotes", span)
    time = Name(arguments[0].name, find_span(arguments[0]))
    amounts = [_read_amount(argument, origin) for argument in arguments[1:]]
    if session:
        return WindowCallSyntax("session", time, tuple(amounts), keys, span)
    if len(amounts) == 1:
        return WindowCallSyntax("tumble", time, tuple(amounts), (), span)
    return WindowCallSyntax("hop", time, (amounts[1], amounts[0]), (), span)


def _read_amount(node: exp.Expr, origin: Origin) -> Amount:
    span = find_span(node)
    if isinstance(node, exp.Interval) and isinstance(node.this, exp.Literal):
        unit = node.args.get("unit")
        return Amount(node.this.name, unit.name.upper() if unit is not None else None, span)
    words = node.name.split() if isinstance(node, exp.Literal) else []
    if len(words) not in (1, 2):
        raise origin.error("INVALID_DURATION", "a duration is written '10 minutes'", span)
    return Amount(words[0], words[1].upper() if len(words) == 2 else None, span)


def _split_key(key: exp.Expr, alias: str, origin: Origin) -> Iterator[exp.Expr]:
    if isinstance(key, exp.Anonymous) and key.name.casefold() in _SPARK_KINDS:
        for column in (WINDOW_START, WINDOW_END):
            yield _make_column(alias, column, find_span(key))
    elif _find_calls(key):
        raise _make_place_error(key, origin)
    else:
        yield key


def _rename(node: exp.Expr, name: str, alias: str, origin: Origin) -> exp.Expr:
    """`window.start` and `window.end` as columns of the windowed stream."""

    def change(each: exp.Expr) -> exp.Expr:
        if isinstance(each, exp.Column) and each.table.casefold() == name and each.name.casefold() in ("start", "end"):
            column = WINDOW_START if each.name.casefold() == "start" else WINDOW_END
            return _make_column(alias, column, find_span(each))
        if isinstance(each, exp.Dot) and _find_calls(each.this) and each.name.casefold() in ("start", "end"):
            column = WINDOW_START if each.name.casefold() == "start" else WINDOW_END
            return _make_column(alias, column, find_span(each))
        return each

    changed = node.transform(change, copy=True)
    whole = [each for each in changed.find_all(exp.Column) if not each.table and each.name.casefold() == name]
    if whole or _find_calls(changed):
        raise _make_place_error((whole or _find_calls(changed))[0], origin)
    return changed


def _make_place_error(node: exp.Expr, origin: Origin) -> CqlError:
    message = "a window is read as window.start and window.end"
    return origin.error("INVALID_WINDOW", message, find_span(node))


def _make_column(alias: str, name: str, span: Span) -> exp.Expr:
    column = exp.column(name, table=alias)
    column.meta.update(start=span[0], end=span[1] - 1)
    return column
