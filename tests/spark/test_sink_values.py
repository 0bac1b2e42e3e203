"""Values, names and types that tables take unchanged: appended, and kept up to date by the changes of a query."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from iceberg_support import Lake
from postgres_support import Database

import penstock as ps
from penstock.spark.sinks import Attempt

TIME = datetime(2026, 3, 1, 8, 0, 0, 123456)
ZONED = TIME.replace(tzinfo=UTC)
NAN = float("nan")
CASES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["", "ü'\"\\", "\n\\.\n", "a,b\r\n", " ", "NULL", "🚰" * 3]),
    "bigint": (pa.int64(), [-(2**63), 2**63 - 1, 0]),
    "small": (pa.int8(), [-128, 127]),
    "double": (pa.float64(), [0.1 + 0.2, 1e308, 5e-324, math.inf, -math.inf]),
    "real": (pa.float32(), [0.5, -1.25]),
    "boolean": (pa.bool_(), [True, False]),
    "decimal": (pa.decimal128(38, 10), [Decimal("1234567890123456789012345678.0123456789"), Decimal("-0.0000000001")]),
    "date": (pa.date32(), [date(1970, 1, 1), date(9999, 12, 31), date(1, 1, 1)]),
    "time": (pa.timestamp("us"), [TIME, datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)]),
    "instant": (pa.timestamp("us", "UTC"), [ZONED, ZONED - timedelta(days=365 * 60)]),
    "oslo": (pa.timestamp("us", "Europe/Oslo"), [ZONED.astimezone(timezone(timedelta(hours=1)))]),
    "offset": (pa.timestamp("us", "+05:30"), [ZONED]),
    "milliseconds": (pa.timestamp("ms"), [TIME.replace(microsecond=123000)]),
    "seconds": (pa.timestamp("s", "UTC"), [ZONED.replace(microsecond=0)]),
}
NESTED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "texts": (pa.list_(pa.string()), [[], ["x", None, "q\"',{}\\", ""], ["NULL", "null"]]),
    "decimals": (pa.list_(pa.decimal128(5, 2)), [[Decimal("1.50"), None]]),
    "times": (pa.list_(pa.timestamp("ms", "Europe/Oslo")), [[ZONED.replace(microsecond=0)]]),
    "struct": (
        pa.struct([("a", pa.int32()), ("b", pa.list_(pa.float64()))]),
        [{"a": 1, "b": [1.5, None]}, {"a": None, "b": None}],
    ),
    "structs": (
        pa.list_(pa.struct([("when", pa.date32()), ("t", pa.string())])),
        [[{"when": date(2026, 1, 2), "t": "ü"}, None]],
    ),
    "map": (pa.map_(pa.string(), pa.int64()), [[("x", 1), ("y", None)], []]),
}
ODD_NAMES = ('k "q" ä', "Sel;'ect")


class DeltaTables:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def sink(self, name: str, **options: Any) -> Any:
        return ps.sinks.delta(self._folder / name, **options)

    def read(self, name: str) -> list[dict[str, Any]]:
        return DeltaTable(self._folder / name).to_pyarrow_table().to_pylist()


class IcebergTables:
    def __init__(self, folder: Path) -> None:
        self._lake = Lake(folder)

    def sink(self, name: str, **options: Any) -> Any:
        return self._lake.sink(name, **options)

    def read(self, name: str) -> list[dict[str, Any]]:
        return self._lake.load(name).scan().to_arrow().to_pylist()

    def read_files(self, name: str) -> list[dict[str, Any]]:
        """The rows of the files of a table, as other readers than pyiceberg see them."""
        places = [task.file.file_path.removeprefix("file://") for task in self._lake.load(name).scan().plan_files()]
        return pa.concat_tables(map(pq.read_table, places)).to_pylist()


class PostgresTables:
    def __init__(self) -> None:
        self.database = Database()

    def sink(self, name: str, **options: Any) -> Any:
        return self.database.sink(name, create=True, **options)

    def read(self, name: str) -> list[dict[str, Any]]:
        (names,) = self.database.execute(
            "SELECT array_agg(attname ORDER BY attnum) FROM pg_attribute WHERE attnum > 0 "
            f"AND attrelid = '{self.database.schema}.\"{name}\"'::regclass"
        )
        return [dict(zip(names[0], row, strict=True)) for row in self.database.read(name)]


@pytest.fixture(params=["delta", "iceberg", pytest.param("postgres", marks=pytest.mark.services)])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "postgres":
        found = PostgresTables()
        yield found
        found.database.drop()
    else:
        yield {"delta": DeltaTables, "iceberg": IcebergTables}[request.param](tmp_path)


def write_batches(sink: Any, run: str, schema: pa.Schema, *batches: list[dict[str, Any]]) -> None:
    for number, rows in enumerate(batches):
        sink.open(run, "q", schema)  # every micro-batch is the first one of a start
        table = pa.Table.from_pylist(rows, schema)
        sink.commit(number, [sink.write(Attempt(number, 0, f"{number}"), iter(table.to_batches()))])


def change(rows: list[dict[str, Any]], operation: str, time: int) -> list[dict[str, Any]]:
    return [{**row, "_op": operation, "_ts": time} for row in rows]


def normalise(value: Any) -> Any:
    """A value as it can be compared: instants in one zone, pairs of a map as a dict, JSON's texts as they are."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=UTC)
    if isinstance(value, list):
        if value and all(isinstance(each, tuple) for each in value):
            return {key: normalise(each) for key, each in sorted(value)}
        return [normalise(each) for each in value]
    if isinstance(value, dict):
        return {key: normalise(each) for key, each in sorted(value.items())}
    return value


def sort_values(rows: list[dict[str, Any]], name: str) -> list[str]:
    return sorted(repr(normalise(row[name])) for row in rows)


def has_list_of_structs(schema: pa.Schema) -> bool:
    return any(pa.types.is_list(each.type) and pa.types.is_struct(each.type.value_type) for each in schema)


def check_values(tables: Any, schema: pa.Schema, rows: list[dict[str, Any]], shown: Callable[[Any], Any]) -> None:
    """Rows enter, leave one by one by an equal row, and are replaced."""
    name = schema.names[1]
    write_batches(tables.sink("log"), "log", schema, change(rows, "+", 1), change(rows, "-", 2))
    expected = sorted(repr(normalise(shown(row[name]))) for row in rows)
    read = tables.read_files if isinstance(tables, IcebergTables) else tables.read
    assert sort_values(read("log"), name) == sorted(expected * 2)
    if isinstance(tables, IcebergTables) and has_list_of_structs(schema):
        with pytest.raises(ps.UnsupportedError, match=r"SINK_TYPE.*does not keep NULL in v"):
            tables.sink("answer", key="k").open("run", "q", schema)
        return
    left, kept = rows[::2], rows[1::2]
    others = [{**row, name: None} for row in kept]
    replaced = [*change(kept, "-", 2), *change(others, "+", 2), *change(left, "-", 2)]
    key = [schema.names[0]]
    write_batches(tables.sink("answer", key=key), "answer", schema, change(rows, "+", 1), replaced)
    found = tables.read("answer")
    assert [row[name] for row in found] == [None] * len(kept)
    assert sorted(row[key[0]] for row in found) == sorted(row[key[0]] for row in kept)


def make_rows(values: list[Any]) -> list[dict[str, Any]]:
    return [{"k": at, "v": value} for at, value in enumerate([*values, None])]


def make_schema(kind: pa.DataType, names: tuple[str, str] = ("k", "v")) -> pa.Schema:
    return pa.schema([(names[0], pa.int64()), (names[1], kind), ("_op", pa.string()), ("_ts", pa.int64())])


def test_plain_values_survive(tables: Any) -> None:
    """All types in one table: each row has a value of each type."""
    size = max(len(values) for _, values in CASES.values()) + 1
    kinds = [(name, kind) for name, (kind, _) in CASES.items()]
    schema = pa.schema([("k", pa.int64()), *kinds, ("_op", pa.string()), ("_ts", pa.int64())])
    rows = [
        {"k": at, **{name: values[at] if at < len(values) else None for name, (_, values) in CASES.items()}}
        for at in range(size)
    ]
    write_batches(tables.sink("log"), "log", schema, change(rows, "+", 1))
    key = ["k", *(name for name in CASES if name != "text")]
    left, kept = rows[::2], rows[1::2]
    replaced = [{**row, "text": "new"} for row in kept]
    changes = [*change(kept, "-", 2), *change(left, "-", 2), *change(replaced, "+", 2)]
    write_batches(tables.sink("answer", key=key), "answer", schema, change(rows, "+", 1), changes)
    for found, expected in ((tables.read("log"), rows), (tables.read("answer"), replaced)):
        for name in ("k", *CASES):
            assert sort_values(found, name) == sort_values(expected, name), name


@pytest.mark.parametrize("case", NESTED)
def test_arrays_maps_and_structs_survive(tables: Any, case: str) -> None:
    kind, values = NESTED[case]

    def show(value: Any) -> Any:
        if not isinstance(tables, PostgresTables) or value is None or case in ("texts", "decimals", "times"):
            return value
        if case == "map":
            return dict(value)
        return [each and {**each, "when": each["when"].isoformat()} for each in value] if case == "structs" else value

    if case == "map" and not isinstance(tables, PostgresTables):
        values = values[:1]  # an empty map has no pairs to compare
    check_values(tables, make_schema(kind), make_rows(values), show)


def test_odd_names(tables: Any) -> None:
    schema = make_schema(pa.string(), ODD_NAMES)
    rows = [{ODD_NAMES[0]: at, ODD_NAMES[1]: value} for at, value in enumerate(["'; DROP TABLE x", '"', "%s", None])]
    check_values(tables, schema, rows, lambda value: value)


def test_nan_zero_and_null_keys(tables: Any) -> None:
    schema = pa.schema([("k", pa.float64()), ("v", pa.float64()), ("_op", pa.string()), ("_ts", pa.int64())])
    first = [{"k": NAN, "v": NAN}, {"k": -0.0, "v": -0.0}, {"k": None, "v": 1.0}, {"k": math.inf, "v": None}]
    then = [
        *change([{"k": NAN, "v": NAN}, {"k": 0.0, "v": 0.0}, {"k": None, "v": 1.0}], "-", 2),
        *change([{"k": None, "v": 2.0}], "+", 2),
    ]
    write_batches(tables.sink("t", key=["k"]), "run", schema, change(first, "+", 1), then)
    found = {repr(row["k"]): row["v"] for row in tables.read("t")}
    assert found == {"None": 2.0, "inf": None}


def test_very_large_texts(tables: Any) -> None:
    text = 'ü"\n' * 4_000_000
    rows = [{"k": 1, "v": text}, {"k": 2, "v": text[1:]}]
    write_batches(tables.sink("t", key=["k"]), "run", make_schema(pa.string()), change(rows, "+", 1))
    assert {row["k"]: row["v"] == text[row["k"] - 1 :] for row in tables.read("t")} == {1: True, 2: True}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_types_that_tables_of_files_do_not_have(tmp_path: Path, kind: str) -> None:
    tables = {"delta": DeltaTables, "iceberg": IcebergTables}[kind](tmp_path)
    with pytest.raises(ps.UnsupportedError, match=r"SINK_TYPE.*nanoseconds"):
        tables.sink("t").open("run", "q", pa.schema([("v", pa.timestamp("ns")), ("_ts", pa.int64())]))
    with pytest.raises(ps.QueryError, match=r"SINK_KEY.*arrays, maps and structs"):
        tables.sink("t", key="v").open("run", "q", make_schema(pa.list_(pa.int64())))
    if kind == "iceberg":
        with pytest.raises(ps.UnsupportedError, match=r"SINK_KEY.*dot in its name, a\.b"):
            tables.sink("t", key="a.b").open("run", "q", make_schema(pa.int64(), ("a.b", "v")))


@pytest.mark.services
def test_text_that_postgres_does_not_have() -> None:
    tables = PostgresTables()
    try:
        with pytest.raises(ps.DataError, match=r"SINK_VALUE.*0x00"):
            write_batches(tables.sink("t"), "run", make_schema(pa.string()), change([{"k": 1, "v": "a\0b"}], "+", 1))
    finally:
        tables.database.drop()
