"""Functions with OVER: answers that SQL has too, the order of rows of one time, state, and mistakes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import penstock as ps

ROWS = {
    "ts": [1, 2, 2, 2, 4, 7, 7, 9, 15],
    "k": [1, 1, 2, 1, 1, 2, 1, None, 1],
    "x": [10, 30, 5, None, 20, 5, 1, 2, 3],
}
BY = "PARTITION BY k ORDER BY ts"


def make_engine() -> ps.Engine:
    engine = ps.Engine()
    engine.stream("s", {"ts": "bigint", "k": "bigint", "x": "bigint"}, time="ts")
    engine.table("names", pa.table({"k": [1, 2], "name": ["a", "b"]}))
    return engine


def run(*statements: str, size: int = 4) -> Counter[tuple[Any, ...]]:
    """The results of the last statement, without `_ts`; the others derive streams, `name: text`."""
    engine = make_engine()
    for derived in statements[:-1]:
        engine.derive(*derived.split(": ", 1))
    engine.query("q", statements[-1])
    table = pa.table(ROWS)
    found = [engine.push({"s": table.slice(at, size)}) for at in range(0, table.num_rows, size)]
    found.append(engine.flush())
    return Counter(tuple(row.values())[:-1] for each in found for row in each["q"].to_pylist())


def ask_duckdb(sql: str) -> Counter[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        connection.register("s", pa.table(ROWS))
        connection.register("names", pa.table({"k": [1, 2], "name": ["a", "b"]}))
        return Counter(connection.execute(sql).fetchall())


@pytest.mark.parametrize("text", [
    f"SELECT ts, k, SUM(x) OVER ({BY} RANGE BETWEEN 5 PRECEDING AND CURRENT ROW) AS n FROM s",
    f"SELECT ts, k, COUNT(*) OVER ({BY}) AS n, MAX(x) OVER ({BY}) - MIN(x) OVER ({BY}) AS m FROM s WHERE x > 1",
    f"SELECT ts, AVG(x) OVER w AS n, COUNT(x) OVER (w RANGE 3 PRECEDING) AS m FROM s WINDOW w AS ({BY})",
    "SELECT ts, SUM(x) OVER (ORDER BY ts RANGE BETWEEN 5 PRECEDING AND 2 PRECEDING) AS n FROM s",
    f"SELECT ts, SUM(x) FILTER (WHERE x > 4) OVER ({BY}) AS n, COUNT(DISTINCT x) OVER ({BY}) AS m FROM s",
    f"SELECT ts, x FROM s QUALIFY SUM(x) OVER ({BY}) > 30",
    f"SELECT ts, n FROM (SELECT ts, SUM(x) OVER ({BY}) AS n FROM s) AS t WHERE n > 30",
    "SELECT name, SUM(x) OVER (PARTITION BY name ORDER BY ts) AS n FROM s JOIN names ON s.k = names.k",
    f"SELECT ts, SUM(g) OVER ({BY}) AS n FROM (SELECT ts, k, SUM(x) OVER ({BY}) AS g FROM s) AS t",
    f"SELECT NTH_VALUE(ts, 2) OVER ({BY} RANGE 6 PRECEDING) AS n, LAST_VALUE(ts) OVER (ORDER BY ts) AS m FROM s",
    f"SELECT ts, SUM(x) OVER ({BY} RANGE BETWEEN CURRENT ROW AND 5 FOLLOWING) AS n FROM s",
    f"SELECT ts, MAX(x) OVER ({BY} RANGE BETWEEN 2 FOLLOWING AND 5 FOLLOWING) AS n, SUM(x) OVER ({BY}) AS m FROM s",
    "SELECT ts, COUNT(*) OVER (ORDER BY ts RANGE BETWEEN UNBOUNDED PRECEDING AND 3 FOLLOWING) AS n FROM s WHERE x > 1",
    f"SELECT ts, LEAD(ts, 3, -1) OVER (ORDER BY ts) - ts AS n, COUNT(*) OVER ({BY}) AS m FROM s",
    "SELECT ts, COUNT(*) OVER (ORDER BY ts ROWS BETWEEN 2 PRECEDING AND 3 FOLLOWING) AS n FROM s",
    f"SELECT ts, n FROM (SELECT ts, LEAD(ts) OVER ({BY}) AS n FROM s) AS t WHERE n > 3",
])  # fmt: skip
def test_answers_are_those_of_sql(text: str) -> None:
    """Rows of one time are all in a frame of time, so their order does not matter."""
    for size in (1, 4, 9):
        assert run(text, size=size) == ask_duckdb(text)


def test_rows_of_one_time_are_in_order_of_arrival() -> None:
    text = (
        f"SELECT ts, x, LAG(x, 1, -1) OVER ({BY}) AS p, COUNT(*) OVER ({BY} ROWS 1 PRECEDING) AS n FROM s WHERE k = 1"
    )
    expected = Counter(
        [(1, 10, -1, 1), (2, 30, 10, 2), (2, None, 30, 2), (4, 20, None, 2), (7, 1, 20, 2), (15, 3, 1, 2)]
    )
    assert all(run(text, size=size) == expected for size in (1, 2, 9))


def test_a_derived_stream_orders_rows_of_one_time_by_columns() -> None:
    text = "SELECT x, LAG(x) OVER (ORDER BY _ts) AS p FROM d"
    expected = Counter([(None, None), (5, None), (30, 5)])
    assert run("d: SELECT k, x FROM s WHERE ts = 2", text) == expected


def test_no_row_is_kept_longer_than_a_frame_reads_it() -> None:
    engine = make_engine()
    engine.query("q", f"SELECT SUM(x) OVER ({BY} RANGE 5 PRECEDING) AS n, LAG(x) OVER ({BY}) AS p FROM s")
    for at in range(0, 400, 10):
        rows = {"ts": [at + i for i in range(10)], "k": [i % 2 + (at // 100) for i in range(10)], "x": [1] * 10}
        engine.push({"s": pa.table(rows)})
    held = engine.metrics("q")["operators"]["q: over"]
    assert held["rows"] <= 6 + 2 * 5  # of the last six instants, and the last row or two of each of five keys
    assert held["partitions"] <= 2 + 5


def test_a_row_leaves_when_its_frames_are_complete() -> None:
    """At the time of the n-th later row of its partition, or when time has passed; at the end without an instant."""
    engine = make_engine()
    engine.query("rows", f"SELECT ts, LEAD(x, 2, 0) OVER ({BY}) AS n FROM s WHERE k = 1")
    engine.query("time", "SELECT ts, SUM(x) OVER (ORDER BY ts RANGE BETWEEN CURRENT ROW AND 4 FOLLOWING) AS n FROM s")
    engine.query("hidden", f"SELECT ts FROM (SELECT ts, LEAD(x, 2) OVER ({BY}) AS n FROM s WHERE k = 1) AS t")
    out = engine.push({"s": pa.table(ROWS).slice(0, 6)})
    assert out["rows"].to_pylist() == [{"ts": 1, "n": None, "_ts": 2}, {"ts": 2, "n": 20, "_ts": 4}]
    assert out["time"].to_pylist() == [{"ts": 1, "n": 65, "_ts": 5}, *[{"ts": 2, "n": 55, "_ts": 6}] * 3]
    assert out["hidden"].to_pylist() == [{"ts": 1, "_ts": 2}, {"ts": 2, "_ts": 4}]
    engine.advance("s", 9)
    assert engine.push({})["time"].to_pylist() == [{"ts": 4, "n": 25, "_ts": 8}]
    assert engine.flush()["rows"].to_pylist() == [{"ts": 2, "n": 0, "_ts": None}, {"ts": 4, "n": 0, "_ts": None}]


def test_rows_without_a_column_of_their_own_leave_at_the_end() -> None:
    text = (
        "SELECT n FROM (SELECT ts, SUM(x) OVER (ORDER BY ts ROWS BETWEEN 2 FOLLOWING AND 3 FOLLOWING) AS n FROM s) AS t"
    )
    wanted = [5, 20, 25, 6, 3, 5, 3, None, None]
    assert run(text) == Counter((n,) for n in wanted)


def test_rows_that_wait_survive_a_restart() -> None:
    engine = make_engine()
    engine.query("q", f"SELECT ts, x, LEAD(x) OVER ({BY}) AS n FROM s EMIT CHANGES")
    whole = make_engine()
    whole.query("q", f"SELECT ts, x, LEAD(x) OVER ({BY}) AS n FROM s EMIT CHANGES")
    found, wanted = [], []
    for at in range(len(ROWS["ts"])):
        rows = {"s": pa.table(ROWS).slice(at, 1)}
        wanted += whole.push(rows)["q"].to_pylist()
        found += engine.push(rows)["q"].to_pylist()
        engine = ps.Engine.restore(engine.snapshot())
    found += engine.flush()["q"].to_pylist()
    wanted += whole.flush()["q"].to_pylist()
    assert Counter(map(str, found)) == Counter(map(str, wanted))


def test_a_derived_stream_has_the_instant_of_completion() -> None:
    text = "SELECT x, n, LAG(n) OVER (ORDER BY _ts) AS p FROM d"
    found = run(f"d: SELECT x, LEAD(x) OVER ({BY}) AS n FROM s WHERE k = 1 AND ts > 2", text)
    assert found == Counter([(20, 1, None), (1, 3, 1), (3, None, 3)])


@pytest.mark.parametrize(("text", "condition", "words"), [
    ("SELECT x FROM s WHERE SUM(x) OVER (ORDER BY ts) > 1", "WINDOW_FUNCTION_NOT_ALLOWED", "QUALIFY"),
    ("SELECT x FROM s WHERE ROW_NUMBER() OVER (ORDER BY x) = 1", "WINDOW_FUNCTION_NOT_ALLOWED", "a subquery"),
    ("SELECT x FROM s GROUP BY SUM(x) OVER (ORDER BY ts)", "WINDOW_FUNCTION_NOT_ALLOWED", "QUALIFY"),
    ("SELECT SUM(x) OVER (PARTITION BY k) FROM s", "ORDER_BY_MISSING", "ORDER BY ts"),
    ("SELECT SUM(x) OVER (ORDER BY x) FROM s", "NOT_THE_TIME_COLUMN", "ORDER BY ts"),
    ("SELECT SUM(x) OVER (ORDER BY ts DESC) FROM s", "NOT_THE_TIME_COLUMN", "ascending"),
    ("SELECT SUM(x) OVER (ORDER BY ts, x) FROM s", "NOT_THE_TIME_COLUMN", "alone"),
    ("SELECT SUM(x) OVER v FROM s", "UNKNOWN_WINDOW", "WINDOW name AS"),
    ("SELECT SUM(x) OVER v FROM s WINDOW w AS (ORDER BY ts)", "UNKNOWN_WINDOW", "has w"),
    ("SELECT LAG(x) OVER (ORDER BY ts ROWS 1 PRECEDING) FROM s", "INVALID_FRAME", "LAG takes no frame"),
    ("SELECT LAG(x, k) OVER (ORDER BY ts) FROM s", "INVALID_FRAME", "whole number"),
    ("SELECT RANK() OVER (ORDER BY ts ROWS 1 PRECEDING) FROM s", "INVALID_FRAME", "takes no frame"),
    ("SELECT SUM(x) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND 2 PRECEDING) FROM s", "INVALID_FRAME", "starts"),
    ("SELECT SUM(x) OVER (ORDER BY ts RANGE INTERVAL '1' MINUTE PRECEDING) FROM s", "DURATION_UNIT", "ticks"),
    ("SELECT SUM(x) OVER (ORDER BY ts ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) FROM s",
     "UNSUPPORTED_UNBOUNDED_FOLLOWING", "2 FOLLOWING"),
    ("SELECT SUM(x) OVER (ORDER BY ts ROWS BETWEEN UNBOUNDED FOLLOWING AND 3 FOLLOWING) FROM s",
     "INVALID_FRAME", "no frame starts at"),
    ("SELECT SUM(x) OVER (ORDER BY ts ROWS BETWEEN 2 FOLLOWING AND 1 FOLLOWING) FROM s", "INVALID_FRAME", "ends"),
    ("SELECT SUM(x) OVER (ORDER BY ts ROWS 2 FOLLOWING) FROM s", "INVALID_FRAME", "ends before"),
    ("SELECT LEAD(x) OVER (ORDER BY ts), LEAD(x) OVER (PARTITION BY k ORDER BY ts) FROM s",
     "UNSUPPORTED_FOLLOWING_IN_TWO_PARTITIONS", "the same PARTITION BY"),
    ("SELECT LEAD(x) OVER w, SUM(x) OVER (w RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM s "
     "WINDOW w AS (ORDER BY ts)",
     "UNSUPPORTED_FOLLOWING_IN_ROWS_AND_IN_RANGE", "all of RANGE"),
    ("SELECT LAG(n) OVER (ORDER BY ts) FROM (SELECT ts, LEAD(x) OVER (ORDER BY ts) AS n FROM s) AS t",
     "UNSUPPORTED_OVER_OF_THESE_ROWS", "without LEAD"),
    ("SELECT LEAD(x) OVER (ORDER BY ts ROWS 1 PRECEDING) FROM s", "INVALID_FRAME", "LEAD takes no frame"),
    ("SELECT LAG(x, 1, 0, 0) OVER (ORDER BY ts) FROM s", "ARGUMENT_COUNT", "1 to 3"),
    ("SELECT LAG(x, 1, 'a') OVER (ORDER BY ts) FROM s", "TYPE_MISMATCH", "LAG"),
    ("SELECT LAG(x) FROM s", "UNSUPPORTED_OVER", "OVER (PARTITION BY k ORDER BY ts)"),
    ("SELECT SUM(x) OVER (ORDER BY ts) FROM s [RANGE 5]", "UNSUPPORTED_OVER_OF_THESE_ROWS", "remove the window"),
    ("SELECT SUM(a.x) OVER (ORDER BY a.ts) FROM s AS a, s AS b", "UNSUPPORTED_OVER_OF_THESE_ROWS", "CREATE STREAM"),
    ("SELECT LAG(COUNT(*)) OVER (ORDER BY ts) FROM s GROUP BY ts", "UNSUPPORTED_OVER_OF_THESE_ROWS", "GROUP BY"),
])  # fmt: skip
def test_mistakes_say_what_to_write(text: str, condition: str, words: str) -> None:
    with pytest.raises(ps.QueryError) as caught:
        make_engine().query("q", text)
    assert caught.value.condition == condition
    assert words in caught.value.message


def test_an_aggregate_that_raises_stops_its_query_only() -> None:
    class Picky:
        type = "bigint"

        def iterate(self, value: int) -> None:
            if value == 20:
                raise ValueError("no 20")

        def terminate(self) -> int:
            return 1

    engine = make_engine()
    engine.aggregate("picky", Picky)
    engine.query("q", f"SELECT PICKY(x) OVER ({BY}) AS n FROM s")
    engine.query("other", f"SELECT SUM(x) OVER ({BY}) AS n FROM s")
    engine.push({"s": pa.table(ROWS)})
    assert engine.flush()["other"].num_rows
    assert "no 20" in str(engine.metrics("q")["error"])
