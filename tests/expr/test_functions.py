"""Functions of the registry where their meaning is a choice: names, edges, units, formats and hashes."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.cql import Catalog, Select, bind_query, bind_script
from penstock.expr import Expr, evaluate

ROW = {
    "ts": datetime(2026, 1, 31, 10, 5, 6, 123456),
    "x": 5,
    "d": 2.5,
    "s": "Ab,cd",
    "day": date(2024, 2, 29),
}
COLUMNS = "ts TIMESTAMP, x BIGINT, d DOUBLE, s STRING, day DATE"


def bind(text: str) -> Expr:
    catalog = Catalog()
    bind_script(f"CREATE STREAM t ({COLUMNS}) TIMESTAMP BY ts", catalog)
    body = bind_query(f"SELECT {text} AS v FROM t", catalog).body
    assert isinstance(body, Select)
    return body.items[0].expr


def compute(text: str) -> Any:
    expr = bind(text)
    return evaluate(expr, lambda column: pa.array([ROW[column.name]], column.type), 1)[0].as_py()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("SUBSTRING(s, 0, 2)", "Ab"),
        ("SUBSTRING(s FROM -2)", "cd"),
        ("SPLIT_PART(s, ',', -1)", "cd"),
        ("SPLIT_PART(s, ',', 3)", ""),
        ("REGEXP_EXTRACT(s, '[a-z]+')", "b"),
        ("REGEXP_EXTRACT(s, '(.),(.)', 2)", "c"),
        ("REGEXP_REPLACE(s, '(.),(.)', '$2-$1')", "Ac-bd"),
        ("LPAD(s, 3, '*')", "Ab,"),
        ("CONCAT(s, NULL)", None),
        ("CONCAT_WS('-', s, NULL, x)", "Ab,cd-5"),
        ("TRIM(LEADING 'A' FROM s)", "b,cd"),
        ("LOCATE('c', s)", 4),
        ("ROUND(d)", 3.0),
        ("FLOOR(-d)", -3),
        ("LOG(2, 8)", 3.0),
        ("LN(0)", None),
        ("x / 0", None),
        ("MOD(-7, 4)", -3),
        ("DATE_TRUNC('week', ts)", datetime(2026, 1, 26)),
        ("EXTRACT(DAYOFWEEK FROM ts)", 7),
        ("EXTRACT(millisecond FROM ts)", 6123),
        ("DATE_FORMAT(ts, 'yyyy-MM-dd''T''HH:mm:ss.SSS')", "2026-01-31T10:05:06.123"),
        ("TO_CHAR(ts, 'YYYY \"week\" DDD')", "2026 week 031"),
        ("TO_TIMESTAMP('31.01.2026 10:05', 'dd.MM.yyyy HH:mm')", datetime(2026, 1, 31, 10, 5)),
        ("TO_TIMESTAMP('no', 'yyyy')", None),
        ("TO_DATE('2026-01-31')", date(2026, 1, 31)),
        ("ts + INTERVAL '1' MONTH", datetime(2026, 2, 28, 10, 5, 6, 123456)),
        ("day + INTERVAL 1 YEAR", date(2025, 2, 28)),
        ("day - INTERVAL '1 month'", date(2024, 1, 29)),
        ("TIMESTAMPDIFF(MONTH, day, ts)", 23),
        ("DATEDIFF(ts, day)", 702),
        ("UNIX_TIMESTAMP(TIMESTAMP_SECONDS(1767225600))", 1767225600),
        ("JSON_VALUE('{\"a\": [{\"b\": 1.50}]}', '$.a[0].b')", "1.50"),
        ("JSON_VALUE('{\"a\": []}', '$.a')", None),
        ("GET_JSON_OBJECT('{\"a\": [1, \"x\"]}', '$.a')", '[1,"x"]'),
        ("NULL <=> x", False),
        ("IF(x > 3, 'many', 'few')", "many"),
        ("NVL2(NULL, 1, 2)", 2),
    ],
)
def test_value(text: str, value: object) -> None:
    assert compute(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("HASH(x)", 1607884268),
        ("HASH(NULLIF(x, 5), x)", 1607884268),
        ("HASH(s)", 677818218),
        ("HASH(d, s, ts)", 411930084),
        ("HASH('été!')", -1491032970),
        ("HASH(day)", 653915859),
        ("HASH(x = 5)", -559580957),
    ],
)
def test_hash_has_the_values_of_spark(text: str, value: int) -> None:
    assert compute(text) == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("DATE_TRUNC('fortnight', ts)", "DATE_TRUNC needs one of"),
        ("REGEXP_LIKE(s, s)", "a pattern that is a constant"),
        ("ROUND(d, x)", "a constant number of digits"),
        ("x + INTERVAL 1 MONTH", "months and years can be added to a date or timestamp only"),
        ("LOWER(x)", "LOWER needs a text, not x (bigint)"),
        ("SUBSTRING(s)", "SUBSTRING takes 2 to 3 argument(s), found 1"),
        ("LENGHT(s)", "did you mean LENGTH"),
    ],
)
def test_mistake(text: str, says: str) -> None:
    with pytest.raises(ps.QueryError) as caught:
        bind(text)
    assert says in caught.value.message


@pytest.mark.parametrize(
    ("text", "condition"),
    [("REGEXP_LIKE(s, '(')", "BAD_PATTERN"), ("DATE_FORMAT(ts, 'qqq')", "BAD_TIME_FORMAT")],
)
def test_bad_constants(text: str, condition: str) -> None:
    with pytest.raises(ps.QueryError) as caught:
        compute(text)
    assert caught.value.condition == condition


def test_null_safe_equality_is_a_join_key() -> None:
    engine = ps.Engine()
    for name in "ab":
        engine.stream(name, {"ts": "bigint", "k": "string"}, time="ts")
    engine.query("q", "SELECT a.k, b.ts FROM a, b WHERE a.k <=> b.k")
    assert "CROSS_PRODUCT" not in engine.explain("q")
    engine.push({"a": {"ts": [1, 2], "k": ["x", None]}})
    out = engine.push({"b": {"ts": [3, 4, 5], "k": [None, "x", ""]}}, {"a": 9})
    assert [(row["k"], row["ts"]) for row in out["q"].to_pylist()] == [(None, 3), ("x", 4)]
