"""EMIT ON WINDOW CLOSE over outer, semi and anti joins: what Spark's and Flink's outer interval joins emit."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.state.maintenance import SMALLEST

Rows = list[tuple[int, int]]
"""Times and keys."""
LEFT = "SELECT a.ts AS a, b.ts AS b FROM a [RANGE 10] LEFT JOIN b [RANGE 5] ON a.k = b.k EMIT ON WINDOW CLOSE"
FULL = LEFT.replace("LEFT", "FULL")
CHAIN = (
    "SELECT a.ts AS a, b.ts AS b, c.ts AS c FROM a [RANGE 10] LEFT JOIN b [RANGE 5] ON a.k = b.k "
    "LEFT JOIN c [RANGE 3] ON a.k = c.k EMIT ON WINDOW CLOSE"
)


def make_engine(*queries: str, **options: Any) -> Any:
    engine = ps.Engine(**options)
    for name in ("a", "b", "c"):
        engine.stream(name, {"ts": "bigint", "k": "bigint"}, time="ts")
    engine.table("rooms", pa.table({"k": [1, 2, 2], "room": [10, 20, 21]}))
    for number, text in enumerate(queries):
        engine.query(f"q{number}", text)
    return engine


def push(engine: Any, query: str = "q0", **streams: Rows) -> list[tuple[Any, ...]]:
    tables = {
        name: pa.table({"ts": [time for time, _ in rows], "k": [key for _, key in rows]})
        for name, rows in streams.items()
    }
    return list_rows(engine.push(tables)[query])


def list_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def flush(engine: Any, query: str = "q0") -> list[tuple[Any, ...]]:
    return list_rows(engine.flush()[query])


def test_late_match_prevents_outer_row() -> None:
    engine = make_engine(LEFT)
    assert push(engine, a=[(1, 7)], b=[(1, 8)]) == []
    assert push(engine, a=[(10, 9)], b=[(10, 7)]) == []
    assert flush(engine) == [(1, 10, 10), (10, None, 20)]


def test_match_at_the_instant_of_expiry_is_too_late() -> None:
    engine = make_engine(LEFT)
    push(engine, a=[(1, 7)])
    assert push(engine, a=[(12, 9)], b=[(11, 7), (12, 8)]) == [(1, None, 11)]


def test_partner_that_has_expired_counts() -> None:
    engine = make_engine(LEFT)
    assert push(engine, a=[(1, 7)], b=[(2, 7)]) == []
    assert push(engine, a=[(9, 8)], b=[(9, 0)]) == [(1, 2, 2)]  # the row of b has expired at 7
    assert flush(engine) == [(9, None, 19)]


def test_expiry_without_match_by_heartbeat() -> None:
    engine = make_engine(LEFT)
    push(engine, a=[(1, 7)])
    engine.advance("a", 11)
    engine.advance("b", 11)
    assert push(engine) == []  # the instant 11 is not complete
    engine.advance("a", 12)
    engine.advance("b", 12)
    assert push(engine) == [(1, None, 11)]


def test_right_and_full_join_keep_both_sides() -> None:
    right = LEFT.replace("LEFT", "RIGHT")
    engine = make_engine(FULL, right)
    push(engine, a=[(1, 1), (2, 2)], b=[(3, 1), (4, 3)])
    found = engine.flush()
    assert Counter(list_rows(found["q0"])) == Counter([(1, 3, 3), (2, None, 12), (None, 4, 9)])
    assert Counter(list_rows(found["q1"])) == Counter([(1, 3, 3), (None, 4, 9)])


def test_chain_of_three_streams() -> None:
    """A row of c that meets a row of a without a partner in b is final when that row expires."""
    engine = make_engine(CHAIN)
    push(engine, a=[(1, 1), (1, 2), (1, 3), (1, 4)], b=[(2, 1), (7, 4)], c=[(3, 1), (2, 2), (2, 4)])
    assert Counter(flush(engine)) == Counter([
        (1, 2, 3, 3), (1, None, 2, 11), (1, None, None, 11), (1, 7, None, 11),
    ])  # fmt: skip


@pytest.mark.parametrize("side", ["(a [RANGE 10] JOIN b [RANGE 5] ON a.k = b.k) LEFT JOIN c [RANGE 3]",
                                  "c [RANGE 3] RIGHT JOIN (a [RANGE 10] JOIN b [RANGE 5] ON a.k = b.k)"])  # fmt: skip
def test_inner_join_as_preserved_side(side: str) -> None:
    engine = make_engine(f"SELECT a.ts AS a, b.ts AS b, c.ts AS c FROM {side} ON a.k = c.k EMIT ON WINDOW CLOSE")
    push(engine, a=[(1, 1), (2, 2), (3, 3)], b=[(2, 1), (3, 2)], c=[(4, 1)])
    assert flush(engine) == [(1, 2, 4, 4), (2, 3, None, 8)]


def test_inner_join_as_optional_side() -> None:
    text = "SELECT a.ts AS a, b.ts AS b FROM a [RANGE 10] LEFT JOIN (b [RANGE 5] JOIN c [RANGE 3] ON b.k = c.k) ON "
    engine = make_engine(f"{text} a.k = b.k EMIT ON WINDOW CLOSE")
    push(engine, a=[(1, 1), (2, 2)], b=[(2, 1), (3, 2)], c=[(4, 1)])
    assert flush(engine) == [(1, 2, 4), (2, None, 12)]


def test_semi_and_anti_joins() -> None:
    semi = "SELECT a.ts FROM a [RANGE 10] WHERE k IN (SELECT k FROM b [RANGE 5]) EMIT ON WINDOW CLOSE"
    anti = "SELECT a.ts FROM a [RANGE 10] WHERE k NOT IN (SELECT k FROM b [RANGE 5]) EMIT ON WINDOW CLOSE"
    engine = make_engine(semi, anti)
    push(engine, a=[(1, 1), (2, 2)], b=[(4, 1), (5, 1)])
    found = engine.flush()
    assert list_rows(found["q0"]) == [(1, 4)]
    assert list_rows(found["q1"]) == [(2, 12)]


def test_both_tests_of_where_hold_at_any_instants() -> None:
    """The partner in b and the one in c need not be valid at one instant, in either order of the terms."""
    terms = ["k IN (SELECT k FROM b [RANGE 2])", "NOT EXISTS (SELECT * FROM c [RANGE 2] WHERE c.k = a.k)"]
    queries = [f"SELECT a.ts FROM a [RANGE 10] WHERE {' AND '.join(each)} EMIT ON WINDOW CLOSE"
               for each in (terms, terms[::-1])]  # fmt: skip
    engine = make_engine(*queries)
    push(engine, a=[(1, 1), (1, 2), (1, 3)], b=[(8, 1), (3, 2)], c=[(2, 1), (2, 3)])
    found = engine.flush()
    assert list_rows(found["q0"]) == list_rows(found["q1"]) == [(1, 11)]


def test_static_table_decides_at_once() -> None:
    text = "SELECT a.ts, room FROM a [RANGE 10] LEFT JOIN rooms ON a.k = rooms.k EMIT ON WINDOW CLOSE"
    engine = make_engine(text)
    push(engine, a=[(1, 1), (2, 2), (3, 3)])
    engine.advance("a", 4)
    assert flush(engine)[-1:] == [(3, None, 3)]


def test_table_rows_have_partners_of_their_own() -> None:
    text = "SELECT a.ts, room, b.ts AS b FROM (a [RANGE 10] JOIN rooms ON a.k = rooms.k) LEFT JOIN b [RANGE 5] ON "
    engine = make_engine(f"{text} rooms.room = b.k EMIT ON WINDOW CLOSE")
    push(engine, a=[(1, 2)], b=[(2, 21)])
    assert flush(engine) == [(1, 21, 2, 2), (1, 20, None, 11)]


def test_hopping_windows_have_partners_of_their_own() -> None:
    windows = "HOP(a, ts, 5, 10) AS a LEFT JOIN HOP(b, ts, 5, 10) AS b ON a.k = b.k AND a.window_end = b.window_end"
    engine = make_engine(f"SELECT a.window_end AS w, b.ts AS b FROM {windows} EMIT ON WINDOW CLOSE")
    push(engine, a=[(6, 1)], b=[(12, 1)])
    assert flush(engine) == [(10, None, 10), (15, 12, 12)]


def test_unbounded_preserved_row_is_never_final() -> None:
    engine = make_engine(LEFT.replace("a [RANGE 10]", "a [UNBOUNDED]"))
    push(engine, a=[(1, 1), (2, 2)], b=[(3, 1)])
    assert flush(engine) == [(1, 3, 3)]


def test_final_rows_after_restarts() -> None:
    for text in (LEFT, FULL, CHAIN):
        whole, cut = make_engine(text), make_engine(text)
        found: dict[str, list[Any]] = {"whole": [], "cut": []}
        for step in make_steps():
            found["whole"] += push(whole, **step)
            found["cut"] += push(cut, **step)
            cut = ps.Engine.restore(cut.snapshot())
        assert Counter(found["whole"] + flush(whole)) == Counter(found["cut"] + flush(cut))


def make_steps(seed: int = 5, count: int = 12) -> list[dict[str, Rows]]:
    rng = np.random.default_rng(seed)
    return [
        {name: [(int(time), int(rng.integers(0, 12))) for time in np.sort(rng.integers(5 * step, 5 * step + 5, 4))]
         for name in ("a", "b", "c")}
        for step in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["LEFT", "RIGHT", "FULL"])
def test_outer_interval_join_of_a_batch_engine(kind: str) -> None:
    """The rows are those of the SQL join with the time bounds as a condition, as in Spark and Flink."""
    steps = make_steps(seed=6)
    engine = make_engine(LEFT.replace("LEFT", kind))
    found = [row for step in steps for row in push(engine, a=step["a"], b=step["b"])] + flush(engine)
    with duckdb.connect() as connection:
        for name in ("a", "b"):
            rows = [row for step in steps for row in step[name]]
            times, keys = zip(*rows, strict=True)
            connection.register(name, pa.table({"ts": list(times), "k": list(keys)}))
        on = "a.k = b.k AND b.ts < a.ts + 10 AND a.ts < b.ts + 5"
        wanted = connection.sql(f"SELECT a.ts, b.ts FROM a {kind} JOIN b ON {on}").fetchall()
    assert Counter((one, other) for one, other, _ in found) == Counter(wanted)
    ends = [(one + 10 if other is None else other + 5 if one is None else max(one, other)) for one, other, _ in found]
    assert [time for *_, time in found] == ends == sorted(ends)


def test_state_is_freed() -> None:
    engine = make_engine(LEFT, maintenance=SMALLEST)
    for step in range(60):
        times = range(50 * step, 50 * step + 50)
        push(engine, a=[(time, time) for time in times], b=[(time, time - time % 2) for time in times])
    assert engine.metrics("q0")["operators"]["q0: left join"]["rows"][0] < 200


def test_state_of_chain_is_freed() -> None:
    engine = make_engine(CHAIN, maintenance=SMALLEST)
    for step in range(60):
        times = range(50 * step, 50 * step + 50)
        push(
            engine,
            **{name: [(time, time - time % some) for time in times] for name, some in (("a", 1), ("b", 2), ("c", 3))},
        )
    figures = engine.metrics("q0")["operators"]["q0: final rows"]
    assert figures["candidates"] < 200
    assert max(figures["partners"]) < 200


def test_distinct_rows_are_final_when_they_enter() -> None:
    engine = make_engine("SELECT DISTINCT k FROM a [RANGE 5] EMIT ON WINDOW CLOSE")
    assert push(engine, a=[(1, 1), (2, 1), (20, 1), (21, 2)]) + flush(engine) == [(1, 1), (1, 20), (2, 21)]


def test_top_of_each_window() -> None:
    counts = "SELECT window_end AS w, k, COUNT(*) AS n FROM TUMBLE(a, ts, 10) GROUP BY window_start, window_end, k"
    ranked = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY w ORDER BY n DESC) AS r FROM ({counts}) AS g"
    engine = make_engine(f"SELECT w, k, n FROM ({ranked}) AS h WHERE r <= 1 EMIT ON WINDOW CLOSE")
    rows = push(engine, a=[(1, 1), (2, 2), (3, 2), (11, 5)]) + flush(engine)
    assert rows == [(10, 2, 2, 10), (20, 5, 1, 20)]


def test_group_of_window_over_outer_join() -> None:
    joined = "TUMBLE(a, ts, 10) AS a LEFT JOIN TUMBLE(b, ts, 10) AS b ON a.k = b.k AND a.window_end = b.window_end"
    text = f"SELECT a.window_end AS w, COUNT(*) AS n, COUNT(b.k) AS m FROM {joined} GROUP BY a.window_end"
    engine = make_engine(f"{text} EMIT ON WINDOW CLOSE")
    push(engine, a=[(1, 1), (2, 2), (11, 5)], b=[(3, 1)])
    assert flush(engine) == [(10, 2, 1, 10), (20, 1, 0, 20)]


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("SELECT a.k FROM a [RANGE 9] LEFT JOIN (b [RANGE 9] LEFT JOIN c [RANGE 9] ON b.k = c.k) ON a.k = b.k",
         "UNSUPPORTED_EMIT_ON_WINDOW_CLOSE_OF_NESTED_OUTER_JOINS"),
        ("SELECT a.k FROM (a [RANGE 9] LEFT JOIN b [RANGE 9] ON a.k = b.k) FULL JOIN c [RANGE 9] ON a.k = c.k",
         "UNSUPPORTED_EMIT_ON_WINDOW_CLOSE_OF_NESTED_OUTER_JOINS"),
        ("SELECT a.k FROM a [RANGE 9] LEFT JOIN (SELECT k, COUNT(*) AS n FROM b [NOW] GROUP BY k) AS g ON a.k = g.k",
         "UNSUPPORTED_EMIT_ON_WINDOW_CLOSE"),
        ("SELECT DISTINCT a.k FROM a [NOW] LEFT JOIN b [NOW] ON a.k = b.k", "UNSUPPORTED_EMIT_ON_WINDOW_CLOSE"),
        ("SELECT k FROM a [RANGE 9] ORDER BY k LIMIT 1", "UNSUPPORTED_EMIT_ON_WINDOW_CLOSE"),
    ],
)  # fmt: skip
def test_final_rows_are_refused(text: str, condition: str) -> None:
    with pytest.raises(ps.QueryError, match="EMIT CHANGES") as caught:
        make_engine(f"{text} EMIT ON WINDOW CLOSE")
    assert caught.value.condition == condition
