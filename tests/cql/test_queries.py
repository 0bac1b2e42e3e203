"""The grammar of queries, one row per feature: windows, joins, sequences, set operations, names, grouping."""

from __future__ import annotations

import pyarrow as pa
import pytest
from cql_catalog import build_catalog

from penstock.cql import UNBOUNDED, Range, Select, SetOperation, Window, bind_query
from penstock.cql.windows import NOW, STATIC, PartitionedRows, Rows
from penstock.expr import Aggregate, Call, Column

CATALOG = build_catalog()
MINUTE = 60_000_000


def select(text: str) -> Select:
    body = bind_query(text, CATALOG).body
    assert isinstance(body, Select)
    return body


@pytest.mark.parametrize(
    ("source", "window"),
    [
        ("temperature [RANGE 5 MINUTES]", Range(5 * MINUTE)),
        ("temperature [range 1 minute]", Range(MINUTE)),
        ("temperature [RANGE 0.5 SECONDS]", Range(500_000)),
        ("temperature [RANGE 2 WEEKS] AS t", Range(14 * 24 * 60 * MINUTE)),
        ("temperature [RANGE UNBOUNDED]", UNBOUNDED),
        ("temperature [UNBOUNDED]", UNBOUNDED),
        ("temperature [NOW]", NOW),
        ("temperature", UNBOUNDED),
        ("temperature t", UNBOUNDED),
        ("temperature [ROWS 1000] t", Rows(1000)),
        ("temperature [PARTITION BY Location, VALUE ROWS 3]", PartitionedRows(3, ("location", "value"))),
        ("ticks [RANGE 100]", Range(100)),
        ("temperature WINDOW 10 MINUTES", Range(10 * MINUTE)),
        ("temperature [NOW] WINDOW 10 MINUTES", NOW),
        ("ticks WHERE x > 1 WINDOW 7", Range(7)),
    ],
)
def test_windows(source: str, window: Window) -> None:
    assert select(f"SELECT 1 AS one FROM {source}").sources[0].window == window


def test_slide_and_window_shorthand() -> None:
    body = select("SELECT COUNT(*) FROM temperature [RANGE 10 MINUTES SLIDE 1 MINUTE]")
    assert body.sources[0].window == Range(10 * MINUTE, slide=MINUTE)
    body = select("SELECT 1 AS x FROM temperature, humidity [ROWS 2], rooms WHERE TRUE WINDOW 1 HOUR")
    assert [source.window for source in body.sources] == [Range(60 * MINUTE), Rows(2), STATIC]


@pytest.mark.parametrize(
    ("text", "emit"),
    [
        ("SELECT value FROM temperature", "istream"),
        ("istream (SELECT value FROM temperature)", "istream"),
        ("DSTREAM(SELECT value FROM temperature);", "dstream"),
        ("RSTREAM (SELECT value FROM temperature UNION ALL (SELECT value FROM humidity))", "rstream"),
    ],
)
def test_emit(text: str, emit: str) -> None:
    query = bind_query(text, CATALOG)
    assert query.emit == emit
    assert query.text == text.removesuffix(";")


@pytest.mark.parametrize(
    "joined",
    [
        "temperature [NOW] AS t, humidity h WHERE t.location = h.location AND t.value > 40.5",
        "temperature t JOIN humidity [ROWS 1] AS h ON t.location = h.location WHERE t.value > 40.5",
        "temperature t INNER JOIN humidity h ON (t.location = h.location) AND t.value > 40.5",
        "temperature t CROSS JOIN humidity h WHERE (t.location = h.location AND t.value > 40.5)",
    ],
)
def test_join_syntaxes_give_same_conjuncts(joined: str) -> None:
    body = select(f"SELECT * FROM {joined}")
    assert [source.alias for source in body.sources] == ["t", "h"]
    equal, greater = body.where
    assert isinstance(equal, Call)
    assert equal.args == (Column("t", "location", pa.int32()), Column("h", "location", pa.int32()))
    assert isinstance(greater, Call)
    assert greater.op == ">"


def test_freshness() -> None:
    text = "SELECT 1 AS x FROM temperature [RANGE 5 MINUTES] t, humidity h WHERE TRUE FRESHNESS T 12 MINUTES, h 1 HOUR"
    assert [source.freshness for source in select(text).sources] == [12 * MINUTE, 60 * MINUTE]


@pytest.mark.parametrize(("mode", "expected"), [("RECENT", "recent"), ("chronicle", "chronicle")])
def test_sequence(mode: str, expected: str) -> None:
    body = select(
        f"SELECT c.value FROM SEQ(temperature [RANGE 1 HOUR] AS c, humidity AS p) MODE {mode} WHERE c.value > 1"
    )
    assert body.sequence is not None
    assert body.sequence.mode == expected
    assert [source.alias for source in body.sources] == ["c", "p"]


def test_set_operations_associativity_and_types() -> None:
    body = bind_query("SELECT n FROM trades EXCEPT SELECT big FROM trades UNION ALL SELECT f FROM trades", CATALOG).body
    assert isinstance(body, SetOperation)
    assert body.kind == "union all"
    assert isinstance(body.left, SetOperation)
    assert body.left.kind == "except"
    selects = (body.left.left, body.left.right, body.right)
    assert [each.items[0].expr.type for each in selects] == [pa.float64()] * 3
    assert [item.name for item in body.items] == ["n"]


@pytest.mark.parametrize(
    ("items", "names"),
    [
        ("T.LOCATION, value AS v FROM temperature AS T", ["location", "v"]),
        ("t.* FROM temperature t, rooms", ["ts", "location", "value"]),
        ("* FROM temperature a, rooms b", ["ts", "a_location", "value", "b_location", "name"]),
        ("a.value, b.value FROM temperature a, humidity b", ["a_value", "b_value"]),
        ("a.value AS a_value, a.value, b.value FROM temperature a, humidity b", ["a_value", "a_value_2", "b_value"]),
        ("value AS location, location FROM temperature t", ["location", "t_location"]),
        ("value + 1, AVG(value), COUNT(*), count(*), SUM(n) FROM temperature, trades GROUP BY value",
         ["column_1", "avg_value", "count", "count_2", "sum_n"]),
        ("value v, location `odd name` FROM temperature", ["v", "odd name"]),
    ],
)  # fmt: skip
def test_output_names(items: str, names: list[str]) -> None:
    query = bind_query(f"SELECT {items}", CATALOG)
    assert query.schema.names == [*names, "_ts"]


def test_keywords_as_column_names() -> None:
    schema = CATALOG.relations["words"].schema
    words = [name for name in schema.names if name != "ts"]
    listed = ", ".join(words)
    condition = " AND ".join(f"words.{word} IS NULL AND {word} IS NOT NULL" for word in words)
    query = bind_query(f"SELECT {listed} FROM words [NOW] WHERE {condition} FRESHNESS words 1 HOUR", CATALOG)
    assert query.schema.names == [*words, "_ts"]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("SELECT location, MAX(value) FROM temperature GROUP BY location", ["location"]),
        ("SELECT location, MAX(value) FROM temperature t GROUP BY t.Location, 1", ["location"]),
        ("SELECT value, location, COUNT(*) FROM temperature GROUP BY 2, 1", ["location", "value"]),
        ("SELECT location AS place, COUNT(*) FROM temperature GROUP BY Place", ["location"]),
        ("SELECT a.value AS value, COUNT(*) FROM temperature a, humidity GROUP BY value", ["value"]),
    ],
)
def test_group_by_columns_aliases_and_positions(text: str, keys: list[str]) -> None:
    group_by = select(text).group_by
    assert group_by is not None
    assert [key.name for key in group_by if isinstance(key, Column)] == keys


def test_grouping_by_expression_and_having() -> None:
    body = select(
        "SELECT location % 10 AS zone, AVG(value) AS mean FROM temperature GROUP BY location % 10 "
        "HAVING mean > 5 AND COUNT(DISTINCT value) >= 2"
    )
    assert body.group_by == (body.items[0].expr,)
    assert body.having is not None
    assert select("SELECT COUNT(*) FROM temperature").group_by == ()
    assert select("SELECT DISTINCT location FROM temperature").distinct
    assert select("SELECT location FROM temperature").group_by is None


@pytest.mark.parametrize(
    ("call", "function", "distinct", "type_"),
    [
        ("COUNT(*)", "count", False, pa.int64()),
        ("count(sym)", "count", False, pa.int64()),
        ("COUNT(DISTINCT n)", "count", True, pa.int64()),
        ("SUM(n)", "sum", False, pa.int64()),
        ("SUM(f)", "sum", False, pa.float64()),
        ("SUM(price)", "sum", False, pa.decimal128(20, 2)),
        ("AVG(n)", "avg", False, pa.float64()),
        ("MIN(At)", "min", False, pa.timestamp("us")),
        ("MAX(f)", "max", False, pa.float32()),
        ("Spread(n)", "spread", False, pa.int64()),
        ("MIDDLE(DISTINCT n)", "middle", True, pa.float64()),
    ],
)
def test_aggregates(call: str, function: str, distinct: bool, type_: pa.DataType) -> None:
    expr = select(f"SELECT {call} AS a FROM trades").items[0].expr
    assert isinstance(expr, Aggregate)
    assert (expr.function, expr.distinct, expr.type) == (function, distinct, type_)


def test_integer_time_gives_integer_ts() -> None:
    assert bind_query("SELECT x FROM ticks", CATALOG).schema.field("_ts").type == pa.int64()
