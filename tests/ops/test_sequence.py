"""Sequences: order, ties, skew, time bounds, predicates, and state."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import penstock as ps


def engine(*names: str, **options: Any) -> ps.Engine:
    made = ps.Engine(**options)
    for name in names or ("a", "b", "c"):
        made.stream(name, {"ts": "bigint", "k": "bigint"}, time="ts")
    return made


def rows(*given: tuple[int, int]) -> pa.Table:
    return pa.table(
        {"ts": pa.array([t for t, _ in given], pa.int64()), "k": pa.array([k for _, k in given], pa.int64())}
    )


def pairs(made: ps.Engine, text: str, **streams: list[tuple[int, int]]) -> list[tuple[int, ...]]:
    made.query("q", text)
    out = [made.push({name: rows(*given) for name, given in streams.items()})["q"], made.flush()["q"]]
    return [tuple(row.values())[:-1] for table in out for row in table.to_pylist()]


TWO = "SELECT x.ts AS one, y.ts AS two FROM SEQ(a{w} AS x, b AS y) MODE {mode}"


def test_recent_reuses_newest() -> None:
    text = TWO.format(w="", mode="RECENT")
    assert pairs(engine(), text, a=[(1, 0), (3, 0)], b=[(0, 0), (2, 0), (4, 0), (5, 0)]) == [(1, 2), (3, 4), (3, 5)]


def test_chronicle_consumes_earliest() -> None:
    text = TWO.format(w="", mode="CHRONICLE")
    assert pairs(engine(), text, a=[(1, 0), (3, 0)], b=[(0, 0), (2, 0), (4, 0), (5, 0)]) == [(1, 2), (3, 4)]


@pytest.mark.parametrize(("first", "wanted"), [("a", [(1, 1), (1, 2)]), ("b", [(1, 2)])])
def test_equal_times_ordered_by_declaration(first: str, wanted: list[tuple[int, int]]) -> None:
    made = engine(*("ab" if first == "a" else "ba"))
    assert pairs(made, TWO.format(w="", mode="RECENT"), a=[(1, 0)], b=[(1, 0), (2, 0)]) == wanted


def test_restore_keeps_declaration_order() -> None:
    made = engine("b", "a")
    made.derive("d", "SELECT k FROM a")
    made.stream("e", {"ts": "bigint", "k": "bigint"}, time="ts")
    made = ps.Engine.restore(made.snapshot())
    made.query("q", "SELECT x.k AS one, y.k AS two FROM SEQ(d AS x, e AS y) MODE RECENT")
    made.push({"a": rows((1, 7)), "e": rows((1, 8))})
    assert made.flush()["q"].to_pylist() == [{"one": 7, "two": 8, "_ts": 1}]


def test_equal_times_in_stream_ordered_by_arrival() -> None:
    text = "SELECT x.k AS one, y.k AS two FROM SEQ(a AS x, a AS y) MODE RECENT"
    assert pairs(engine(), text, a=[(1, 1), (1, 2), (1, 3)]) == [(1, 2), (2, 3)]


def test_window_bounds_distance_in_time() -> None:
    given: dict[str, Any] = {"a": [(1, 0), (2, 0)], "b": [(4, 0), (5, 0), (6, 0)]}
    assert pairs(engine(), TWO.format(w=" [RANGE 4]", mode="CHRONICLE"), **given) == [(1, 4), (2, 5)]
    assert pairs(engine(), TWO.format(w=" [RANGE 3]", mode="CHRONICLE"), **given) == [(2, 4)]
    assert pairs(engine(), TWO.format(w=" [RANGE 4]", mode="RECENT"), **given) == [(2, 4), (2, 5)]


@pytest.mark.parametrize("mode", ["RECENT", "CHRONICLE"])
def test_predicates_filter_pairs(mode: str) -> None:
    a, b = [(1, 5), (2, 9), (3, 6)], [(4, 6), (5, 8), (6, 9)]
    equal = TWO.format(w="", mode=mode) + " WHERE x.k = y.k"
    assert pairs(engine(), equal, a=a, b=b) == [(3, 4), (2, 6)]
    below = TWO.format(w="", mode=mode) + " WHERE x.k <= y.k"
    wanted = {"RECENT": [(3, 4), (3, 5), (3, 6)], "CHRONICLE": [(1, 4), (3, 5), (2, 6)]}
    assert pairs(engine(), below, a=a, b=b) == wanted[mode]


def test_three_steps_left_to_right() -> None:
    text = "SELECT x.ts AS one, y.ts AS two, z.ts AS three FROM SEQ(a AS x, b AS y, c AS z) MODE {}"
    given: dict[str, Any] = {"a": [(1, 0), (2, 0)], "b": [(3, 0), (4, 0)], "c": [(5, 0), (6, 0), (7, 0)]}
    assert pairs(engine(), text.format("CHRONICLE"), **given) == [(1, 3, 5), (2, 4, 6)]
    assert pairs(engine(), text.format("RECENT"), **given) == [(2, 4, 5), (2, 4, 6), (2, 4, 7)]
    bound = text.format("CHRONICLE").replace("a AS x", "a [RANGE 5] AS x")
    assert pairs(engine(), bound, **given) == [(1, 3, 5), (2, 4, 6)]
    assert pairs(engine(), bound.replace("RANGE 5", "RANGE 4"), **given) == [(2, 4, 5)]


def test_tuple_waits_for_earlier_frontier() -> None:
    """Skew: the product arrives before the case it belongs to."""
    made = engine()
    made.query("q", TWO.format(w="", mode="RECENT"))
    assert made.push({"a": rows((1, 0)), "b": rows((5, 0))})["q"].num_rows == 0
    assert made.push({"a": rows((4, 0))})["q"].num_rows == 0
    assert made.push({"a": rows((6, 0))})["q"].to_pylist() == [{"one": 4, "two": 5, "_ts": 5}]
    made.advance("a", 9)
    assert made.push({"b": rows((8, 0))})["q"].to_pylist() == [{"one": 6, "two": 8, "_ts": 8}]


def test_pair_ends_with_first_expired_tuple() -> None:
    text = f"DSTREAM ({TWO.format(w=' [RANGE 4]', mode='RECENT').replace('b AS y', 'b [RANGE 9] AS y')})"
    made = engine()
    made.query("q", text)
    made.push({"a": rows((1, 0)), "b": rows((3, 0))})
    assert made.flush()["q"].to_pylist() == [{"one": 1, "two": 3, "_ts": 5}]


def pending(made: ps.Engine) -> int:
    operators: Any = made.metrics("q")["operators"]
    return int(operators["q: sequence"]["pending"])


def test_unusable_tuples_are_freed() -> None:
    recent, chronicle = engine(), engine()
    recent.query("q", TWO.format(w="", mode="RECENT") + " WHERE x.k = y.k")
    chronicle.query("q", TWO.format(w="", mode="CHRONICLE") + " WHERE x.k = y.k")
    for start in range(0, 60_000, 10_000):
        data = rows(*((start + i, i % 7) for i in range(10_000)))
        recent.push({"a": data, "b": data})
        chronicle.push({"a": data, "b": data})
    assert pending(recent) <= 7 + 1
    assert pending(chronicle) <= 7 + 1


@pytest.mark.parametrize("mode", ["RECENT", "CHRONICLE"])
def test_compaction_keeps_results(mode: str) -> None:
    count = 9000
    early = [(t, t % 13) for t in range(count)]
    late = [(t + count // 2, t % 17) for t in range(count)]
    for more in ("", " AND x.ts + 3 < y.ts"):
        text = TWO.format(w=f" [RANGE {count}]", mode=mode) + " WHERE x.k = y.k" + more
        at_once = pairs(engine(), text, a=early, b=late)
        made, found = engine(batch=500), []
        made.query("q", text)
        for start in range(0, 2 * count, 1000):
            step = {
                n: [row for row in each if start <= row[0] < start + 1000] for n, each in (("a", early), ("b", late))
            }
            found.append(made.push({name: rows(*each) for name, each in step.items()})["q"])
        found.append(made.flush()["q"])
        assert [tuple(row.values())[:-1] for table in found for row in table.to_pylist()] == at_once
        assert len(at_once) > 1000


def test_unsupported_sequence_options() -> None:
    made = engine()
    with pytest.raises(ps.UnsupportedError, match="ROWS_IN_SEQ"):
        made.query("q", TWO.format(w=" [ROWS 3]", mode="RECENT"))
    with pytest.raises(ps.QueryError, match="PLAN_WITHOUT_JOIN"):
        made.query("q", TWO.format(w="", mode="RECENT"), plan="(x y)")
    assert list(made.flush()) == []
