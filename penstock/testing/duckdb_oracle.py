"""The oracle on DuckDB: the expected answer of a query, computed over validity intervals in SQL.

Law: every tuple is valid during [born, dies), which its window gives; a combination is in the answer while all of its
tuples are valid. Intervals have a common instant exactly if every two of them do, so a join tests them pair by pair.
DISTINCT, EXCEPT and GROUP BY change only at instants at which a row enters or leaves, and are computed at these
instants.

The oracle shares the binder with the engine and nothing else. Tens of thousands of tuples take seconds. For small
cases, `penstock.testing.expected` computes the same answer by brute force.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.cql import (
    FunctionSpec,
    OuterJoin,
    Query,
    QueryBody,
    RowTransform,
    Select,
    SeqMode,
    Source,
    Stream,
    Subquery,
    Window,
    describe_function,
    is_by_value,
    reads_final_joins,
)
from penstock.errors import UnsupportedError
from penstock.expr import Aggregate, Column, find_aliases, walk
from penstock.testing.combinations import TooManyRows
from penstock.testing.duckdb_final import DuckDBFinalRows
from penstock.testing.duckdb_intervals import (
    COPIES,
    format_counted,
    format_emit,
    format_group,
    format_over_group,
    format_reports,
    format_row_reports,
    format_slide,
)
from penstock.testing.duckdb_sequence import pair_sequence
from penstock.testing.duckdb_sql import (
    Resolve,
    format_aggregate,
    format_duckdb_type,
    qualify,
    quote,
    register_function,
    to_duckdb,
    to_plain_table,
    to_typed_column,
)
from penstock.testing.duckdb_transforms import BORN, DIES, MAX_TIME, MIN_TIME, format_transform
from penstock.testing.interval_operators import ALWAYS, FOREVER
from penstock.testing.oracle import bind_text


def expected_by_duckdb(
    query: str | Query,
    streams: Mapping[str, pa.Table],
    tables: Mapping[str, pa.Table] | None = None,
    time: str | Mapping[str, str] | None = None,
    *,
    limit: int | None = None,
    functions: Mapping[str, FunctionSpec] | None = None,
) -> pa.Table:
    """The expected answer of `query` on these streams, sorted by `_ts`; the arguments are those of `expected`.

    With `limit`, a join of more rows raises `TooManyRows`. The arguments of `functions` are bigints. Sums of doubles
    are exact only if no partial sum is rounded. A derived stream is passed as a stream: the answer of its query.

    >>> a = pa.table({"ts": [1, 5], "x": [7, 7]})
    >>> b = pa.table({"ts": [3], "x": [7]})
    >>> expected_by_duckdb("SELECT A.ts AS a, B.ts AS b FROM A [RANGE 10], B [RANGE 10] WHERE A.x = B.x",
    ...                    {"A": a, "B": b}).to_pylist()
    [{'a': 1, 'b': 3, '_ts': 3}, {'a': 5, 'b': 3, '_ts': 5}]
    """
    tables = tables or {}
    bound = bind_text(query, streams, tables, time, functions=functions) if isinstance(query, str) else query
    with _DuckDBOracle({**streams, **tables}, limit) as intervals:
        for name, (function, type_) in (functions or {}).items():
            register_function(intervals.connection, describe_function(name, function, type_))
        return intervals.compute_answer(bound)


def connect() -> Any:
    """A connection to DuckDB."""
    try:
        import duckdb  # noqa: PLC0415 (only this oracle needs it)
    except ImportError as error:
        message = "this oracle runs on DuckDB; install it with: pip install 'penstock[lab]'"
        raise UnsupportedError("DUCKDB_MISSING", message) from error
    return duckdb.connect(config={"threads": 1})


class _DuckDBOracle:
    """One computation: the relations in DuckDB, and tables of rows with their validity intervals."""

    def __init__(self, relations: Mapping[str, pa.Table], limit: int | None) -> None:
        self.connection = connect()
        self.relations = {name.casefold(): table for name, table in relations.items()}
        self.limit = limit
        self.names = (f"t{number}" for number in itertools.count())
        self.duckdb_names: dict[str, str] = {}

    def __enter__(self) -> _DuckDBOracle:
        return self

    def __exit__(self, *_error: object) -> None:
        self.connection.close()

    def compute_answer(self, query: Query) -> pa.Table:
        """The answer of a bound query as a stream of rows."""
        rows = self.store_body(query.body)
        columns = [f"c{place}" for place in range(len(query.body.items))]
        if is_by_value(query.body) and query.emit != "close":
            rows = self.store(format_counted(rows, None, columns, "here"))
        shown = self.store_limited(format_emit(rows, columns, query.emit))
        ended = f"SELECT * REPLACE (nullif(instant, {MAX_TIME - 1}) AS instant) FROM {shown} ORDER BY instant"
        table = self.connection.sql(ended).to_arrow_table()
        arrays = [
            to_typed_column(column, field.type) for column, field in zip(table.columns, query.schema, strict=True)
        ]
        return pa.table(arrays, schema=query.schema)

    def store_body(self, body: QueryBody) -> str:
        """The name of a table with the rows of a body: c0, c1, ... and the interval of each row."""
        if isinstance(body, Select):
            return self.store_select(body)
        if isinstance(body, OuterJoin):
            return self.store_outer_join(body)
        if isinstance(body, RowTransform):
            return self.store(format_transform(body, self.store_valid_rows(body.source, ())))
        left, right = self.store_body(body.left), self.store_body(body.right)
        width = len(body.items)
        columns = [f"c{place}" for place in range(width)]
        if body.kind == "union all":
            both = ", ".join([*columns, BORN, DIES])
            return self.store(f"SELECT {both} FROM {left} UNION ALL SELECT {both} FROM {right}")
        return self.store(format_counted(left, right, columns, COPIES[body.kind]))

    def store_select(self, select: Select) -> str:
        if reads_final_joins(select):
            final = DuckDBFinalRows(self.store_limited, lambda source: self.store_valid_rows(source, ()))
            return self.store(final.format_answer(select))
        clause, resolve, born, dies = (
            self.build_join(select) if select.sequence is None else self.store_sequence(select, select.sequence.mode)
        )
        if select.group_by is not None:
            rows = self.store_groups(select, clause, resolve, (born, dies))
        else:
            shown = [f"{to_duckdb(item.expr, resolve)} AS c{place}" for place, item in enumerate(select.items)]
            rows = self.store_limited(f"SELECT {', '.join(shown)}, {born} AS {BORN}, {dies} AS {DIES} {clause}")
        if select.distinct:
            rows = self.store(format_counted(rows, None, [f"c{place}" for place in range(len(select.items))]))
        return rows

    # ── rows below a SELECT ──────────────────────────────────────────────────────────────────────────────────────

    def build_join(self, select: Select) -> tuple[str, Resolve, str, str]:
        """FROM and WHERE of a join, and the interval of its rows."""
        items, where = [], []
        for source in select.sources:
            own = [to_duckdb(term) for term in select.where if find_aliases(term) == {source.alias}]
            items.append(f"{self.store_valid_rows(source, own)} AS {quote(source.alias)}")
        where += [to_duckdb(term) for term in select.where if len(find_aliases(term)) != 1]
        timed = [quote(source.alias) for source in select.sources if not source.is_table]
        for one, other in itertools.combinations(timed, 2):
            where += [f"{one}.{BORN} < {other}.{DIES}", f"{other}.{BORN} < {one}.{DIES}"]
        clause = f"FROM {', '.join(items)}" + (f" WHERE {' AND '.join(where)}" if where else "")
        if not timed:
            return clause, qualify, f"CAST({MIN_TIME} AS BIGINT)", f"CAST({MAX_TIME} AS BIGINT)"
        born, dies = (", ".join(f"{alias}.{end}" for alias in timed) for end in (BORN, DIES))
        if len(timed) == 1:
            return clause, qualify, born, dies
        return clause, qualify, f"greatest({born})", f"least({dies})"

    def store_valid_rows(self, source: Source, conditions: Sequence[str]) -> str:
        """A table of the tuples of a FROM item that satisfy its conditions, with their intervals."""
        if isinstance(source.relation, Subquery):
            names = source.relation.schema.names
            columns = ", ".join(f"c{place} AS {quote(name)}" for place, name in enumerate(names))
            rows = f"SELECT {columns}, {BORN}, {DIES} FROM {self.store_body(source.relation.body)}"
            return self.store_passing(source, rows, conditions)
        relation = self.register_relation(source.relation.name)
        if not isinstance(source.relation, Stream):
            rows = f"SELECT *, {MIN_TIME} AS {BORN}, {MAX_TIME} AS {DIES} FROM {relation}"
        else:
            time = quote(source.relation.time)
            dies = _format_end_time(source.window, time)
            rows = (
                f"SELECT *, CAST({time} AS BIGINT) AS {BORN}, {dies} AS {DIES} FROM {relation} WHERE {time} IS NOT NULL"
            )
        return self.store_passing(source, rows, conditions)

    def store_passing(self, source: Source, rows: str, conditions: Sequence[str]) -> str:
        """A table of the rows that are valid at some instant and satisfy conditions on them."""
        tests = " AND ".join([f"{BORN} < {DIES}", *conditions])
        return self.store(f"SELECT * FROM ({rows}) AS {quote(source.alias)} WHERE {tests}")

    def store_outer_join(self, body: OuterJoin) -> str:
        """The pairs, and the rows that are kept while they have no partner; or rows of the left by their partners."""
        numbered = {}
        for side in (body.left, body.right):
            rows = self.store_valid_rows(side, ())
            numbered[side.alias] = self.store(f'SELECT *, row_number() OVER () AS " n" FROM {rows}')
        one, other = (quote(side.alias) for side in (body.left, body.right))
        tests = [f"{one}.{BORN} < {other}.{DIES}", f"{other}.{BORN} < {one}.{DIES}", *map(to_duckdb, body.on)]
        joined = f"{numbered[body.left.alias]} AS {one} JOIN {numbered[body.right.alias]} AS {other}"
        shown = ", ".join(f"{to_duckdb(item.expr)} AS c{place}" for place, item in enumerate(body.items))
        interval = f"greatest({one}.{BORN}, {other}.{BORN}) AS {BORN}, least({one}.{DIES}, {other}.{DIES}) AS {DIES}"
        on = " AND ".join(tests)
        parts = [f"SELECT {shown}, {interval} FROM {joined} ON {on}"] if body.kind in ("left", "full") else []
        columns = [f"c{place}" for place in range(len(body.items))]
        kinds = {"semi": ("semi",), "mark": ("semi", "anti")}.get(body.kind, ("anti",))
        for side, kind in itertools.product((body.left, body.right)[: 2 if body.kind == "full" else 1], kinds):
            own = [
                f"{to_duckdb(item.expr)} AS c{place}"
                if find_aliases(item.expr) == {side.alias}
                else f"{kind == 'semi'} AS c{place}"
                if find_aliases(item.expr) == {""}
                else f"NULL::{format_duckdb_type(item.expr.type)} AS c{place}"
                for place, item in enumerate(body.items)
            ]
            number = f'{quote(side.alias)}." n" AS " n"'
            shown = ", ".join([*own, number])
            kept = self.store(f"SELECT {shown}, {BORN}, {DIES} FROM {numbered[side.alias]} AS {quote(side.alias)}")
            matched = self.store(f"SELECT {shown}, {interval} FROM {joined} ON {on}")
            if kind == "semi":
                found = format_counted(matched, None, [*columns, '" n"'])
            else:
                found = format_counted(kept, matched, [*columns, '" n"'], COPIES["except"])
            parts.append(f"SELECT {', '.join([*columns, BORN, DIES])} FROM ({found})")
        return self.store(" UNION ALL ".join(parts))

    def store_sequence(self, select: Select, mode: SeqMode) -> tuple[str, Resolve, str, str]:
        """The combinations of a sequence as a table with one column for each column of an item."""
        ranks = {name: rank for rank, name in enumerate(self.relations)}
        found = pair_sequence(select, mode, self.relations, ranks)
        arrays: dict[str, Any] = {}
        for source in select.sources:
            for field in source.relation.schema:
                plain = [combination.rows[source.alias][field.name] for combination in found]
                arrays[f"{source.alias} {field.name}"] = pa.array(plain, _to_plain_type(field.type))
        born = [MIN_TIME if each.born == ALWAYS else int(each.born) for each in found]
        dies = [MAX_TIME if each.dies == FOREVER else int(each.dies) for each in found]
        name = next(self.names)
        self.connection.register(name, pa.table({**arrays, " born": born, " dies": dies}))

        def resolve(column: Column | Aggregate) -> str:
            return quote(f"{column.alias} {column.name}") if isinstance(column, Column) else qualify(column)

        return f"FROM {name}", resolve, f"CAST({BORN} AS BIGINT)", f"CAST({DIES} AS BIGINT)"

    def register_relation(self, relation: str) -> str:
        """The name in DuckDB of a relation with the order of its arrivals."""
        name = relation.casefold()
        if name not in self.duckdb_names:
            table = to_plain_table(self.relations[name])
            self.duckdb_names[name] = next(self.names)
            arrival = pa.array(range(table.num_rows), pa.int64())
            self.connection.register(self.duckdb_names[name], table.append_column(" arrival", arrival))
        return self.duckdb_names[name]

    # ── groups ───────────────────────────────────────────────────────────────────────────────────────────────────

    def store_groups(self, select: Select, clause: str, resolve: Resolve, interval: tuple[str, str]) -> str:
        """GROUP BY: for each group and each instant of change, the aggregates of the valid rows."""
        keys = list(select.group_by or ())
        exprs = [item.expr for item in select.items] + ([select.having] if select.having is not None else [])
        aggregates = list(dict.fromkeys(n for e in exprs for n in walk(e) if isinstance(n, Aggregate)))
        arguments = list(dict.fromkeys(arg for node in aggregates for arg in node.args))
        columns = [f"{to_duckdb(term, resolve)} AS k{place}" for place, term in enumerate(keys)]
        columns += [f"{to_duckdb(term, resolve)} AS a{place}" for place, term in enumerate(arguments)]
        slides = {s.window.slide for s in select.sources if s.window.slide is not None}
        born, dies = (format_slide(each, slides) for each in interval)
        rows = self.store_limited(f"SELECT {', '.join([*columns, f'{born} AS {BORN}', f'{dies} AS {DIES}'])} {clause}")
        order = f"ORDER BY {', '.join(f'k{place}' for place in range(len(keys)))}" if keys else ""
        rank = f"dense_rank() OVER ({order})" if keys else "1"
        rows = self.store(f"SELECT *, {rank} AS g FROM {rows} WHERE {BORN} < {DIES}")

        def shown(node: Any) -> str:
            """An expression over a group as SQL over its aggregates."""
            if node in keys:
                return f"first(k{keys.index(node)})"
            if isinstance(node, Aggregate):
                return format_aggregate(node, [f"a{arguments.index(arg)}" for arg in node.args])
            raise UnsupportedError("ORACLE_EXPRESSION", f"{node} is not a key of the group")

        outputs = [format_over_group(item.expr, keys, shown) for item in select.items]
        having = format_over_group(select.having, keys, shown) if select.having is not None else "TRUE"
        counted = next((source for source in select.sources if source.window.row_slide is not None), None)
        if counted is not None:
            return self.store(format_row_reports(rows, outputs, having, self.store_report_times(counted)))
        if slides:
            return self.store(format_reports(rows, outputs, having, *slides))
        return self.store(format_group(rows, outputs, having))

    def store_report_times(self, source: Source) -> str:
        """The instants at which the rows of a stream reach a multiple of the slide, each with the next."""
        relation, time = self.register_relation(source.relation.name), quote(source.relation.time)  # type: ignore[union-attr]
        return self.store(f"""
            WITH numbered AS (
                SELECT {time} AS instant, row_number() OVER (ORDER BY {time}, " arrival") AS n FROM {relation}
                WHERE {time} IS NOT NULL
            ), reached AS (SELECT DISTINCT instant FROM numbered WHERE n % {source.window.row_slide} = 0)
            SELECT instant, coalesce(lead(instant) OVER (ORDER BY instant), {MAX_TIME}) AS until FROM reached""")

    # ── tables ───────────────────────────────────────────────────────────────────────────────────────────────────

    def store(self, sql: str) -> str:
        name = next(self.names)
        self.connection.execute(f"CREATE TEMP TABLE {name} AS {sql}")
        return name

    def store_limited(self, sql: str) -> str:
        """Store the rows of a join or an answer; more rows than the limit raise `TooManyRows`."""
        if self.limit is None:
            return self.store(sql)
        name = self.store(f"{sql} LIMIT {self.limit + 1}")
        if self.connection.sql(f"SELECT count(*) FROM {name}").fetchall()[0][0] > self.limit:
            raise TooManyRows(f"more than {self.limit} rows")
        return name


def _to_plain_type(kind: pa.DataType) -> pa.DataType:
    return to_plain_table(pa.table({"": pa.array([], kind)})).schema.field(0).type


def _format_end_time(window: Window, time: str) -> str:
    """The time at which a tuple of a window expires."""
    if window.counted:
        partition = f"PARTITION BY {', '.join(map(quote, window.partition))} " if window.partition else ""
        later = f'lead(CAST({time} AS BIGINT), {window.row_count}) OVER ({partition}ORDER BY {time}, " arrival")'
        return f"coalesce({later}, {MAX_TIME})"
    lasts = window.lifetime
    return f"CAST({MAX_TIME} AS BIGINT)" if lasts is None else f"CAST({time} AS BIGINT) + {lasts}"
