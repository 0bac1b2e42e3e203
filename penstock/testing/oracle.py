"""The oracle: the expected answer of a query, by brute force from the law.

Law: every tuple is valid during [born, dies), which its window gives. A combination of tuples that satisfies WHERE is
in the answer from the latest `born` to the earliest `dies` of its tuples, if that interval is not empty. ISTREAM
reports rows that enter the answer, DSTREAM rows that leave it, RSTREAM the whole answer at every change.

The oracle shares only the binder with the engine: rows are dictionaries, and `penstock.testing.row_evaluator` evaluates
expressions one row at a time. It has two optimisations: a combination is dropped at the first conjunct or interval that
fails, and an equality with a bound alias narrows the candidates before every conjunct is tested.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

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
    SeqMode,
    Source,
    Stream,
    Subquery,
    Table,
    is_by_value,
    reads_final_joins,
)
from penstock.errors import QueryError
from penstock.expr import Call, Column, Expr, find_aliases
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
from penstock.testing.row_evaluator import Env, Evaluator, Row, compile_expr, from_plain, to_comparison_key, to_plain
from penstock.testing.transform_oracle import transform_rows

T = TypeVar("T")
LIMIT_FACTOR = 6  # the limit on partial combinations, as a multiple of the limit on the answer


class TooManyRows(Exception):  # noqa: N818 (a limit that the caller sets, not an error)
    """The answer has more rows than the limit."""


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
    pairs = _join_tuples(Select(sides, body.on, body.items), {**pools}, limit)
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
        return _collect_limited(rows, limit)
    if select.sequence is None:
        pools = {source.alias: _list_valid_tuples(source, given, limit, classes) for source in select.sources}
        found = _join_tuples(select, pools, limit)
    else:
        found = _match_sequence(select, select.sequence.mode, given)
    if select.group_by is not None:
        counted = [source for source in select.sources if source.window.row_slide is not None]
        arrivals = {each.alias: _list_times(each, given) for each in counted}
        answer = compute_groups(select, [(c.rows, c.born, c.dies) for c in found], classes, arrivals)
    else:
        items = [compile_expr(item.expr) for item in select.items]
        answer = [ValidRow(tuple(item(c.rows) for item in items), c.born, c.dies) for c in found]
    return compute_distinct(answer) if select.distinct else answer


class ValidTuple(NamedTuple):
    """One tuple of a source and its validity interval."""

    row: Row
    born: float
    dies: float


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


def compute_lifetimes(source: Source, table: pa.Table) -> list[ValidTuple]:
    """Every tuple of a source with its validity interval; `table` is in the order of arrival."""
    names = table.column_names
    rows = [dict(zip(names, row, strict=True)) for row in zip(*(to_plain(c) for c in table.columns), strict=True)]
    relation, window = source.relation, source.window
    if not isinstance(relation, Stream):
        return [ValidTuple(row, ALWAYS, FOREVER) for row in rows]
    time = relation.time
    rows = sorted((row for row in rows if row[time] is not None), key=lambda row: row[time])  # stable: ties by arrival
    if window.row_count is not None:
        return _compute_row_lifetimes(rows, time, window.row_count, window.partition)
    lasts = FOREVER if window.lifetime is None else window.lifetime
    return [ValidTuple(row, row[time], row[time] + lasts) for row in rows]


def _list_times(source: Source, given: Mapping[str, pa.Table]) -> list[int]:
    """The times of all tuples of a stream, in order."""
    return sorted(int(each.born) for each in compute_lifetimes(source, given[source.relation.name.casefold()]))


def _compute_row_lifetimes(rows: list[dict[str, Any]], time: str, count: int, by: tuple[str, ...]) -> list[ValidTuple]:
    """[PARTITION BY k] ROWS n: a tuple expires at the time of the n-th later tuple of its partition."""
    partitions: defaultdict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        partitions[tuple(None if row[k] is None else to_comparison_key(row[k]) for k in by)].append(row)
    return [
        ValidTuple(row, row[time], later[0][time] if (later := part[i + count : i + count + 1]) else FOREVER)
        for part in partitions.values()
        for i, row in enumerate(part)
    ]


@dataclass(frozen=True, slots=True)
class Combination:
    """One tuple for each alias bound so far, and the interval during which all of them are valid."""

    rows: dict[str, Row]
    born: float
    dies: float

    def extend(self, alias: str, tuple_: ValidTuple) -> Combination:
        born, dies = max(self.born, tuple_.born), min(self.dies, tuple_.dies)
        return Combination({**self.rows, alias: tuple_.row}, born, dies)

    def satisfies(self, tests: Iterable[Evaluator]) -> bool:
        return self.born < self.dies and all(test(self.rows) is True for test in tests)


def _join_tuples(select: Select, pools: dict[str, list[ValidTuple]], limit: int | None) -> list[Combination]:
    """All combinations of tuples that satisfy WHERE and have an interval, built one alias after the other."""
    for alias, pool in pools.items():
        own = [compile_expr(term) for term in select.where if find_aliases(term) == {alias}]
        pools[alias] = [t for t in pool if Combination({alias: t.row}, t.born, t.dies).satisfies(own)]
    constant = [compile_expr(term) for term in select.where if not find_aliases(term)]
    found = [Combination({}, ALWAYS, FOREVER)] if all(test({}) is True for test in constant) else []
    bound: frozenset[str] = frozenset()
    for alias in _choose_order(select):
        now = bound | {alias}
        terms = [term for term in select.where if alias in find_aliases(term) <= now and len(find_aliases(term)) > 1]
        tests = [compile_expr(term) for term in terms]
        candidates = _CandidateIndex(alias, pools[alias], terms)
        longer = (c.extend(alias, t) for c in found for t in candidates.find(c.rows))
        found = _collect_limited(
            (c for c in longer if c.satisfies(tests)), LIMIT_FACTOR * limit if limit is not None else None
        )
        bound = now
    return found


class _OrderedCombination(NamedTuple):
    """A combination and its position in the order of all tuples: time, stream, arrival."""

    combination: Combination
    position: tuple[float, int, int]


def _match_sequence(select: Select, mode: SeqMode, given: Mapping[str, pa.Table]) -> list[Combination]:
    """FROM SEQ, item by item: each later tuple is compared with all earlier combinations."""
    choose, once = (max, False) if mode == "recent" else (min, True)
    ranks = {name: rank for rank, name in enumerate(given)}
    found: list[_OrderedCombination] = []
    bound: set[str] = set()
    for source in select.sources:
        pool = compute_lifetimes(source, given[source.relation.name.casefold()])
        rank = ranks[source.relation.name.casefold()]
        now = bound | {source.alias}
        own = [
            compile_expr(t)
            for t in select.where
            if find_aliases(t) <= {source.alias} and (find_aliases(t) or not bound)
        ]
        both = [
            compile_expr(t) for t in select.where if source.alias in find_aliases(t) <= now and find_aliases(t) & bound
        ]
        later = [
            _OrderedCombination(Combination({source.alias: t.row}, t.born, t.dies), (t.born, rank, arrival))
            for arrival, t in enumerate(pool)
            if Combination({source.alias: t.row}, t.born, t.dies).satisfies(own)
        ]
        found = _pair_tuples(found, later, both, choose, once) if bound else later
        bound = now
    return [placed.combination for placed in found]


def _pair_tuples(
    earlier: list[_OrderedCombination],
    later: list[_OrderedCombination],
    tests: list[Evaluator],
    choose: Any,
    once: bool,
) -> list[_OrderedCombination]:
    """Pair each later tuple, in order, with the earlier combination that the mode chooses."""
    found: list[_OrderedCombination] = []
    for one in later:
        pairs = [
            (before.position, i, Combination({**before.combination.rows, **one.combination.rows}, one.position[0],
                                          min(before.combination.dies, one.combination.dies)))
            for i, before in enumerate(earlier)
            if before.position < one.position
        ]  # fmt: skip
        usable = [pair for pair in pairs if pair[2].satisfies(tests)]
        if usable:
            _, i, pair = choose(usable, key=lambda pair: pair[0])
            found.append(_OrderedCombination(pair, one.position))
            if once:
                earlier = earlier[:i] + earlier[i + 1 :]
    return found


def _choose_order(select: Select) -> list[str]:
    """The aliases in an order in which each has an equality with an earlier one, if possible."""
    left = [source.alias for source in select.sources]
    order = [left.pop(0)]
    while left:
        linked = (a for a in left if any(_match_equality(term, a, frozenset(order)) for term in select.where))
        order.append(next(linked, left[0]))
        left.remove(order[-1])
    return order


def _match_equality(term: Expr, alias: str, bound: frozenset[str]) -> tuple[Expr, Expr] | None:
    """For `f(alias) = g(bound)`, in either order: (f, g)."""
    if isinstance(term, Call) and term.op == "=":
        for mine, other in (term.args, term.args[::-1]):
            if find_aliases(mine) == {alias} and find_aliases(other) and find_aliases(other) <= bound:
                return mine, other
    return None


class _CandidateIndex:
    """The tuples of one alias that can extend a combination: those that satisfy one equality, or all."""

    def __init__(self, alias: str, pool: list[ValidTuple], terms: list[Expr]) -> None:
        self.pool = pool
        self.probe: Evaluator | None = None
        bound = frozenset(a for term in terms for a in find_aliases(term)) - {alias}
        pair = next((pair for term in terms if (pair := _match_equality(term, alias, bound))), None)
        if pair is None:
            return
        mine, self.probe = compile_expr(pair[0]), compile_expr(pair[1])
        self.index: defaultdict[Any, list[ValidTuple]] = defaultdict(list)
        for tuple_ in pool:
            value = mine({alias: tuple_.row})
            if value is not None:
                self.index[to_comparison_key(value)].append(tuple_)

    def find(self, rows: Env) -> list[ValidTuple]:
        if self.probe is None:
            return self.pool
        value = self.probe(rows)
        return [] if value is None else self.index.get(to_comparison_key(value), [])


class EmittedRow(NamedTuple):
    """A result row and its timestamp."""

    values: tuple[Any, ...]
    at: int


def emit(answer: list[ValidRow], how: Emit, limit: int | None = None) -> list[EmittedRow]:
    """The changing answer as a stream of rows."""
    return _collect_limited(_emit_rows(answer, how), limit)


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


def _collect_limited(rows: Iterable[T], limit: int | None) -> list[T]:
    kept: list[T] = []
    for row in rows:
        kept.append(row)
        if limit is not None and len(kept) > limit:
            raise TooManyRows(f"more than {limit} rows")
    return kept
