"""The oracle on cases small enough to check by hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from penstock.cql import UNBOUNDED, Emit, Query, QueryBody, Range, Select, SetOperation, Source, Stream, Table, Window
from penstock.cql.bound import SelectItem
from penstock.cql.windows import NOW, STATIC, PartitionedRows, Rows
from penstock.errors import QueryError
from penstock.expr import BOOL, INT, Aggregate, Call, Column
from penstock.testing import TooManyRows, expected
from penstock.testing.oracle import guess_time_column

SCHEMA = pa.schema([("ts", INT), ("x", INT)])


def stream(*rows: tuple[int | None, int | None]) -> pa.Table:
    return pa.table({"ts": [t for t, _ in rows], "x": [x for _, x in rows]}, schema=SCHEMA)


def source(alias: str, window: Window) -> Source:
    name = alias.upper()
    return Source(alias, Table(name, SCHEMA) if window is STATIC else Stream(name, SCHEMA, "ts"), window)


def col(alias: str, name: str = "x") -> Column:
    return Column(alias, name, INT)


def equal(a: str, b: str) -> Call:
    return Call("=", (col(a), col(b)), BOOL)


def select(window: Window, **other: Any) -> Select:
    return Select((source("a", window),), (), (SelectItem("x", col("a")),), **other)


def answer(body: QueryBody, emit: Emit = "istream", **given: pa.Table) -> list[tuple[Any, ...]]:
    streams = {name.upper(): table for name, table in given.items()}
    return as_rows(expected(Query("", emit, body), streams))


def as_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    found: Iterable[tuple[Any, ...]] = zip(*(c.to_pylist() for c in table.columns), strict=True)
    return sorted(found, key=lambda row: (row[-1], *(value is not None and value for value in row)))


A = stream((1, 10), (3, 20), (3, 30), (None, 99), (2, 40))


@pytest.mark.parametrize(
    ("window", "deaths"),
    [
        (Range(5), [(10, 6), (40, 7), (20, 8), (30, 8)]),
        (NOW, [(10, 2), (40, 3), (20, 4), (30, 4)]),
        (UNBOUNDED, []),
        (Rows(1), [(10, 2), (40, 3)]),  # 20 and 30 share an instant: 20 never lives, 30 never dies
        (Rows(2), [(10, 3), (40, 3)]),
        (Rows(9), []),
    ],
)
def test_windows(window: Window, deaths: list[tuple[int, int]]) -> None:
    assert answer(select(window), "dstream", a=A) == deaths


def test_row_with_empty_lifetime_is_omitted() -> None:
    assert answer(select(Rows(1)), a=A) == [(10, 1), (40, 2), (30, 3)]


def test_partitioned_rows_window_with_null() -> None:
    given = stream((1, 7), (2, None), (3, 8), (4, 7), (5, None))
    assert answer(select(PartitionedRows(1, ("x",))), "dstream", a=given) == [(7, 4), (None, 5)]


def test_rows_window_counts_before_filter() -> None:
    body = Select((source("a", Rows(1)),), (Call("<>", (col("a"), col("a", "ts")), BOOL),),
                  (SelectItem("x", col("a")),))  # fmt: skip
    assert answer(body, "dstream", a=stream((1, 9), (2, 2), (3, 9))) == [(9, 2)]


def join(*windows: Window) -> Select:
    names = "abc"[: len(windows)]
    where = tuple(equal(x, y) for x, y in itertools.pairwise(names))
    items = tuple(SelectItem(alias, col(alias, "ts")) for alias in names)
    return Select(tuple(map(source, names, windows)), where, items)


def test_range_joins_end_strictly() -> None:
    body = join(Range(5), Range(10))
    given = {"a": stream((0, 1)), "b": stream((4, 1), (5, 1))}
    assert answer(body, **given) == [(0, 4, 4)]
    assert answer(body, "dstream", **given) == [(0, 4, 5)]


def test_rstream_emits_whole_answer_on_change() -> None:
    body = select(Range(5))
    assert answer(body, "rstream", a=stream((0, 1), (3, 2))) == [(1, 0), (1, 3), (2, 3), (2, 5)]


def test_null_keys_and_static_tables() -> None:
    body = join(NOW, STATIC)
    streams, tables = {"A": stream((5, 1), (6, None))}, {"B": stream((99, 1), (98, None))}
    assert as_rows(expected(Query("", "istream", body), streams, tables)) == [(5, 99, 5)]


def test_empty_answer_schema() -> None:
    table = expected(Query("", "istream", join(NOW, NOW)), {"A": stream(), "B": stream()})
    assert table.column_names == ["a", "b", "_ts"]
    assert table.num_rows == 0


def test_row_limit() -> None:
    with pytest.raises(TooManyRows):
        expected(Query("", "istream", select(NOW)), {"A": A}, limit=3)


def test_union_all_and_except() -> None:
    left = select(Range(5))
    right = Select((source("b", Range(2)),), (), (SelectItem("x", col("b")),))
    given = {"a": stream((0, 1), (1, 2)), "b": stream((1, 1))}
    assert answer(SetOperation("union all", left, right), **given) == [(1, 0), (1, 1), (2, 1)]
    # 1 is excluded during [1, 3) and valid again until 5
    minus = SetOperation("except", left, right)
    assert answer(minus, **given) == [(1, 0), (2, 1), (1, 3)]
    assert answer(minus, "dstream", **given) == [(1, 1), (1, 5), (2, 6)]


def test_distinct_lives_while_any_row() -> None:
    given = stream((0, 1), (3, 1), (8, 1))
    body = select(Range(5), distinct=True)
    assert answer(body, a=given) == [(1, 0)]
    assert answer(body, "dstream", a=given) == [(1, 13)]
    assert answer(body, "rstream", a=given) == [(1, 0)]


def test_group_emits_on_value_change() -> None:
    count = Aggregate("count", (), False, INT)
    total = Aggregate("sum", (col("a", "ts"),), False, INT)
    body = Select(
        (source("a", Range(5)),),
        (),
        (SelectItem("x", col("a")), SelectItem("n", count), SelectItem("s", total)),
        group_by=(col("a"),),
    )
    assert answer(body, a=stream((0, 7), (3, 7), (3, 8))) == [(7, 1, 0, 0), (7, 2, 3, 3), (8, 1, 3, 3), (7, 1, 3, 5)]


def test_global_aggregate_without_rows() -> None:
    body = Select((source("a", Range(5)),), (), (SelectItem("n", Aggregate("count", (), False, INT)),), group_by=())
    assert answer(body, a=stream((0, 7))) == [(1, 0)]
    assert answer(body, "dstream", a=stream((0, 7))) == [(1, 5)]


def test_default_time_column() -> None:
    stamp = pa.timestamp("us")
    assert guess_time_column("s", pa.schema([("n", INT), ("at", stamp), ("TS", INT)])) == "TS"
    assert guess_time_column("s", pa.schema([("n", INT), ("at", stamp)])) == "at"
    assert guess_time_column("s", pa.schema([("v", pa.float64()), ("n", INT)])) == "n"
    with pytest.raises(QueryError, match="it has v"):
        guess_time_column("s", pa.schema([("v", pa.float64())]))
