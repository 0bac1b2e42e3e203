"""Named regressions: small runs on the public interface that once gave wrong results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from law_support import make_engine
from regression_runs import (
    COLUMNS,
    NARROW,
    WIDE,
    check_column_kept_later_in_compacted_window,
    check_parallel_track_on_shared_join,
    check_rows_window_after_query_drop,
    declare,
    expect,
    random_pushes,
    rows,
)

from penstock.testing import difference


@pytest.mark.parametrize("state", ["auto", "eager", "lazy", "jit", "none"])
def test_partitioned_rows_window_in_three_way_join(state: str) -> None:
    """After a window was renumbered, rows of an intermediate state were looked up by their old ids."""
    items = "A [PARTITION BY v ROWS 1], B [RANGE 20], C [RANGE 20]"
    text = f"SELECT A.ts AS a, B.ts AS b, C.ts AS c FROM {items} WHERE A.k = B.k AND B.k = C.k"
    eng = declare("ABC", state=state)
    eng.query("q", text, plan="((A B) C)")
    pushes = list(random_pushes("ABC", 60, 40, keys=100, values=60, skew=4.0))
    found = [eng.push(push)["q"] for push in pushes]
    fault = difference(pa.concat_tables([*found, eng.flush()["q"]]), expect(text, pushes))
    assert fault is None, fault


@pytest.mark.parametrize("window", ["[ROWS 2]", "[PARTITION BY k ROWS 1]"])
def test_rows_window_after_query_drop(window: str) -> None:
    check_rows_window_after_query_drop(window)


@pytest.mark.parametrize(("window", "count"), [("[ROWS 100]", 100), ("[PARTITION BY k ROWS 1]", 1)])
def test_rows_window_ends_tuples_after_query_drop(window: str, count: int) -> None:
    """Tuples freed with the dropped query stayed in the queues of the window, and later tuples did not expire."""
    eng = declare("AB")
    text = f"SELECT A.ts AS a FROM A {window}, B [RANGE 1000] WHERE A.k = B.k"
    eng.query("loose", text)
    eng.query("strict", f"{text} AND A.v = 2")
    eng.push({"A": rows((1, 7, 1), (2, 8, 2)), "B": rows((3, -1, 0))})
    eng.drop("loose")
    eng.push({"A": rows((9, 9, 0)), "B": rows((9, -1, 0))})
    for push in range(6):
        times = range(10 + 40 * push, 50 + 40 * push)
        eng.push({"A": rows(*((time, 7, 2) for time in times)), "B": rows((times[-1], -1, 0))})
    found = [eng.push({"B": rows((900, 7, 0))})["strict"], eng.flush()["strict"]]
    assert sum(table.num_rows for table in found) == count


@pytest.mark.parametrize(("names", "plan"), [("AB", "(B A)"), ("ABC", "(A C B)")])
def test_parallel_track_on_shared_join(names: str, plan: str) -> None:
    check_parallel_track_on_shared_join(names, plan)


def test_policies_set_during_parallel_track() -> None:
    """The new tree had the policies of the query and of its nodes from the start of the migration."""
    eng = declare("ABCD", state="eager")
    where = "A.k = B.k AND B.k = C.k AND C.k = D.k"
    eng.query("q", f"SELECT A.ts AS a FROM A, B, C, D WHERE {where} WINDOW 20", plan="(((A B) C) D)")
    pushes = list(random_pushes("ABCD", 12, 3, keys=9, values=2))
    for data in pushes[:2]:
        eng.push(data)
    eng.migrate("q", "((A B) (C D))", how="parallel-track")
    eng.policy("q", "lazy")
    eng.policy("q", "none", node="(A B)")
    for data in pushes[2:]:
        eng.push(data)
    assert eng.metrics("q")["plan"] == "((A B) (C D))"
    assert eng.metrics("q")["state"] == "lazy"
    kept = eng.metrics("q")["state_rows"]
    assert "(A B)" not in kept
    assert "(C D)" in kept


@pytest.mark.parametrize("restart", [False, True], ids=["", "after a restart"])
@pytest.mark.parametrize("how", ["history", "alter"])
def test_column_kept_later_is_not_null(how: str, restart: bool) -> None:
    """Tuples stored before a query made the window keep a column had NULL in that column."""
    eng = declare("AB")
    eng.query("narrow", NARROW.format(100))
    eng.query("changed", NARROW.format(100))
    eng.push({"A": rows((1, 1, 7)), "B": rows((1, -2, 0))})
    eng.query("wide", WIDE.format(100))
    eng.push({"A": rows((5, 1, 8)), "B": rows((5, -2, 0))})
    if restart:
        eng = type(eng).restore(eng.snapshot())
    if how == "history":
        eng.query("late", WIDE.format(100), history=True)
    else:
        eng.alter("changed", WIDE.format(100))
    late = "late" if how == "history" else "changed"
    since = eng.metrics(late)["complete_since"]
    found = eng.push({"B": rows((20, 1, 0)), "A": rows((21, -1, 0))})[late].to_pylist() + eng.flush()[late].to_pylist()
    assert found == [{"k": 1, "v": 8, "_ts": 20}]
    assert since == 101  # the tuple of 1, whose v was not kept, is in the window until then


def test_column_kept_later_in_compacted_window() -> None:
    check_column_kept_later_in_compacted_window()


def test_complete_since_after_history_query() -> None:
    """A query with history counted as holding all tuples of its window."""
    eng = declare("AB")
    eng.query("short", NARROW.format(10))
    eng.push({"A": rows((1, 1, 0)), "B": rows((1, -2, 0))})
    eng.push({"A": rows((50, -1, 0)), "B": rows((50, -2, 0))})
    for name in ("first", "second"):
        eng.query(name, NARROW.format(100), history=True)
    found = eng.push({"B": rows((100, 1, 0), (101, 1, 0)), "A": rows((102, -1, 0))})
    assert [found[name].num_rows for name in ("first", "second")] == [0, 0]  # a query from the start has one, at 100
    assert eng.metrics("first")["complete_since"] == eng.metrics("second")["complete_since"] > 100


@pytest.mark.parametrize("emit", ["DSTREAM", "RSTREAM", "COUNT", "SLIDE"])
def test_complete_since_of_dstream(emit: str) -> None:
    """At `complete_since` the end of a row from before the query was missing."""
    join = "FROM A [RANGE 10], B [RANGE 10] WHERE A.k = B.k"
    text = {
        "COUNT": f"SELECT A.k AS k, COUNT(*) AS n {join} GROUP BY A.k",
        "SLIDE": "SELECT A.k AS k, COUNT(*) AS n FROM A [RANGE 10 SLIDE 4] AS A GROUP BY A.k",
    }.get(emit, f"{emit} (SELECT A.k AS k, A.v AS v {join})")
    eng = declare("AB")
    eng.query("whole", text)
    eng.push({"A": rows((3, 1, 1), (5, 1, 2)), "B": rows((4, 1, 0), (5, 1, 0))})
    eng.query("late", text)
    since = eng.metrics("late")["complete_since"]
    found: dict[str, list[dict[str, Any]]] = {"whole": [], "late": []}
    outputs = [eng.push({"A": rows((time, 1, time)), "B": rows((time, 1, 0))}) for time in (8, *range(20, 40))]
    for out in [*outputs, eng.flush()]:
        for query in found:
            found[query] += out[query].to_pylist()
    after = {query: sorted(str(row) for row in each if row["_ts"] >= since) for query, each in found.items()}
    assert len(after["whole"]) > 2
    assert after["late"] == after["whole"]


def test_single_partition_does_not_pin_window() -> None:
    """A living row at the front of a window kept all dead rows after it in memory."""
    eng = declare("AB")
    eng.query("q", "SELECT A.v AS v FROM A [PARTITION BY k ROWS 1], B [RANGE 5] WHERE A.k = B.k")
    eng.push({"A": rows((0, 99, 0)), "B": rows((0, -2, 0))})
    for push in range(40):
        times = np.arange(1 + 100 * push, 101 + 100 * push)
        eng.push({"A": pa.table({"ts": times, "k": times % 10, "v": times}), "B": rows((int(times[-1]), -2, 0))})
    assert eng.metrics("q")["window_rows"]["A"] <= 4 * 11 + 200
    assert eng.push({"B": rows((4001, 99, 0)), "A": rows((4001, -1, 0))})["q"].to_pylist() == []
    assert eng.flush()["q"].to_pylist() == [{"v": 0, "_ts": 4001}]


@pytest.mark.parametrize("operator", ["UNION ALL", "EXCEPT"])
def test_restore_keeps_frontiers_of_set_operation(operator: str) -> None:
    """After a restore, certain results waited until every input had advanced again."""
    answers = []
    for restart in (False, True):
        eng = make_engine()
        eng.stream("A", COLUMNS, time="ts")
        eng.stream("B", COLUMNS, time="ts", lateness=5)
        eng.query("q", f"(SELECT k FROM B [RANGE 5]) {operator} (SELECT k FROM A [RANGE 5])")
        eng.push({"B": rows((3, 1, 0)), "A": rows((15, 2, 0))})
        if restart:
            eng = type(eng).restore(eng.snapshot())
        answers.append(eng.push({"B": rows((13, 3, 0))})["q"].to_pylist())
    assert answers[0] == answers[1] == [{"k": 1, "_ts": 3}]


def test_nested_query_during_parallel_track() -> None:
    """The node was found in the old tree, but the join continued with the new tree, which has no such node."""
    eng = declare("ABC", state="eager")
    text = "SELECT A.ts AS a FROM A [RANGE 10], B [RANGE 10], C [RANGE 10] WHERE A.k = B.k AND B.k = C.k"
    eng.query("wide", text, plan="((A B) C)")
    eng.push({name: rows((1, 1, 0)) for name in "ABC"})
    eng.migrate("wide", "(A (B C))", how="parallel-track")
    eng.query("narrow", "SELECT A.ts AS a FROM A [RANGE 10], B [RANGE 10] WHERE A.k = B.k")
    eng.query("nested", "SELECT B.ts AS b FROM B [RANGE 10], C [RANGE 10] WHERE B.k = C.k")
    found = [eng.push({name: rows((5, 1, 0)) for name in "ABC"}), eng.flush()]
    counts = {name: sum(out[name].num_rows for out in found) for name in found[0]}
    assert counts == {"wide": 7, "narrow": 1, "nested": 1}


def test_age_overflow() -> None:
    """The age of a pair overflowed to a negative number, which is inside every window."""
    eng = declare("AB")
    for name, window in (("all", "UNBOUNDED"), ("ten", "RANGE 10")):
        eng.query(name, f"SELECT A.ts AS a FROM A [{window}], B [{window}] WHERE A.k = B.k")
    early, late = -(2**62) - 5, 2**62 + 5
    eng.push({"A": rows((early, 1, 0)), "B": rows((early, 2, 0))})
    found = [eng.push({"A": rows((late, 3, 0)), "B": rows((late, 1, 0))}), eng.flush()]
    assert {name: sum(out[name].num_rows for out in found) for name in ("all", "ten")} == {"all": 1, "ten": 0}


@pytest.mark.parametrize("window", ["[ROWS 3]", "[UNBOUNDED]"])
def test_complete_since_of_unbounded_windows(window: str) -> None:
    """After tuples with negative times it was less than the largest time."""
    eng = declare("AB")
    text = f"SELECT A.ts AS a FROM A {window}, B [RANGE 5] WHERE A.k = B.k"
    eng.query("first", text)
    eng.push({"A": rows((-50, 1, 0)), "B": rows((-50, 2, 0))})
    eng.query("late", text)
    assert eng.metrics("late")["complete_since"] == 2**63 - 1


def test_restore_tells_unread_rows_of_relation_from_equal_ones() -> None:
    """Of two equal rows, the one that the join above had read was taken for the unread one: it entered again later."""
    answers = []
    for restart in (False, True):
        eng = declare("ABC")
        eng.query(
            "q", "SELECT A.v AS v FROM C [RANGE 14], A [UNBOUNDED] LEFT JOIN B [RANGE 9] ON A.k = B.k EMIT CHANGES"
        )
        found = [eng.push({"A": rows((2, 9, 1), (2, 1, 1)), "C": rows((3, 0, 0))})]
        found.append(eng.push({"A": rows((13, 2, 2)), "B": rows((12, 1, 0), (15, 2, 0))}))
        if restart:
            eng = type(eng).restore(eng.snapshot())
        changes = [row for out in (*found, eng.flush()) for row in out["q"].to_pylist()]
        answers.append(sorted((row["_ts"], row["_op"], row["v"]) for row in changes))
    assert answers[0] == answers[1]


def test_plan_of_many_outer_joins_is_small() -> None:
    """Every outer join tripled the work of planning, the snapshot, the explained plan and the first push."""
    eng = declare("AB")
    joins = " ".join(f"LEFT JOIN B [RANGE 5] AS b{n} ON A.k = b{n}.k" for n in range(20))
    eng.query("q", f"SELECT A.v AS v FROM A [RANGE 5] {joins}")
    assert len(eng.explain("q")) < 100_000
    assert eng.queries["q"].plan.count(";") == 20
    found = [eng.push({"A": rows((1, 1, 7)), "B": rows((1, 1, 0))}), eng.flush()]
    assert [row for out in found for row in out["q"].to_pylist()] == [{"v": 7, "_ts": 1}]


def test_full_join_tells_rows_of_both_sides_apart() -> None:
    """Two rows without a partner, one of either side, had the same identity if theirs was NULL: one was lost above."""
    eng = declare("AB")
    sides = "(SELECT DISTINCT v FROM A [NOW]) AS x FULL JOIN (SELECT DISTINCT v FROM B [NOW]) AS y ON x.v = y.v"
    eng.query("q", f"SELECT x.v AS v FROM {sides} LEFT JOIN A [NOW] AS z ON z.k = x.v")
    none = pa.table({"ts": [1], "k": [1], "v": pa.array([None], pa.int64())})
    found = [eng.push({"A": none, "B": none}), eng.flush()]
    assert sum(out["q"].num_rows for out in found) == 2


@pytest.mark.parametrize(("narrow", "wide"), [("int", "bigint"), ("smallint", "int"), ("float", "double")])
def test_snapshot_of_keys_of_different_widths(narrow: str, wide: str) -> None:
    """A class of join terms had the type of its first term: a snapshot failed on values of the others."""
    eng = make_engine()
    large: Any = {"bigint": 2**62, "int": 2**31 - 1, "double": 1e300}[wide]
    eng.stream("A", {"ts": "bigint", "k": narrow}, time="ts")
    eng.stream("B", {"ts": "bigint", "k": wide}, time="ts")
    eng.query("q", "SELECT A.ts AS a, B.ts AS b FROM A [RANGE 9], B [RANGE 9] WHERE A.k = B.k")
    eng.push({"A": [{"ts": 1, "k": 1}], "B": [{"ts": 1, "k": large}, {"ts": 2, "k": 1}]})
    eng = type(eng).restore(eng.snapshot())
    assert eng.flush()["q"].to_pylist() == [{"a": 1, "b": 2, "_ts": 2}]
