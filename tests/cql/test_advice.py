"""Refused SQL: every piece of advice is run, and compared with the SQL it replaces where both have an answer.

All rows of `b` come before those of `a`, and windows keep every row. So the rows that enter an answer are, together,
the answer of the SQL over all rows.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import penstock as ps
from penstock.cql import Catalog, bind_script

START = datetime(2026, 1, 1, 0, 0, 30)
B = [(0, 1, 10), (1, 2, 20), (2, 2, 21), (3, 4, None)]
A = [(4, 1, 1), (5, 1, 2), (6, 2, 3), (7, 3, 4), (16, 3, 5), (17, None, 6), (25, 1, 9)]


def make_table(rows: list[tuple[int, int | None, int | None]]) -> pa.Table:
    minutes, keys, values = zip(*rows, strict=True)
    times = pa.array([START + timedelta(minutes=each) for each in minutes], pa.timestamp("us"))
    return pa.table({"ts": times, "k": pa.array(keys, pa.int64()), "x": pa.array(values, pa.int64())})


def make_engine() -> ps.Engine:
    engine = ps.Engine()
    for name in "ab":
        engine.stream(name, {"ts": "timestamp", "k": "bigint", "x": "bigint"}, time="ts")
    return engine


def run(*statements: str) -> Counter[tuple[Any, ...]]:
    """The results of the last statement, without `_ts`; the others derive streams, `name: text`."""
    engine = make_engine()
    for derived in statements[:-1]:
        engine.derive(*derived.split(": ", 1))
    engine.query("q", statements[-1])
    found = [engine.push({"b": make_table(B)}), engine.push({"a": make_table(A)}), engine.flush()]
    return Counter(tuple(row.values())[:-1] for each in found for row in each["q"].to_pylist())


def ask_duckdb(sql: str) -> Counter[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        connection.register("a", make_table(A))
        connection.register("b", make_table(B))
        return Counter(connection.execute(sql).fetchall())


def refuse(text: str) -> ps.PenstockError:
    engine = make_engine()
    with pytest.raises(ps.QueryError) as caught:
        engine.query("q", text)
    return caught.value


EQUAL = [
    ("SELECT a.x, b.x AS y FROM a JOIN b ON a.x = b.k AND a.k IN (SELECT k FROM b)", "SUBQUERY",
     "FROM (SELECT *, k IN (SELECT k FROM b [...]) AS y FROM a [...]) AS t",
     ["SELECT t.x, b.x AS y FROM (SELECT *, k IN (SELECT k FROM b) AS y FROM a) AS t JOIN b ON t.x = b.k AND t.y"],
     "SELECT a.x, b.x AS y FROM a JOIN b ON a.x = b.k AND a.k IN (SELECT k FROM b)"),
    ("SELECT a.x, b.x AS y FROM a ASOF JOIN b ON a.k = b.k", "ASOF_JOIN",
     "FROM a [NOW] JOIN b [PARTITION BY k ROWS 1] ON a.k = b.k",
     ["SELECT a.x, b.x AS y FROM a [NOW] JOIN b [PARTITION BY k ROWS 1] ON a.k = b.k"],
     "SELECT a.x, b.x FROM a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "construct", "says", "statements", "sql"), EQUAL, ids=lambda each: str(each)[:40])
def test_rewrite_is_equal(wrong: str, construct: str, says: str, statements: list[str], sql: str) -> None:
    error = refuse(wrong)
    assert error.condition == f"UNSUPPORTED_{construct}"
    assert says in error.message
    assert run(*statements) == ask_duckdb(sql)


def read_reports(text: str) -> list[tuple[Any, ...]]:
    engine = make_engine()
    engine.query("q", text)
    found = [engine.push({"a": make_table(A)}), engine.push({"b": make_table(B)}), engine.flush()]
    return [tuple(row.values()) for each in found for row in each["q"].to_pylist()]


@pytest.mark.parametrize("wrong", [
    "SELECT COUNT(*) AS n FROM a GROUP BY TUMBLE(ts, INTERVAL '10' MINUTE)",
    "SELECT COUNT(*) AS n FROM a WINDOW TUMBLING (SIZE 10 MINUTES)",
])  # fmt: skip
def test_tumbling_window_in_from(wrong: str) -> None:
    error = refuse(wrong)
    assert error.condition == "UNSUPPORTED_TIME_WINDOW"
    assert "FROM TUMBLE(s, ts, INTERVAL '10' MINUTES)" in error.message
    windows = "TUMBLE(a, ts, INTERVAL '10' MINUTES) GROUP BY window_start, window_end"
    reports = read_reports(f"DSTREAM (SELECT COUNT(*) AS n, window_end FROM {windows})")
    last = {end: n for n, end, _ in reports}
    expected = ask_duckdb(
        "SELECT time_bucket(INTERVAL 10 MINUTE, ts) + INTERVAL 10 MINUTE, COUNT(*) FROM a GROUP BY ALL"
    )
    assert Counter(last.items()) == expected


def test_over_is_explained_by_what_runs() -> None:
    error = refuse("SELECT NTILE(4) OVER (ORDER BY ts) FROM a")
    assert error.condition == "UNSUPPORTED_OVER"
    joined = refuse("SELECT SUM(a.x) OVER (ORDER BY a.ts) FROM a, b WHERE a.k = b.k")
    assert "CREATE STREAM d AS SELECT" in joined.message
    sums = "SUM(x) OVER (ORDER BY _ts)"
    derived = run("d: SELECT a.x, a.k FROM a [NOW], b WHERE a.k = b.k", f"SELECT x, {sums} AS n FROM d")
    assert derived == ask_duckdb("SELECT a.x, SUM(a.x) OVER (ORDER BY a.ts) FROM a, b WHERE a.k = b.k")
    means = (
        "SELECT row.x, g.m FROM a [NOW] AS row JOIN (SELECT k, AVG(x) AS m FROM a [RANGE 5 MINUTES] GROUP BY k) AS g "
        "ON row.k = g.k"
    )
    over = "AVG(x) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL 5 MINUTE PRECEDING AND CURRENT ROW)"
    assert run(means) == ask_duckdb(f"SELECT x, {over} FROM a WHERE k IS NOT NULL")
    assert run("RSTREAM (SELECT k, x FROM a [PARTITION BY k ROWS 1] WHERE k = 3)") == Counter({(3, 4): 1, (3, 5): 1})
    pairs = "SELECT before.x AS p, now.x FROM SEQ(a AS before, a AS now) MODE RECENT WHERE before.k = now.k"
    lag = (
        "SELECT * FROM (SELECT LAG(x) OVER (PARTITION BY k ORDER BY ts) AS p, x FROM a WHERE k > 0) WHERE p IS NOT NULL"
    )
    assert run(pairs) == ask_duckdb(lag)


def test_aggregate_over_a_derived_aggregate_differs() -> None:
    """Why a view is not advised to be derived: a derived stream never loses the rows of an earlier answer."""
    text = "SELECT k, MAX(x) AS m FROM a WHERE k = 1 GROUP BY k"
    derived = run(f"g: {text}", "SELECT AVG(m) AS c FROM g")
    assert (4.0,) in derived  # the average of 1, 2 and 9
    assert (9.0,) not in derived
    named = run(f"WITH g AS ({text}) SELECT AVG(m) AS c FROM g")
    assert (9.0,) in named
    assert ask_duckdb(f"WITH g AS ({text}) SELECT AVG(m) AS c FROM g") == Counter({(9.0,): 1})


@pytest.mark.parametrize(
    ("wrong", "condition", "says", "right"),
    [
        ("SELECT k FROM a WHERE ts > NOW() - INTERVAL 5 MINUTES", "UNSUPPORTED_CLOCK", "[RANGE 5 MINUTES]",
         "SELECT COUNT(*) AS n FROM a [RANGE 5 MINUTES]"),
        ("SELECT k FROM a WHERE ts > CURRENT_TIMESTAMP", "UNSUPPORTED_CURRENT_TIMESTAMP", "[RANGE 5 MINUTES]",
         "SELECT k FROM a [RANGE 5 MINUTES]"),
        ("SELECT COUNT(*) AS n FROM a EMIT FINAL", "UNSUPPORTED_EMIT", "or EMIT CHANGES",
         "SELECT COUNT(*) AS n FROM a EMIT CHANGES"),
        ("SELECT COUNT(*) AS n FROM a EMIT ON WINDOW CLOSE", "UNSUPPORTED_EMIT_ON_WINDOW_CLOSE", "FROM TUMBLE(...)",
         "SELECT COUNT(*) AS n FROM TUMBLE(a, ts, 10 MINUTES) GROUP BY window_start, window_end EMIT ON WINDOW CLOSE"),
        ("SELECT a.k FROM a [RANGE 1 MINUTE] LEFT JOIN (a [RANGE 1 MINUTE] AS b LEFT JOIN a [RANGE 1 MINUTE] AS c "
         "ON b.k = c.k) ON a.k = b.k EMIT ON WINDOW CLOSE", "UNSUPPORTED_EMIT_ON_WINDOW_CLOSE_OF_NESTED_OUTER_JOINS",
         "a LEFT JOIN b ... LEFT JOIN c", "SELECT a.k FROM a [RANGE 1 MINUTE] LEFT JOIN a [RANGE 1 MINUTE] AS b "
         "ON a.k = b.k LEFT JOIN a [RANGE 1 MINUTE] AS c ON b.k = c.k EMIT ON WINDOW CLOSE"),
        ("SELECT ROW_NUMBER(k) FROM a", "UNSUPPORTED_OVER", "ROW_NUMBER() OVER (PARTITION BY k ORDER BY x)",
         "SELECT k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY x) AS n FROM a"),
        ("SELECT k FROM a ORDER BY k", "UNSUPPORTED_ORDER_BY", "remove it", "SELECT k FROM a"),
        ("SELECT k FROM a LIMIT 3", "UNSUPPORTED_LIMIT", "[ROWS n]", "SELECT k FROM a [ROWS 3]"),
        ("SELECT k FROM a LIMIT 3", "UNSUPPORTED_LIMIT", "ORDER BY x LIMIT n", "SELECT k FROM a ORDER BY x LIMIT 3"),
        ("SELECT k FROM a HAVING k > 1", "HAVING_WITHOUT_GROUP", "write WHERE", "SELECT k FROM a WHERE k > 1"),
        ("SELECT k FROM a [5 MINUTES]", "SYNTAX_ERROR", "[RANGE 5 MINUTES]", "SELECT k FROM a [RANGE 5 MINUTES]"),
        ("SELECT k FROM a [RANGE 1 MONTH]", "UNKNOWN_UNIT", "30 DAYS", "SELECT k FROM a [RANGE 30 DAYS]"),
        ("SELECT k FROM a [RANGE 5]", "DURATION_UNIT", "write 5 SECONDS", "SELECT k FROM a [RANGE 5 SECONDS]"),
        ("SELECT k FROM a WHERE k = CAST(x AS STRING)", "TYPE_MISMATCH", "write CAST(CAST(x AS STRING) AS BIGINT)",
         "SELECT k FROM a WHERE k = CAST(CAST(x AS STRING) AS BIGINT)"),
    ],
)  # fmt: skip
def test_advised_text_runs(wrong: str, condition: str, says: str, right: str) -> None:
    error = refuse(wrong)
    assert error.condition == condition
    assert says in error.message
    assert run(right)


@pytest.mark.parametrize("window", [
    "RANGE INTERVAL '5' MINUTE", "RANGE INTERVAL '5 minutes'", "RANGE INTERVAL 5 MINUTES", "RANGE '5 MINUTES'",
    "RANGE 5 MINUTES PRECEDING",
])  # fmt: skip
def test_intervals_of_sql_are_accepted(window: str) -> None:
    text = "SELECT a.x FROM a [{0}], b [{0}] WHERE a.k = b.k"
    assert run(text.format(window)) == run(text.format("RANGE 5 MINUTES")) != Counter()


@pytest.mark.parametrize("text", ["'5 five'", "'minutes'", "''", "INTERVAL 'x' MINUTE", "'5 MINUTES 3'"])
def test_wrong_interval(text: str) -> None:
    assert refuse(f"SELECT x FROM a [RANGE {text}]").condition in ("SYNTAX_ERROR", "UNKNOWN_UNIT")


COLUMNS = "ts TIMESTAMP, k BIGINT, x BIGINT"
STREAM = f"CREATE STREAM s ({COLUMNS}) TIMESTAMP BY ts"


@pytest.mark.parametrize(
    ("wrong", "condition", "says", "right"),
    [
        ("CREATE STREAM s (ts TIMESTAMP, k INT PRIMARY KEY) TIMESTAMP BY ts", "UNSUPPORTED_PRIMARY_KEY",
         "[PARTITION BY key ROWS 1]", f"{STREAM}; SELECT k FROM s [PARTITION BY k ROWS 1]"),
        ("CREATE STREAM s (ts TIMESTAMP, k INT, PRIMARY KEY (k)) TIMESTAMP BY ts", "UNSUPPORTED_PRIMARY_KEY",
         "remove it", STREAM),
        ("CREATE STREAM s (ts TIMESTAMP DEFAULT 0) TIMESTAMP BY ts", "UNSUPPORTED_DEFAULT", "NOT NULL",
         "CREATE STREAM s (ts TIMESTAMP NOT NULL) TIMESTAMP BY ts"),
        (f"CREATE STREAM s ({COLUMNS}) WATERMARK FOR ts AS ts", "UNSUPPORTED_WATERMARK",
         "write TIMESTAMP BY ts LATENESS 5 SECONDS", f"{STREAM} LATENESS 5 SECONDS"),
        (f"CREATE STREAM s ({COLUMNS}, WATERMARK FOR ts AS ts)", "UNSUPPORTED_WATERMARK", "after the columns",
         f"{STREAM} LATENESS 5 SECONDS"),
        (f"{STREAM} WITH (a='x')", "UNSUPPORTED_WITH",
         "write FROM format OPTIONS (key 'value')", f"{STREAM} FROM f OPTIONS (key 'value')"),
        (f"{STREAM} FROM json (path 'x')", "SYNTAX_ERROR", "OPTIONS before",
         f"{STREAM} FROM json OPTIONS (path 'x')"),
        ("CREATE STREAM s (ts STRING) TIMESTAMP BY ts", "TIME_COLUMN_TYPE", "Declare ts TIMESTAMP",
         "CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts"),
        (f"{STREAM}; CREATE TABLE v AS SELECT k FROM s", "UNSUPPORTED_CREATE_TABLE_AS",
         "write CREATE VIEW name AS SELECT ...", f"{STREAM}; CREATE VIEW v AS SELECT k FROM s; SELECT k FROM v"),
    ],
)  # fmt: skip
def test_advised_declaration(wrong: str, condition: str, says: str, right: str) -> None:
    with pytest.raises(ps.PenstockError) as caught:
        bind_script(wrong, Catalog())
    assert caught.value.condition == condition
    assert says in caught.value.message
    assert bind_script(right, Catalog())


@pytest.mark.parametrize("declared", ["TIMESTAMP NOT NULL", "TIMESTAMP(3)", "timestamp (6)  not  null"])
def test_types_that_are_accepted(declared: str) -> None:
    catalog = Catalog()
    bind_script(f"CREATE STREAM s (ts {declared}, name VARCHAR(20) NOT NULL) TIMESTAMP BY ts AHEAD 1 DAY", catalog)
    stream = catalog.relations["s"]
    assert stream.schema == pa.schema([("ts", pa.timestamp("us")), ("name", pa.string())])
    assert "name" in stream.required
    assert stream.ahead == 86_400_000_000
