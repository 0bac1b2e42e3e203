"""Arrays, maps and structs: types, parts, what passes through, and what is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.cql.types import canonicalize_type, format_type, to_arrow_type
from penstock.testing import difference, expected

COLUMNS = {
    "ts": "bigint", "k": "int", "list": "array<int>", "s": "struct<a: int, Inner: struct<b: string>>",
    "map": "map<string, bigint>", "array": "array<string>",
}  # fmt: skip
ROWS = [
    {"ts": 1, "k": 1, "list": [5, None], "s": {"a": 7, "Inner": {"b": "x"}}, "map": {"j": 3}, "array": ["q"]},
    {"ts": 2, "k": 2, "list": [], "s": {"a": None, "Inner": None}, "map": {}, "array": []},
    {"ts": 3, "k": 3, "list": None, "s": None, "map": None, "array": None},
]


def make_engine() -> ps.Engine:
    engine = ps.Engine()
    engine.stream("t", COLUMNS, time="ts")
    return engine


def run(text: str) -> list[dict[str, Any]]:
    engine = make_engine()
    engine.query("q", text)
    return engine.push({"t": ROWS})["q"].drop(["_ts"]).to_pylist() + engine.flush()["q"].drop(["_ts"]).to_pylist()


@pytest.mark.parametrize(("name", "wanted"), [
    ("ARRAY<INT>", pa.list_(pa.int32())),
    ("array < array<decimal(10, 2)> >", pa.list_(pa.list_(pa.decimal128(10, 2)))),
    ("MAP<STRING, STRUCT<a: INT, b DOUBLE>>",
     pa.map_(pa.string(), pa.struct([("a", pa.int32()), ("b", pa.float64())]))),
    ("struct<Some Name: int>", None),
    ("struct<a: int, A: int>", None),
    ("map<int>", None),
    ("array<>", None),
    ("array<interval>", None),
])  # fmt: skip
def test_types(name: str, wanted: pa.DataType | None) -> None:
    if wanted is None:
        with pytest.raises(ps.QueryError):
            to_arrow_type(name)
        return
    assert to_arrow_type(name) == wanted
    assert to_arrow_type(format_type(wanted)) == wanted


def test_types_of_arrow_become_canonical() -> None:
    given = pa.large_list(pa.struct([("a", pa.uint8()), ("b", pa.timestamp("ns"))]))
    assert canonicalize_type(given) == pa.list_(pa.struct([("a", pa.int16()), ("b", pa.timestamp("us"))]))
    assert canonicalize_type(pa.list_(pa.month_day_nano_interval())) is None


def test_declarations_in_a_script() -> None:
    engine = ps.Engine.from_script("""
        CREATE STREAM t (ts BIGINT, a ARRAY<STRUCT<x: INT, y: MAP<STRING, INT>>>, b INT) TIMESTAMP BY ts FROM parquet
            OPTIONS (path 'none');
        CREATE SINK out TO memory;
        INSERT INTO out SELECT a[0].y['k'] AS n FROM t [NOW];
    """)
    out = engine.push({"t": [{"ts": 1, "a": [{"x": 1, "y": {"k": 4}}], "b": 1}]})
    assert [table.to_pylist() for table in out.values()] == [[{"n": 4, "_ts": 1}]]


@pytest.mark.parametrize(("expr", "wanted"), [
    ("list[0]", [5, None, None]),
    ("list[2]", [None, None, None]),
    ("list[-1]", [None, None, None]),
    ("list[k - 1]", [5, None, None]),
    ("ELEMENT_AT(list, 1)", [5, None, None]),
    ("ELEMENT_AT(list, -2)", [5, None, None]),
    ("ELEMENT_AT(list, 0)", [None, None, None]),
    ("s.a", [7, None, None]),
    ("t.S.inner.B", ["x", None, None]),
    ("map['j']", [3, None, None]),
    ("map['z']", [None, None, None]),
    ("array[0]", ["q", None, None]),
    ("t.array[0]", ["q", None, None]),
    ("SIZE(list)", [2, 0, None]),
    ("ARRAY_CONTAINS(list, 5)", [True, False, None]),
    ("ARRAY_CONTAINS(list, 6)", [None, False, None]),
    ("ARRAY(k, 9)[1]", [9, 9, 9]),
    ("NAMED_STRUCT('p', k, 'q', list).q[0]", [5, None, None]),
    ("COALESCE(list, ARRAY(k))", [[5, None], [], [3]]),
])  # fmt: skip
def test_parts(expr: str, wanted: list[Any]) -> None:
    assert [row["v"] for row in run(f"SELECT {expr} AS v FROM t")] == wanted


def test_nan_in_a_list_is_a_number() -> None:
    engine = ps.Engine()
    engine.stream("t", {"ts": "bigint", "a": "array<double>"}, time="ts")
    engine.query("q", "SELECT a[0] AS x FROM t")
    (row,) = engine.push({"t": [{"ts": 1, "a": [float("nan")]}]})["q"].to_pylist()
    assert str(row["x"]) == "nan"


def test_a_field_has_its_own_name() -> None:
    assert [*run("SELECT s.a, s.Inner.b, t.s FROM t")[0]] == ["a", "b", "s"]


def test_an_alias_comes_before_a_struct() -> None:
    engine = make_engine()
    engine.query("q", "SELECT s.k, s.s.a FROM t [NOW] AS s")
    assert engine.push({"t": ROWS[:1]})["q"].to_pylist() == [{"k": 1, "a": 7, "_ts": 1}]


def test_a_restart_finds_unread_changes_of_whole_values() -> None:
    text = "SELECT x.list, y.s FROM (SELECT list, k FROM t [RANGE 2]) AS x LEFT JOIN t [RANGE 1] AS y ON x.k = y.k"
    engine = make_engine()
    engine.query("q", f"{text} EMIT CHANGES")
    found = []
    for row in [*ROWS, {**ROWS[0], "ts": 4}]:
        found.append(engine.push({"t": [row]})["q"])
        engine = ps.Engine.restore(engine.snapshot())
    found.append(engine.flush()["q"])
    schema = pa.schema([(name, to_arrow_type(type_name)) for name, type_name in COLUMNS.items()])
    rows = pa.Table.from_pylist([*ROWS, {**ROWS[0], "ts": 4}], schema)
    assert difference(pa.concat_tables(found), expected(f"{text} EMIT CHANGES", {"t": rows})) is None


@pytest.mark.parametrize(("text", "condition", "words"), [
    ("SELECT list FROM t GROUP BY list", "UNSUPPORTED_GROUP_BY_OF_AN_ARRAY", "s.a"),
    ("SELECT DISTINCT s FROM t", "UNSUPPORTED_DISTINCT_OF_A_STRUCT", "s.a"),
    ("SELECT MAX(map) FROM t", "UNSUPPORTED_MAX_OF_A_MAP", "map['k']"),
    ("SELECT COUNT(DISTINCT list) FROM t", "UNSUPPORTED_DISTINCT_COUNT_OF_AN_ARRAY", "a part"),
    ("SELECT list FROM t [NOW] UNION SELECT list FROM t [NOW]", "UNSUPPORTED_UNION_OF_AN_ARRAY", "a part"),
    ("SELECT list FROM t [NOW] EXCEPT SELECT list FROM t [NOW]", "UNSUPPORTED_EXCEPT_OF_AN_ARRAY", "a part"),
    ("SELECT k FROM t [PARTITION BY list ROWS 1]", "UNSUPPORTED_PARTITION_BY_OF_AN_ARRAY", "a part"),
    ("SELECT LAG(k) OVER (PARTITION BY s ORDER BY ts) FROM t", "UNSUPPORTED_PARTITION_BY_OF_A_STRUCT", "a part"),
    ("SELECT list FROM t ORDER BY k LIMIT 2", "UNSUPPORTED_ORDER_BY_OF_AN_ARRAY", "a part"),
    ("SELECT FIRST(s) FROM t", "UNSUPPORTED_FIRST_OF_A_STRUCT", "a part"),
    ("SELECT a.k FROM t AS a, t AS b WHERE a.list = b.list", "TYPE_MISMATCH", "array<int>"),
    ("SELECT k FROM t WHERE s <=> s", "TYPE_MISMATCH", "cannot compare"),
    ("SELECT k FROM t WHERE list IN (list)", "TYPE_MISMATCH", "cannot compare"),
    ("SELECT GREATEST(list, list) FROM t", "TYPE_MISMATCH", "array<int>"),
    ("SELECT CAST(list AS STRING) FROM t", "TYPE_MISMATCH", "array<int>"),
    ("SELECT list || 'x' FROM t", "TYPE_MISMATCH", "array<int>"),
    ("SELECT s.z FROM t", "UNKNOWN_COLUMN", "it has a, Inner"),
    ("SELECT s.a.z FROM t", "UNKNOWN_COLUMN", "it is int, not a struct"),
    ("SELECT k.z FROM t", "UNKNOWN_ALIAS", "FROM has t"),
    ("SELECT k[0] FROM t", "TYPE_MISMATCH", "needs an array"),
    ("SELECT list['x'] FROM t", "TYPE_MISMATCH", "'x' (string)"),
    ("SELECT map[1] FROM t", "TYPE_MISMATCH", "1 (bigint)"),
    ("SELECT ARRAY(1, 'x') FROM t", "TYPE_MISMATCH", "one type"),
    ("SELECT NAMED_STRUCT(k, 1) FROM t", "TYPE_MISMATCH", "constant names"),
])  # fmt: skip
def test_mistakes_say_what_to_write(text: str, condition: str, words: str) -> None:
    with pytest.raises(ps.QueryError) as caught:
        make_engine().query("q", text)
    assert (caught.value.condition, words in str(caught.value)) == (condition, True)


@pytest.mark.parametrize("column", [[{"z": 1}], [{"a": "x", "Inner": None}], [5]])
def test_rows_that_do_not_fit(column: list[Any]) -> None:
    given = pa.table({"ts": [1], "k": [1], "list": [[1]], "s": column, "map": [None], "array": [None]})
    with pytest.raises(ps.DataError, match="COLUMN_TYPE"):
        make_engine().push({"t": given})
