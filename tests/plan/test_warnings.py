"""Warnings about queries and scripts: which texts have which, with figures and positions."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as ps
from penstock.cql import Catalog, bind_query, bind_script, read_script
from penstock.plan import QueryWarning, WarningContext, list_query_warnings, list_script_warnings

DECLARATIONS = """
CREATE STREAM t (ts TIMESTAMP, k INT, v DOUBLE) TIMESTAMP BY ts;
CREATE STREAM u (ts TIMESTAMP, k INT, v DOUBLE) TIMESTAMP BY ts;
CREATE STREAM n (ts BIGINT, k INT) TIMESTAMP BY ts;
CREATE STREAM slow (timestamp TIMESTAMP, value BIGINT) TIMESTAMP BY timestamp FROM rate OPTIONS (rowsPerSecond 2);
CREATE STREAM n_times (ts TIMESTAMP, k INT) TIMESTAMP BY ts;
CREATE TABLE rooms (k INT, name STRING);
"""


def list_warnings(text: str, **table_rows: int) -> tuple[QueryWarning, ...]:
    catalog = Catalog()
    bind_script(DECLARATIONS, catalog)
    return list_query_warnings(bind_query(text, catalog), WarningContext(table_rows))


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("SELECT k FROM t", []),
        ("SELECT t.k FROM t [RANGE 1 MINUTE], u [ROWS 10] WHERE t.k = u.k", []),
        ("SELECT t.k FROM t [PARTITION BY k ROWS 1], u [NOW] WHERE t.k = u.k", []),
        ("SELECT t.k FROM t [RANGE 1 MINUTE], u [RANGE 1 MINUTE] WHERE t.v < u.v", []),
        ("SELECT t.k FROM t [NOW], rooms WHERE t.k = rooms.k", []),
        ("SELECT k FROM t UNION ALL SELECT k FROM u", []),
        ("SELECT t.k FROM SEQ(t, u) MODE RECENT WHERE t.k = u.k", []),
        ("SELECT COUNT(*) FROM t [RANGE 1 MINUTE SLIDE 1 MINUTE]", []),
        ("DSTREAM (SELECT k FROM t [ROWS 3])", []),
        ("SELECT t.k FROM t, u WHERE t.k = u.k", ["UNBOUNDED_STATE", "UNBOUNDED_STATE"]),
        ("SELECT t.k FROM t [RANGE 1 MINUTE], u WHERE t.k = u.k", ["UNBOUNDED_STATE"]),
        ("SELECT t.k FROM t, rooms WHERE t.k = rooms.k", ["UNBOUNDED_STATE"]),
        ("SELECT k, COUNT(*) FROM t GROUP BY k", ["UNBOUNDED_STATE"]),
        ("SELECT DISTINCT k FROM t", ["UNBOUNDED_STATE"]),
        ("SELECT k FROM t [RANGE 1 MINUTE] EXCEPT SELECT k FROM u", ["UNBOUNDED_STATE"]),
        ("SELECT t.k FROM SEQ(t, u [RANGE 1 MINUTE]) MODE CHRONICLE WHERE t.k = u.k", ["UNBOUNDED_STATE"]),
        ("SELECT t.k FROM t [RANGE 1 MINUTE], u [RANGE 1 MINUTE]", ["CROSS_PRODUCT"]),
        ("SELECT t.k FROM t [NOW], rooms WHERE t.v > 3", []),  # one row of rooms is assumed: as many results as rows
        ("SELECT COUNT(*) FROM t [RANGE 1 MINUTE SLIDE 5 MINUTES]", ["SLIDE_SKIPS_ROWS"]),
        ("SELECT COUNT(*) FROM t [ROWS 2 SLIDE 5]", ["SLIDE_SKIPS_ROWS"]),
        ("SELECT COUNT(*) FROM t [ROWS 5 SLIDE 5]", []),
        ("SELECT k FROM t WHERE k = NULL", ["COMPARED_WITH_NULL"]),
        ("SELECT k FROM t WHERE k IS NULL", []),
        ("DSTREAM (SELECT k FROM t)", ["NO_EXPIRY"]),
        ("RSTREAM (SELECT k FROM t)", ["NO_EXPIRY"]),
        ("RSTREAM (SELECT COUNT(*) FROM t [RANGE 1 MINUTE])", []),
        ("SELECT t.k FROM t [NOW], u [NOW] WHERE t.k = u.k", ["EQUAL_INSTANTS"]),
        ("SELECT a.k FROM n [NOW] AS a, n [NOW] AS b WHERE a.k = b.k", []),
        ("SELECT s.k FROM (SELECT k FROM t) AS s", []),
        ("SELECT s.k FROM (SELECT k FROM t) AS s, u [RANGE 1 MINUTE] WHERE s.k = u.k", ["UNBOUNDED_STATE"]),
        ("SELECT MAX(n) FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) AS s", ["UNBOUNDED_STATE"]),
        ("SELECT DISTINCT k FROM (SELECT k FROM t UNION ALL SELECT k FROM u)", ["UNBOUNDED_STATE", "UNBOUNDED_STATE"]),
        ("WITH s AS (SELECT DISTINCT k FROM t) SELECT a.k FROM s AS a JOIN s AS b ON a.k = b.k", ["UNBOUNDED_STATE"]),
        ("SELECT t.k FROM t LEFT JOIN u [RANGE 1 MINUTE] ON t.k = u.k", ["UNBOUNDED_STATE"]),
        ("SELECT t.k FROM t [RANGE 1 MINUTE] ANTI JOIN u ON t.k = u.k", ["UNBOUNDED_STATE"]),
        ("SELECT t.k FROM t [RANGE 1 MINUTE] LEFT JOIN u [RANGE 1 MINUTE] ON t.k = u.k", []),
        ("SELECT t.k FROM t [RANGE 1 MINUTE] LEFT JOIN u [RANGE 1 MINUTE] ON t.v > 3", ["CROSS_PRODUCT"]),
        ("SELECT t.k FROM t [RANGE 1 MINUTE] SEMI JOIN u [RANGE 1 MINUTE] ON u.v > 3", []),
        ("SELECT s.k FROM (SELECT k FROM t [RANGE 1 MINUTE]) AS s, u [RANGE 1 MINUTE]", ["CROSS_PRODUCT"]),
        ("SELECT t.v FROM t [RANGE 1 MINUTE], (SELECT AVG(v) AS m FROM u [RANGE 1 MINUTE]) AS s", []),
        ("SELECT t.k FROM t [NOW] FULL JOIN u [NOW] ON t.k = u.k", ["EQUAL_INSTANTS"]),
        ("SELECT k FROM t EMIT CHANGES", []),
    ],
)
def test_conditions_of_queries(text: str, conditions: list[str]) -> None:
    assert [each.condition for each in list_warnings(text)] == conditions


def test_parts_of_an_outer_join_have_the_names_of_the_text() -> None:
    joined = "FROM t [RANGE 1 MINUTE] LEFT JOIN u [RANGE 1 MINUTE] ON t.k = u.k"
    (null,) = list_warnings(f"SELECT t.k {joined} WHERE u.k = NULL")
    assert null.message.startswith("u.k = NULL is never true")
    (cross,) = list_warnings(f"SELECT t.k {joined}, n_times [RANGE 1 MINUTE]")
    assert "no condition connects (t, u) and n_times" in cross.message
    assert "Write a condition, such as t.key = n_times.key" in cross.message


def test_two_levels_of_not_exists_have_the_names_of_the_text() -> None:
    """Rows of t are joined to the subquery over u, and the inner item gets another alias."""
    inner = "SELECT * FROM n_times WHERE n_times.k = u.k AND n_times.ts = t.ts AND n_times.k = NULL"
    text = f"SELECT t.k FROM t WHERE NOT EXISTS (SELECT * FROM u WHERE NOT EXISTS ({inner}))"
    found = list_warnings(text)
    grows = [each.message.split(" never")[0] for each in found if each.condition == "UNBOUNDED_STATE"]
    assert sorted(grows) == ["rows of n_times", "rows of t", "rows of u"]
    (null,) = (each for each in found if each.condition == "COMPARED_WITH_NULL")
    assert null.message.startswith("n_times.k = NULL is never true")
    (cross,) = (each for each in found if each.condition == "CROSS_PRODUCT")
    assert cross.message.startswith("u and t are joined without a condition, because a NOT EXISTS or NOT IN reads")
    assert "Write a condition" not in cross.message
    assert cross.span is not None
    assert text[slice(*cross.span)] == "t"


def test_one_warning_for_the_tests_of_not_in() -> None:
    inner = "SELECT n_times.k FROM n_times [RANGE 1 MINUTE] WHERE n_times.ts = t.ts"
    middle = f"SELECT u.k FROM u [RANGE 1 MINUTE] WHERE u.k NOT IN ({inner})"
    found = list_warnings(f"SELECT t.k FROM t [RANGE 1 MINUTE] WHERE t.k NOT IN ({middle})")
    assert [each.condition for each in found] == ["CROSS_PRODUCT"]


def test_growth_per_hour() -> None:
    (assumed,) = list_warnings("SELECT t.k FROM t, u [NOW] WHERE t.k = u.k")
    assert "at 1,000 rows per second, 3,600,000 rows and about 187 MB an hour" in assumed.message
    (declared,) = list_warnings("SELECT value FROM slow, u [NOW] WHERE value = u.k")
    assert "at 2 rows per second, 7,200 rows and about 403 kB an hour" in declared.message


def test_results_of_cross_products() -> None:
    (pairs,) = list_warnings("SELECT t.k FROM t [RANGE 1 MINUTE], u [RANGE 1 MINUTE]")
    # every row of t pairs with the 60,000 rows of u's window, and the other way round
    assert "up to 432,000,000,000 results an hour" in pairs.message
    (table,) = list_warnings("SELECT t.k FROM t [NOW], rooms", rooms=50)
    assert "up to 180,000,000 results an hour." in table.message
    (mixed,) = list_warnings("SELECT value FROM slow [RANGE 1 MINUTE], u [ROWS 5], rooms")
    assert "2 rows per second of slow, 1,000 rows per second of u" in mixed.message
    assert "for each row of rooms" in mixed.message


def test_estimated_bytes_are_near_the_engine() -> None:
    engine = ps.Engine(warn=False)
    for name in "tu":
        engine.stream(name, {"ts": "timestamp", "k": "int", "v": "double"}, time="ts")
    engine.query("q", "SELECT t.k FROM t, u WHERE t.k = u.k")
    rows = 30_000
    table = pa.table({"ts": pa.array(range(rows), pa.timestamp("us")), "k": list(range(rows)), "v": [0.0] * rows})
    engine.push({"t": table, "u": table})
    estimated = re.search(r"about (\d+) MB", engine.explain("q"))
    assert estimated is not None
    measured = engine.metrics("q")["bytes"] / (2 * rows) * 3_600_000 / 1e6
    assert 0.4 < int(estimated[1]) / measured < 2.5


def test_now_is_equal_for_a_join_with_tables() -> None:
    found = []
    for window in ("", "[NOW]"):
        engine = ps.Engine(warn=False)
        engine.stream("t", {"ts": "bigint", "k": "bigint"}, time="ts")
        engine.table("rooms", pa.table({"k": [1, 1, 2], "name": ["a", "b", "c"]}))
        engine.query("q", f"SELECT t.k, name FROM t {window}, rooms WHERE t.k = rooms.k")
        rows = pa.table({"ts": [1, 1, 2, 5], "k": [1, 2, 1, 3]})
        found.append([*engine.push({"t": rows})["q"].to_pylist(), *engine.flush()["q"].to_pylist()])
        assert ("[NOW]: rows of a table do not change" in engine.explain("q")) is (not window)
    assert sorted(found[0], key=str) == sorted(found[1], key=str)
    assert len(found[0]) == 5


def test_position_in_the_text() -> None:
    text = "SELECT t.k\nFROM t [RANGE 1 MINUTE], u AS other\nWHERE t.k = other.k"
    (warning,) = list_warnings(text)
    lines = warning.format(text).splitlines()
    assert lines[0].endswith("(line 2, column 26)")
    assert lines[1:] == ["    FROM t [RANGE 1 MINUTE], u AS other", " " * 29 + "^" * 10]


def list_script_conditions(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "script.cql"
    path.write_text(text)
    return [each.condition for each in list_script_warnings(read_script(path))]


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("CREATE STREAM t (ts TIMESTAMP, k INT) TIMESTAMP BY ts; SELECT k FROM t;", ["NO_SOURCE"]),
        ("CREATE STREAM t (ts TIMESTAMP, k INT) TIMESTAMP BY ts FROM parquett; SELECT k FROM t;", ["UNKNOWN_FORMAT"]),
        ("CREATE STREAM t (ts TIMESTAMP, k INT) TIMESTAMP BY ts FROM com.acme.Source; SELECT k FROM t;", []),
        ("CREATE STREAM t (ts TIMESTAMP, k INT) TIMESTAMP BY ts FROM jdbc OPTIONS (url 'u', dbtable 't'); "
         "SELECT k FROM t;", ["NOT_A_STREAM_FORMAT"]),
        ("CREATE STREAM t (ts TIMESTAMP, k INT) TIMESTAMP BY ts FROM rate; SELECT k FROM t;",
         ["COLUMNS_NOT_IN_FORMAT"]),
        ("CREATE STREAM t (timestamp TIMESTAMP, value BIGINT) TIMESTAMP BY timestamp FROM rate; SELECT value FROM t;",
         []),
        ("CREATE STREAM t (ts TIMESTAMP, value STRING) TIMESTAMP BY ts TIMESTAMPS INTERNAL "
         "FROM text OPTIONS (path 'p'); SELECT value FROM t;", []),
        ("CREATE STREAM t (ts TIMESTAMP, k INT) TIMESTAMP BY ts FROM json OPTIONS (path 'p');", ["UNUSED", "NO_QUERY"]),
        ("CREATE STREAM t (ts TIMESTAMP, k INT) TIMESTAMP BY ts FROM json OPTIONS (path 'p'); "
         "CREATE STREAM d AS SELECT k FROM t; CREATE SINK s TO console; SELECT k FROM t;", ["UNUSED", "UNUSED"]),
        ("CREATE STREAM t (ts TIMESTAMP, k INT) TIMESTAMP BY ts FROM json OPTIONS (path 'p'); "
         "SELECT DISTINCT k FROM t;", ["UNBOUNDED_STATE"]),
    ],
)  # fmt: skip
def test_conditions_of_scripts(tmp_path: Path, text: str, conditions: list[str]) -> None:
    assert list_script_conditions(tmp_path, text) == conditions


def test_every_condition_is_documented() -> None:
    root = Path(__file__).parents[2]
    sources = ("plan/warnings.py", "plan/script_warnings.py", "ops/notices.py")
    text = "".join((root / "penstock" / each).read_text() for each in sources)
    conditions = set(re.findall(r'(?:QueryWarning|Notice)\(\s*"([A-Z_]+)"', text))
    documented = (root / "docs" / "troubleshooting.md").read_text()
    assert len(conditions) > 12
    assert [each for each in sorted(conditions) if f"`{each}`" not in documented] == []


@pytest.mark.parametrize("path", sorted(Path(__file__).parents[2].glob("examples/*.cql")), ids=lambda path: path.name)
def test_examples_have_no_warnings(path: Path) -> None:
    """Nexmark's texts join and group streams without a window."""
    expected = {"UNBOUNDED_STATE"} if path.name in ("nexmark.cql", "tpch.cql") else set()
    assert {warning.condition for warning in list_script_warnings(read_script(path))} == expected
