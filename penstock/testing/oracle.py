"""The oracle: the expected answer of a query, by brute force from the law.

Law: every tuple is valid during [born, dies), which its window gives. A combination of tuples that satisfies WHERE is
in the answer from the latest `born` to the earliest `dies` of its tuples, if that interval is not empty. ISTREAM
reports rows that enter the answer, DSTREAM rows that leave it, RSTREAM the whole answer at every change.

The oracle shares only the binder with the engine: rows are dictionaries, and `penstock.testing.row_evaluator` evaluates
expressions one row at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.types as pt

from penstock.cql import (
    Catalog,
    Emit,
    FunctionSpec,
    OuterJoin,
    OuterJoinKind,
    Query,
    QueryBody,
    RowTransform,
    Select,
    Source,
    Stream,
    Subquery,
    Table,
    is_by_value,
    reads_final_joins,
)
from penstock.errors import QueryError
from penstock.expr import Column
from penstock.testing.combinations import (
    ValidTuple,
    collect_limited,
    compute_lifetimes,
    join_tuples,
    list_times,
    match_sequence,
)
from penstock.testing.final_oracle import compute_final_rows
from penstock.testing.interval_operators import (
    AFTER_END,
    ALWAYS,
    FOREVER,
    ValidRow,
    compute_by_value,
    compute_distinct,
    compute_groups,
    compute_set_operation,
    list_change_times,
)
from penstock.testing.row_evaluator import compile_expr, from_plain
from penstock.testing.transform_oracle import transform_rows


def expected(
    query: str | Query,
    streams: Mapping[str, pa.Table],
    tables: Mapping[str, pa.Table] | None = None,
    time: str | Mapping[str, str] | None = None,
    *,
    limit: int | None = None,
    aggregates: Mapping[str, type] | None = None,
    functions: Mapping[str, FunctionSpec] | None = None,
) -> pa.Table:
    """The expected answer of `query` on these streams: the columns of SELECT and `_ts`, sorted by `_ts`.

    `streams` holds every tuple of each stream in the order of arrival; rows without a time are dropped. `time` names
    the time column, for all streams or for each one; by default it is `ts` if there is such a column, else the first
    timestamp, else the first integer column. With `limit`, an answer of more rows raises `TooManyRows`. `aggregates`
    are the classes of user-defined aggregates, in lower case, `functions` the user-defined functions with their types,
    as `Engine.restore` takes them. Tuples of one time are ordered by stream, as given.

    >>> a = pa.table({"ts": [1, 5], "x": [7, 7]})
    >>> b = pa.table({"ts": [3], "x": [7]})
    >>> expected("SELECT A.ts AS a, B.ts AS b FROM A [RANGE 10], B [RANGE 10] WHERE A.x = B.x",
    ...          {"A": a, "B": b}).to_pylist()
    [{'a': 1, 'b': 3, '_ts': 3}, {'a': 5, 'b': 3, '_ts': 5}]
    """
    tables = tables or {}
    bound = bind_text(query, streams, tables, time, aggregates, functions) if isinstance(query, str) else query
    given = {name.casefold(): table for name, table in [*streams.items(), *tables.items()]}
    answer = _compute_answer(bound.body, given, limit, aggregates or {})
    if is_by_value(bound.body) and bound.emit != "close":
        answer = compute_by_value(answer)
    rows = sorted(emit(answer, bound.emit, limit), key=lambda row: row.at)
    schema = bound.schema
    arrays = [
        from_plain([row.values[i] for row in rows], field.type) for i, field in enumerate(schema) if i < len(schema) - 1
    ]
    times = [None if row.at == AFTER_END else row.at for row in rows]
    return pa.table([*arrays, from_plain(times, bound.time_type)], schema=schema)


def compute_rows(query: Query, streams: Mapping[str, pa.Table]) -> list[ValidRow]:
    """The rows of a query's answer with their intervals."""
    return _compute_answer(query.body, {name.casefold(): table for name, table in streams.items()}, None, {})


def bind_text(
    text: str,
    streams: Mapping[str, pa.Table],
    tables: Mapping[str, pa.Table],
    time: str | Mapping[str, str] | None = None,
    aggregates: Mapping[str, type] | None = None,
    functions: Mapping[str, FunctionSpec] | None = None,
) -> Query:
    """The bound query, over a catalog that declares exactly these streams and tables."""
    from penstock.cql import bind_query, build_schema, describe_functions  # noqa: PLC0415 (a bound query needs no parser)

    catalog = Catalog(aggregates=dict(aggregates or {}), functions=describe_functions(functions or {}))
    for name, table in streams.items():
        named = time.get(name) if isinstance(time, Mapping) else time
        schema = build_schema(table.schema)
        catalog.relations.add(Stream(name, schema, named or guess_time_column(name, schema)))
    for name, table in tables.items():
        catalog.relations.add(Table(name, build_schema(table.schema)))
    return bind_query(text, catalog)


def guess_time_column(stream: str, schema: pa.Schema) -> str:
    """The time column of a stream for which none is given."""
    called_ts = [field.name for field in schema if field.name.casefold() == "ts"]
    timestamps = [field.name for field in schema if pt.is_timestamp(field.type)]
    integers = [field.name for field in schema if pt.is_integer(field.type)]
    candidates = [*called_ts, *timestamps, *integers]
    if candidates:
        return str(candidates[0])
    raise QueryError(
        "NO_TIME_COLUMN",
        f"stream {stream} has no timestamp and no integer column; it has {', '.join(schema.names)}",
        stream=stream,
    )


def _compute_answer(
    body: QueryBody, given: Mapping[str, pa.Table], limit: int | None, classes: Mapping[str, type]
) -> list[ValidRow]:
    """The rows of a body, each with the interval during which it is in the answer."""
    if isinstance(body, Select):
        return _compute_select(body, given, limit, classes)
    if isinstance(body, OuterJoin):
        return _compute_outer_join(body, given, limit, classes)
    if isinstance(body, RowTransform):
        pool = _list_valid_tuples(body.source, given, limit, classes)
        return transform_rows(body, [ValidRow((each.row,), each.born, each.dies) for each in pool], classes)
    left, right = (_compute_answer(side, given, limit, classes) for side in (body.left, body.right))
    match body.kind:
        case "union all":
            return left + right
        case "union":
            return compute_distinct(left + right)
    return compute_set_operation(body.kind, left, right)


def _compute_outer_join(
    body: OuterJoin, given: Mapping[str, pa.Table], limit: int | None, classes: Mapping[str, type]
) -> list[ValidRow]:
    """The pairs, and each row that is kept while it has no partner; or the rows of the left side by their partners."""
    sides = body.left, body.right
    pools = {side.alias: _list_valid_tuples(side, given, limit, classes) for side in sides}
    pairs = join_tuples(Select(sides, body.on, body.items), {**pools}, limit)
    items = [compile_expr(item.expr) for item in body.items]
    answer: list[ValidRow] = []
    if body.kind in ("left", "full"):
        answer = [ValidRow(tuple(item(pair.rows) for item in items), pair.born, pair.dies) for pair in pairs]
    for side, other in (sides, sides[::-1])[: 2 if body.kind == "full" else 1]:
        nulls = dict.fromkeys(other.relation.schema.names)
        marks = {item.expr.name for item in body.items if isinstance(item.expr, Column) and not item.expr.alias}
        for row in pools[side.alias]:
            own = [(pair.born, pair.dies) for pair in pairs if pair.rows[side.alias] is row.row]
            for matched in _list_kept(body.kind):
                env = {side.alias: row.row, other.alias: nulls, "": dict.fromkeys(marks, matched)}
                shown = tuple(item(env) for item in items)
                spans = _split_by_partners(row, own, matched=matched)
                answer += [ValidRow(shown, born, dies) for born, dies in spans]
    return answer


def _list_kept(kind: OuterJoinKind) -> tuple[bool, ...]:
    """Whether rows of a preserved side are kept with a partner, or without one."""
    return {"semi": (True,), "mark": (True, False)}.get(kind, (False,))


def _split_by_partners(
    row: ValidTuple, partners: list[tuple[float, float]], *, matched: bool
) -> list[tuple[float, float]]:
    """The longest intervals of a row in which it has a partner, or has none."""
    instants = sorted({row.born, row.dies, *(end for span in partners for end in span)})
    spans: list[tuple[float, float]] = []
    for start, stop in itertools.pairwise(instants):
        if any(born <= start < dies for born, dies in partners) is matched:
            if spans and spans[-1][1] == start:
                spans[-1] = spans[-1][0], stop
            else:
                spans.append((start, stop))
    return spans


def _compute_select(
    select: Select, given: Mapping[str, pa.Table], limit: int | None, classes: Mapping[str, type]
) -> list[ValidRow]:
    if reads_final_joins(select):
        rows = compute_final_rows(select, lambda source: _list_valid_tuples(source, given, limit, classes))
        return collect_limited(rows, limit)
    if select.sequence is None:
        pools = {source.alias: _list_valid_tuples(source, given, limit, classes) for source in select.sources}
        found = join_tuples(select, pools, limit)
    else:
        found = match_sequence(select, select.sequence.mode, given)
    if select.group_by is not None:
        counted = [source for source in select.sources if source.window.row_slide is not None]
        arrivals = {each.alias: list_times(each, given) for each in counted}
        answer = compute_groups(select, [(c.rows, c.born, c.dies) for c in found], classes, arrivals)
    else:
        items = [compile_expr(item.expr) for item in select.items]
        answer = [ValidRow(tuple(item(c.rows) for item in items), c.born, c.dies) for c in found]
    return compute_distinct(answer) if select.distinct else answer


def _list_valid_tuples(
    source: Source, given: Mapping[str, pa.Table], limit: int | None, classes: Mapping[str, type]
) -> list[ValidTuple]:
    """Every row of a FROM item with its validity interval."""
    relation = source.relation
    if not isinstance(relation, Subquery):
        return compute_lifetimes(source, given[relation.name.casefold()])
    names = relation.schema.names
    answer = _compute_answer(relation.body, given, limit, classes)
    return [ValidTuple(dict(zip(names, row.values, strict=True)), row.born, row.dies) for row in answer]


class EmittedRow(NamedTuple):
    """A result row and its timestamp."""

    values: tuple[Any, ...]
    at: int


def emit(answer: list[ValidRow], how: Emit, limit: int | None = None) -> list[EmittedRow]:
    """The changing answer as a stream of rows."""
    return collect_limited(_emit_rows(answer, how), limit)


def _emit_rows(answer: list[ValidRow], how: Emit) -> Iterator[EmittedRow]:
    if how == "istream":
        yield from (EmittedRow(row.values, int(row.born)) for row in answer if row.born != ALWAYS)
    elif how == "changes":
        yield from (EmittedRow((*row.values, "+"), int(row.born)) for row in answer if row.born != ALWAYS)
        yield from (EmittedRow((*row.values, "-"), int(row.dies)) for row in answer if row.dies != FOREVER)
    elif how == "close":
        yield from (EmittedRow(row.values[:-1], int(row.dies)) for row in answer if row.values[-1] == row.dies)
    elif how == "dstream":
        yield from (EmittedRow(row.values, int(row.dies)) for row in answer if row.dies != FOREVER)
    else:
        for at in list_change_times(answer):
            yield from (EmittedRow(row.values, int(at)) for row in answer if row.born <= at < row.dies)
