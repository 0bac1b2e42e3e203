"""FROM: subqueries, WITH, and joins of all kinds."""

from __future__ import annotations

import pyarrow as pa
import pytest
from cql_catalog import build_catalog

import penstock as ps
from penstock.cql import CqlError, OuterJoin, Select, Subquery, bind_query


def bind(text: str) -> Select:
    body = bind_query(text, build_catalog()).body
    assert isinstance(body, Select)
    return body


def test_inner_joins_stay_flat() -> None:
    body = bind("SELECT * FROM temperature t JOIN humidity h USING (location) CROSS JOIN rooms r")
    assert [source.alias for source in body.sources] == ["t", "h", "r"]
    assert body.items[0].name == "t_location"


def test_outer_join_is_one_source() -> None:
    body = bind("SELECT t.value, h.value FROM temperature t LEFT JOIN humidity h ON t.location = h.location, rooms r")
    assert [source.alias for source in body.sources] == ["t+h", "r"]
    assert [item.name for item in body.items] == ["t_value", "h_value"]
    relation = body.sources[0].relation
    assert isinstance(relation, Subquery)
    assert isinstance(relation.body, OuterJoin)
    assert relation.body.kind == "left"


def test_right_join_is_left_join_of_swapped_sides() -> None:
    relation = bind("SELECT t.value FROM temperature t RIGHT JOIN humidity h ON TRUE").sources[0].relation
    assert isinstance(relation, Subquery)
    assert isinstance(relation.body, OuterJoin)
    assert (relation.body.left.alias, relation.body.kind) == ("h", "left")


@pytest.mark.parametrize(
    ("text", "condition", "says"),
    [
        ("SELECT * FROM temperature t LEFT JOIN humidity t ON TRUE", "DUPLICATE_ALIAS", "t appears twice"),
        ("SELECT * FROM rooms r LEFT JOIN temperature t ON TRUE", "TABLE_PRESERVED", "put the stream on that side"),
        ("SELECT * FROM temperature t LEFT JOIN humidity h", "SYNTAX_ERROR", "expected ON"),
        ("SELECT * FROM temperature t LEFT JOIN humidity h USING (name)", "UNKNOWN_COLUMN", "no column"),
        ("SELECT h.value FROM temperature t ANTI JOIN humidity h USING (location)", "UNKNOWN_ALIAS", "FROM has t"),
        ("SELECT x FROM (SELECT value FROM temperature) [NOW]", "WINDOW_ON_SUBQUERY", "takes no window"),
        ("WITH a AS (SELECT value FROM temperature) SELECT * FROM a [NOW]", "WINDOW_ON_SUBQUERY", "takes no window"),
        ("WITH a AS (SELECT value FROM temperature), A AS (SELECT value FROM temperature) SELECT * FROM a",
         "DUPLICATE_NAME", "two queries A"),
        ("SELECT value FROM temperature ASOF JOIN humidity ON TRUE", "UNSUPPORTED_ASOF_JOIN", "ROWS 1"),
        ("WITH RECURSIVE a AS (SELECT value FROM temperature) SELECT * FROM a", "UNSUPPORTED_WITH_RECURSIVE", "itself"),
        ("SELECT y FROM (SELECT value AS x FROM temperature) q", "UNKNOWN_COLUMN", "q has x"),
        ("SELECT q.value FROM (SELECT name FROM rooms) q", "NO_STREAM", "at least one stream"),
    ],
)  # fmt: skip
def test_from_errors(text: str, condition: str, says: str) -> None:
    with pytest.raises(CqlError) as caught:
        bind(text)
    assert caught.value.condition == condition
    assert says in str(caught.value)


def test_query_in_from_keeps_what_sql_means() -> None:
    """AVG over the current MAX per group; a derived stream would average every maximum that ever was."""
    engine = ps.Engine()
    engine.stream("bids", {"ts": "bigint", "item": "int", "price": "int"}, time="ts")
    engine.query("q", "SELECT AVG(m) AS a FROM (SELECT item, MAX(price) AS m FROM bids [UNBOUNDED] GROUP BY item) t")
    rows = pa.table({"ts": [1, 2, 3], "item": [1, 2, 1], "price": [20, 40, 40]}, schema=pa.schema(
        [("ts", pa.int64()), ("item", pa.int32()), ("price", pa.int32())]))  # fmt: skip
    results = pa.concat_tables([engine.push({"bids": rows})["q"], engine.flush()["q"]])
    assert results.to_pylist() == [{"a": 20.0, "_ts": 1}, {"a": 30.0, "_ts": 2}, {"a": 40.0, "_ts": 3}]


def test_left_join_reports_row_without_partner() -> None:
    engine = ps.Engine()
    engine.stream("a", {"ts": "bigint", "k": "int"}, time="ts")
    engine.stream("b", {"ts": "bigint", "k": "int"}, time="ts")
    engine.query("q", "SELECT a.k, b.ts AS b FROM a [RANGE 10] LEFT JOIN b [RANGE 2] ON a.k = b.k EMIT CHANGES")
    schema = pa.schema([("ts", pa.int64()), ("k", pa.int32())])
    first = engine.push({"a": pa.table([[1], [7]], schema=schema), "b": pa.table([[3], [7]], schema=schema)})["q"]
    rows = pa.concat_tables([first, engine.flush()["q"]]).to_pylist()
    assert [(row["b"], row["_op"], row["_ts"]) for row in rows] == [
        (None, "+", 1), (None, "-", 3), (3, "+", 3), (3, "-", 5), (None, "+", 5), (None, "-", 11),
    ]  # fmt: skip


def list_names(text: str) -> list[str]:
    return [item.name for item in bind(text).items]


def test_outer_join_keeps_columns_that_were_merged_below() -> None:
    joined = "temperature t JOIN humidity h USING (location)"
    assert list_names(f"SELECT location FROM {joined} SEMI JOIN rooms r ON t.location = r.location") == ["location"]
    below = list_names(f"SELECT * FROM {joined}")
    assert list_names(f"SELECT * FROM {joined} SEMI JOIN rooms r USING (location)") == below
    assert list_names(f"SELECT * FROM {joined} LEFT JOIN rooms r USING (location)") == [*below, "name"]


def test_merged_column_hides_only_its_parts() -> None:
    text = "FROM temperature t JOIN humidity h USING (location) CROSS JOIN rooms r"
    assert list_names(f"SELECT * {text}")[0] == "t_location"
    assert "r_location" in list_names(f"SELECT * {text}")
    with pytest.raises(CqlError, match=r"it can be t\.location, r\.location"):
        bind(f"SELECT location {text}")


def test_star_names_merged_column_of_full_join() -> None:
    assert list_names("SELECT * FROM temperature t FULL JOIN humidity h USING (location)")[0] == "location"


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("SELECT t.value FROM temperature t LEFT JOIN (rooms r JOIN rooms q USING (name)) ON TRUE", "NO_STREAM"),
        ("SELECT x.value FROM humidity AS `t+h` JOIN (temperature t LEFT JOIN humidity h ON TRUE) ON TRUE",
         "DUPLICATE_ALIAS"),
        ("SELECT value AS _op FROM temperature EMIT CHANGES", "RESERVED_NAME"),
        ("SELECT t.value FROM temperature t NATURAL CROSS JOIN humidity h", "SYNTAX_ERROR"),
        ("SELECT COUNT(*) FROM temperature [RANGE 5 MINUTES SLIDE 5 MINUTES] t LEFT JOIN humidity h USING (location)",
         "UNSUPPORTED_SLIDE_IN_AN_OUTER_JOIN"),
        ("SELECT t.value FROM temperature [NOW] t LEFT JOIN humidity h USING (location) FRESHNESS t 1 HOUR",
         "UNSUPPORTED_FRESHNESS_IN_AN_OUTER_JOIN"),
    ],
)  # fmt: skip
def test_outer_join_refuses_what_it_would_ignore_or_fail_on(text: str, condition: str) -> None:
    with pytest.raises((CqlError, ps.UnsupportedError)) as caught:
        bind_query(text, build_catalog())
    assert caught.value.condition == condition


def test_names_with_dots_stay_apart_in_outer_join() -> None:
    """The columns a.`b.c` and `a.b`.c of an outer join had one name."""
    engine = ps.Engine()
    engine.stream("u", {"ts": "bigint", "b.c": "bigint", "c": "bigint"}, time="ts")
    sides = "u [NOW] AS a LEFT JOIN u [NOW] AS `a.b` ON a.ts = `a.b`.ts"
    engine.query("q", f"SELECT a.`b.c` AS x, `a.b`.c AS y FROM {sides}")
    found = [engine.push({"u": {"ts": [1], "b.c": [11], "c": [22]}}), engine.flush()]
    assert [row for out in found for row in out["q"].to_pylist()] == [{"x": 11, "y": 22, "_ts": 1}]


def test_columns_named_like_hidden_ones() -> None:
    engine = ps.Engine(warn=False)
    for name in ("a", "b"):
        engine.stream(name, {"ts": "bigint", " row": "bigint", " side": "bigint", " key 0": "bigint"}, time="ts")
    engine.query("q", "SELECT a.` row`, b.` side` FROM a [RANGE 5] FULL JOIN b [RANGE 5] ON a.` row` = b.` key 0`")
    engine.push({"a": [{"ts": 1, " row": 1, " side": 2, " key 0": 3}]})
    assert engine.flush()["q"].to_pylist() == [{" row": 1, " side": None, "_ts": 1}]
