"""What `push` and `table` take: Arrow exporters, dicts of columns, lists of dicts; and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import penstock as ps

duckdb = pytest.importorskip("duckdb")

START = datetime(2026, 1, 1)
ROWS = pa.table(
    {
        "ts": pa.array([START, START + timedelta(seconds=1)], pa.timestamp("us")),
        "x": pa.array([1, 2], pa.int64()),
        "name": pa.array(["a", None], pa.string()),
    }
)


class StreamExporter:
    """An object that only has `__arrow_c_stream__`, as a polars DataFrame has."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


class ArrayExporter:
    """An object that only has `__arrow_c_array__`."""

    def __init__(self, table: pa.Table) -> None:
        self.batch = table.combine_chunks().to_batches()[0]

    def __arrow_c_array__(self, requested_schema: object | None = None) -> object:
        return self.batch.__arrow_c_array__(requested_schema)


def make_engine(kind: str = "timestamp") -> ps.Engine:
    engine = ps.Engine()
    engine.stream("A", {"ts": kind, "x": "bigint", "name": "string"}, time="ts")
    engine.query("q", "SELECT ts, x, name FROM A")
    return engine


def push_all(engine: ps.Engine, data: Any) -> pa.Table:
    """All results of the query q."""
    return pa.concat_tables([engine.push({"A": data})["q"], engine.flush()["q"]])


def read_back(data: Any, kind: str = "timestamp") -> list[dict[str, Any]]:
    return push_all(make_engine(kind), data).drop_columns(["_ts"]).to_pylist()


def load_polars_like(table: pa.Table) -> StreamExporter:
    """A table with the types that polars exports."""
    views = table.cast(pa.schema([("ts", pa.timestamp("us")), ("x", pa.int64()), ("name", pa.string_view())]))
    return StreamExporter(views)


def load_categorical(table: pa.Table) -> StreamExporter:
    """A table with a categorical column, as polars exports it."""
    words = pa.DictionaryArray.from_arrays(pa.array([0, None], pa.uint32()), pa.array(["a"], pa.string_view()))
    return StreamExporter(table.set_column(2, "name", words))


SOURCES: dict[str, Callable[[], Any]] = {
    "table": lambda: ROWS,
    "batch": lambda: ROWS.to_batches()[0],
    "reader": ROWS.to_reader,
    "pandas": ROWS.to_pandas,
    "pandas with arrow types": lambda: ROWS.to_pandas(types_mapper=pd.ArrowDtype),
    "pandas with index": lambda: ROWS.to_pandas().set_index("ts"),
    "filtered pandas": lambda: pd.concat([ROWS.to_pandas(), ROWS.to_pandas()]).iloc[[2, 1]],
    "duckdb": lambda: duckdb.sql("SELECT * FROM ROWS"),
    "stream exporter": lambda: StreamExporter(ROWS),
    "array exporter": lambda: ArrayExporter(ROWS),
    "string views": lambda: load_polars_like(ROWS),
    "categorical": lambda: load_categorical(ROWS),
    "dict of lists": ROWS.to_pydict,
    "dict of tuples": lambda: {name: tuple(values) for name, values in ROWS.to_pydict().items()},
    "dict of arrow": lambda: dict(zip(ROWS.column_names, ROWS.columns, strict=True)),
    "dict of numpy": lambda: {
        "ts": np.array([START, START + timedelta(seconds=1)], "datetime64[us]"),
        "x": np.array([1, 2], np.int32),
        "name": np.array(["a", None], object),
    },
    "dict of series": lambda: {name: ROWS.to_pandas()[name] for name in ROWS.column_names},
    "list of dicts": ROWS.to_pylist,
    "dicts without NULLs": lambda: [{k: v for k, v in row.items() if v is not None} for row in ROWS.to_pylist()],
    "tuple of dicts": lambda: tuple(ROWS.to_pylist()),
    "other order and case": lambda: ROWS.select(["name", "x", "ts"]).rename_columns(["NAME", "X", "Ts"]),
}


@pytest.mark.parametrize("source", SOURCES)
def test_push_takes(source: str) -> None:
    assert read_back(SOURCES[source]()) == ROWS.to_pylist()


@pytest.mark.parametrize("source", SOURCES)
def test_table_takes(source: str) -> None:
    engine = ps.Engine()
    engine.stream("A", {"t": "bigint", "k": "bigint"}, time="t")
    engine.table("rooms", SOURCES[source]())
    engine.query("q", "SELECT rooms.ts AS ts, rooms.x AS x, rooms.name AS name FROM A, rooms WHERE A.k = rooms.x")
    assert push_all(engine, {"t": [1, 2], "k": [1, 2]}).drop_columns(["_ts"]).to_pylist() == ROWS.to_pylist()


@pytest.mark.parametrize(
    "data", [[], {}, (), {"ts": [], "x": [], "name": []}, ROWS.slice(2), ROWS.to_pandas().iloc[:0]]
)
def test_no_rows(data: Any) -> None:
    assert read_back(data) == []


NOON = datetime(2026, 1, 1, 12)
TIMES: dict[str, Any] = {
    "naive": NOON,
    "utc": NOON.replace(tzinfo=UTC),
    "offset": datetime(2026, 1, 1, 14, tzinfo=timezone(timedelta(hours=2))),
    "pandas": pd.Timestamp(NOON),
    "numpy": np.datetime64(NOON, "s"),
    "text": "2026-01-01T12:00:00",
    "text with blank": "2026-01-01 12:00:00",
    "utc text": "2026-01-01T12:00:00Z",
    "offset text": "2026-01-01T14:00:00.000+02:00",
}


@pytest.mark.parametrize("form", TIMES)
@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Berlin")])
def test_time_forms(form: str, kind: pa.DataType) -> None:
    """Every form is the same instant; a time without a zone is UTC."""
    engine = ps.Engine()
    engine.stream("A", pa.schema([("ts", kind)]), time="ts")
    engine.query("q", "SELECT ts FROM A")
    out = push_all(engine, [{"ts": TIMES[form]}])
    assert out.schema.types == [kind, kind]
    assert out["ts"].cast(pa.int64()).to_pylist() == [int(NOON.replace(tzinfo=UTC).timestamp()) * 1_000_000]


@pytest.mark.parametrize("unit", ["D", "h", "m", "s", "ms", "us", "ns"])
def test_numpy_times(unit: str) -> None:
    times = np.array(["2026-01-01"], f"datetime64[{unit}]")
    assert read_back({"ts": times, "x": [1], "name": ["a"]})[0]["ts"] == START


def test_dates_and_mixed_offsets() -> None:
    assert read_back({"ts": [date(2026, 1, 1)], "x": [1], "name": ["a"]})[0]["ts"] == START
    mixed = ["2026-01-01", "2026-01-01T02:00:00+02:00"]
    assert [row["ts"] for row in read_back({"ts": mixed, "x": [1, 2], "name": ["a", "b"]})] == [START, START]


def test_numbers_without_common_type() -> None:
    engine = ps.Engine()
    engine.stream("A", {"ts": "bigint", "d": "decimal(10, 2)", "f": "double"}, time="ts")
    engine.query("q", "SELECT d, f FROM A")
    rows = push_all(engine, {"ts": [1, 2], "d": [1, Decimal("2.5")], "f": [float("nan"), 2]}).to_pylist()
    assert [row["d"] for row in rows] == [1, Decimal("2.5")]
    assert rows[0]["f"] != rows[0]["f"]  # NaN stays a number


def test_nan_of_series_is_null() -> None:
    frame = pd.DataFrame({"ts": [1, 2], "x": [1, None], "name": ["a", None]})
    assert [row["x"] for row in read_back(frame, "bigint")] == [1, None]


def test_internal_stream_needs_no_time() -> None:
    engine = ps.Engine(clock=lambda: 7)
    engine.stream("A", {"ts": "bigint", "x": "bigint"}, time="ts", timestamps="internal")
    engine.query("q", "SELECT x FROM A")
    assert push_all(engine, [{"x": 1}]).to_pylist() == [{"x": 1, "_ts": 7}]


def test_null_time_of_dict_is_dead_letter() -> None:
    engine = make_engine()
    out = push_all(engine, [{"ts": None, "x": 1}, {"ts": START, "x": 2, "name": "b"}])
    assert engine.dead_letters("A").column("_reason").to_pylist() == ["ts is NULL"]
    assert out.column("x").to_pylist() == [2]


MISTAKES: dict[str, tuple[Any, str, str]] = {
    "table without stream": (ROWS, "NOT_A_MAPPING", "push({'A': table})"),
    "frame without stream": (ROWS.to_pandas(), "NOT_A_MAPPING", "push({'A': dataframe})"),
    "rows without stream": ([{"ts": START}], "NOT_A_MAPPING", "push({'A': list})"),
    "columns without stream": ({"ts": [START], "x": [1]}, "UNKNOWN_STREAM", "ts is a column of A: push({'A': {'ts'"),
    "near name": ({"rooom": [], "temprature": ROWS}, "UNKNOWN_STREAM", "there is no stream rooom"),
    "misspelt stream": ({"temprature": ROWS}, "UNKNOWN_STREAM", "did you mean temperature?"),
    "generator": ({"A": (row for row in [])}, "NOT_A_TABLE", "list(rows)"),
    "iterator": ({"A": iter([{"ts": START}])}, "NOT_A_TABLE", "list(rows)"),
    "number": ({"A": 5}, "NOT_A_TABLE", "the rows of A are of type int; give a pyarrow.Table"),
    "text": ({"A": "rows.csv"}, "NOT_A_TABLE", "of type str; give"),
    "set": ({"A": {1, 2}}, "NOT_A_TABLE", "of type set; give"),
    "None": ({"A": None}, "NOT_A_TABLE", "of type NoneType"),
    "arrow array": ({"A": pa.array([1, 2])}, "NOT_A_TABLE", "not a table"),
    "list of numbers": ({"A": [1, 2]}, "NOT_A_TABLE", "one dict of column values per row"),
    "list of tables": ({"A": [ROWS]}, "NOT_A_TABLE", "a list that holds a Table"),
    "one row": ({"A": {"ts": START, "x": 1, "name": "a"}}, "NOT_A_COLUMN", "A.ts is of type datetime; give a list"),
    "text column": ({"A": {"ts": [START], "x": [1], "name": "a"}}, "NOT_A_COLUMN", "A.name is of type str"),
    "lengths": ({"A": {"ts": [START], "x": [1, 2], "name": []}}, "COLUMN_LENGTH", "ts has 1, x has 2, name has 0"),
    "numbered columns": ({"A": {0: [START]}}, "NOT_A_TABLE", "named by a text, not 0"),
    "missing column": ({"A": {"ts": [START], "x": [1]}}, "COLUMNS_DIFFER", "lacks name"),
    "extra key": ({"A": [*ROWS.to_pylist(), {"ts": START, "y": 1}]}, "COLUMNS_DIFFER", "has unknown y"),
    "no common type": ({"A": {"ts": [START], "x": [[1]], "name": ["a"]}}, "COLUMN_TYPE", "A.x"),
    "mixed values": ({"A": {"ts": [START, START], "x": [1, "b"], "name": ["a", "b"]}}, "COLUMN_TYPE", "A.x"),
    "large number": ({"A": {"ts": [START], "x": [2**70], "name": ["a"]}}, "COLUMN_TYPE", "A.x"),
    "integer as time": ({"A": {"ts": [5], "x": [1], "name": ["a"]}}, "COLUMN_TYPE", "A.ts is timestamp[us]"),
    "mixed times": ({"A": {"ts": [START, 5], "x": [1, 2], "name": ["a", "b"]}}, "COLUMN_TYPE", "A.ts"),
    "bad time text": ({"A": {"ts": ["soon"], "x": [1], "name": ["a"]}}, "COLUMN_TYPE", "'soon' is not ISO text"),
    "number as text": ({"A": {"ts": [START], "x": ["1"], "name": ["a"]}}, "COLUMN_TYPE", "A.x is int64"),
    "stream twice": ({"A": ROWS, "a": ROWS}, "DUPLICATE_STREAM", "the push has A under two spellings"),
    "fraction": ({"A": {"ts": [START], "x": [1.5], "name": ["a"]}}, "COLUMN_TYPE", "A.x is int64"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_wrong_data_refused(mistake: str) -> None:
    data, condition, says = MISTAKES[mistake]
    engine = make_engine()
    engine.stream("temperature", {"t": "bigint", "value": "double"}, time="t")
    with pytest.raises(ps.DataError) as caught:
        engine.push(data)
    assert caught.value.condition == condition
    assert says in str(caught.value)
    assert push_all(engine, ROWS).num_rows == 2


def test_names_are_checked_before_a_reader_is_read() -> None:
    engine, reader = make_engine(), ROWS.to_reader()
    with pytest.raises(ps.DataError, match="no stream B"):
        engine.push({"A": reader, "B": ROWS})
    assert push_all(engine, reader).num_rows == 2


@pytest.mark.parametrize("kind", ["decimal(3, 1)", "decimal(38, 30)", "decimal(38, 0)"])
def test_integers_are_pushed_to_decimals(kind: str) -> None:
    """Arrow asks a decimal to have room for every integer, not for those that are pushed."""
    engine = ps.Engine()
    engine.stream("A", {"ts": "bigint", "d": kind}, time="ts")
    engine.query("q", "SELECT d FROM A")
    if kind == "decimal(3, 1)":
        with pytest.raises(ps.DataError, match="COLUMN_TYPE"):
            engine.push({"A": {"ts": [4], "d": [100]}})
    found = push_all(engine, {"ts": [1, 2, 3], "d": [-7, None, 99]})
    assert found.column("d").to_pylist() == [Decimal(-7), None, Decimal(99)]


@pytest.mark.parametrize("data", [[], {}, 5, None, iter([])])
def test_table_without_columns_refused(data: Any) -> None:
    with pytest.raises(ps.PenstockError, match=r"\[(NO_COLUMNS|NOT_A_TABLE)\]"):
        ps.Engine().table("rooms", data)


@pytest.mark.parametrize("names", [["ts", "x"], ["x", "ts"]], ids=["declared order", "other order"])
@pytest.mark.parametrize("make", [pa.table, pa.RecordBatch.from_pydict], ids=["table", "record batch"])
def test_pushed_memory_may_change_later(make: Callable[[Any], Any], names: list[str]) -> None:
    """A row waits for the other stream while the caller uses the arrays of the push again."""
    engine = ps.Engine()
    for stream in "AB":
        engine.stream(stream, {"ts": "bigint", "x": "bigint"}, time="ts")
    engine.query("pairs", "SELECT A.x FROM A [RANGE 10], B [RANGE 10] WHERE A.x = B.x")
    values = {"ts": np.array([1]), "x": np.array([7])}
    engine.push({"A": make({name: values[name] for name in names})})
    values["x"][0], values["ts"][0] = 8, 9
    assert engine.push({"B": {"ts": [4], "x": [7]}, "A": {"ts": [5], "x": [0]}})["pairs"].to_pylist() == [
        {"x": 7, "_ts": 4}
    ]
