"""The oracle against DuckDB: validity written out in SQL, on random streams."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta

import duckdb
import pyarrow as pa
import pytest

from penstock.cql import UNBOUNDED, Query, Range, Select, Source, Stream, Table, Window
from penstock.cql.bound import SelectItem
from penstock.cql.windows import NOW, PartitionedRows, Rows
from penstock.expr import BOOL, INT, TIMESTAMP, Call, Column, Expr
from penstock.testing import expected, same_rows

NEVER = 2**62


@dataclass(frozen=True)
class Random:
    """A random join as a bound query and as the same join in DuckDB's SQL."""

    query: Query
    sql: str
    streams: dict[str, pa.Table]
    tables: dict[str, pa.Table]


def rows(rng: random.Random, count: int, *, timestamps: bool) -> pa.Table:
    """A stream of `count` rows in random order of arrival; equal times and NULLs are frequent."""

    def value(domain: int) -> int | None:
        return None if rng.random() < 0.1 else rng.randrange(domain)

    times: list[int | None] = [rng.randrange(30) for _ in range(count)]
    if count and rng.random() < 0.3:
        times[rng.randrange(count)] = None
    schema = pa.schema([("ts", TIMESTAMP if timestamps else INT), ("x", INT), ("y", INT)])
    start = datetime(2026, 1, 1)
    stored = [start + timedelta(microseconds=t) if timestamps and t is not None else t for t in times]
    return pa.table({"ts": stored, "x": [value(4) for _ in times], "y": [value(3) for _ in times]}, schema=schema)


def window(rng: random.Random) -> tuple[Window, str]:
    """A window, and the expirations of its tuples as a DuckDB expression over `t` (time), `arrival` and the columns."""
    kind = rng.choice(("range", "range", "rows", "partition", "now", "unbounded"))
    size = rng.randint(1, 12)
    if kind == "range":
        return Range(size), f"t + {size}"
    if kind == "rows":
        return Rows(size), f"coalesce(lead(t, {size}) OVER (ORDER BY t, arrival), {NEVER})"
    if kind == "partition":
        lead = f"lead(t, {size}) OVER (PARTITION BY x, y ORDER BY t, arrival)"
        return PartitionedRows(size, ("x", "y")), f"coalesce({lead}, {NEVER})"
    return (NOW, "t + 1") if kind == "now" else (UNBOUNDED, f"{NEVER}")


def predicates(rng: random.Random, names: list[str]) -> tuple[list[Expr], list[str]]:
    """A predicate from every alias to an earlier one, sometimes none."""
    bound, sql = [], []
    for i, alias in enumerate(names):
        if i and rng.random() < 0.9:
            op = rng.choice(("=", "=", "=", "<", "<=", "<>"))
            left, right = (rng.choice(names[:i]), rng.choice("xy")), (alias, rng.choice("xy"))
            bound.append(Call(op, (Column(*left, INT), Column(*right, INT)), BOOL))
            sql.append(f"{'.'.join(left)} {op} {'.'.join(right)}")
    return bound, sql


def make(seed: int) -> Random:
    rng = random.Random(seed)
    timestamps = rng.random() < 0.5
    time_type = TIMESTAMP if timestamps else INT
    names = list("abcd"[: rng.choice((1, 2, 2, 3, 3, 4))])
    sources, deaths, streams, tables = [], {}, {}, {}
    for i, alias in enumerate(names):
        table = rows(rng, rng.randint(0, 40 if len(names) < 4 else 15), timestamps=timestamps)
        if i and rng.random() < 0.15:
            tables[alias.upper()] = table
            sources.append(Source(alias, Table(alias.upper(), table.schema), None))
        else:
            streams[alias.upper()] = table
            shape, deaths[alias] = window(rng)
            sources.append(Source(alias, Stream(alias.upper(), table.schema, "ts"), shape))
    where, conditions = predicates(rng, names)
    emit = rng.choice(("istream", "istream", "dstream"))
    items = tuple(SelectItem(f"{a}{c}", Column(a, c, INT)) for a in names for c in "xy")
    query = Query("", emit, Select(tuple(sources), tuple(where), items))
    return Random(query, statement(names, deaths, conditions, emit, time_type), streams, tables)


def statement(names: list[str], deaths: dict[str, str], conditions: list[str], emit: str, kind: pa.DataType) -> str:
    """The join in SQL: every stream with its expirations, greatest(births) < least(expirations)."""
    timed = pa.types.is_timestamp(kind)
    time = "epoch_us(ts)" if timed else "ts"
    relations = [
        f"{a} AS (SELECT *, {deaths[a]} AS dies FROM (SELECT *, {time} AS t FROM {a}_rows WHERE ts IS NOT NULL))"
        if a in deaths
        else f"{a} AS (SELECT * FROM {a}_rows)"
        for a in names
    ]
    born = f"greatest({', '.join(f'{a}.t' for a in deaths)})"
    dies = f"least({', '.join(f'{a}.dies' for a in deaths)})"
    at = born if emit == "istream" else dies
    columns = ", ".join(f"{a}.{c} AS {a}{c}" for a in names for c in "xy")
    finite = [f"{dies} < {NEVER}"] if emit == "dstream" else []
    where = " AND ".join([f"{born} < {dies}", *conditions, *finite])
    ts = f"make_timestamp({at})" if timed else at
    return f"WITH {', '.join(relations)} SELECT {columns}, {ts} AS _ts FROM {', '.join(names)} WHERE {where}"


@pytest.fixture(scope="module")
def connection() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


@pytest.mark.parametrize("chunk", range(8))
def test_random_joins(chunk: int, connection: duckdb.DuckDBPyConnection) -> None:
    answered = 0
    for seed in range(chunk * 25, chunk * 25 + 25):
        case = make(seed)
        for name, table in {**case.streams, **case.tables}.items():
            arrival = pa.array(range(table.num_rows), pa.int64())
            connection.register(f"{name.lower()}_rows", table.append_column("arrival", arrival))
        wanted = connection.sql(case.sql).to_arrow_table().cast(case.query.schema)
        actual = expected(case.query, case.streams, case.tables)
        try:
            same_rows(actual, wanted)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}\n{case.sql}\n{error}") from error
        assert actual.column("_ts").to_pylist() == sorted(actual.column("_ts").to_pylist())
        answered += actual.num_rows > 0
    assert answered > 10, "most of these joins should have answers"
