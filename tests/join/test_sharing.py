"""Queries that share a join: which can, their metrics, and what happens when one fails, is added or is dropped."""

from __future__ import annotations

import pickle
import random
from collections.abc import Mapping
from typing import Any
from weakref import ref

import pyarrow as pa
import pytest
from injected_errors import fail_in_filters_with
from inspect_engine import joins_of, operator_ids, slicing_of

import penstock as ps
from penstock.state import Maintenance
from penstock.testing import same_rows


def pairs(window: int = 10, where: str = "", shown: str = "a.x, b.ts AS t", names: str = "a b") -> str:
    a, b = names.split()
    text = f"SELECT {shown} FROM A [RANGE {window}] AS a, B [RANGE {window}] AS b WHERE a.x = b.x{where}"
    return text.replace("a.", f"{a}.").replace("b.", f"{b}.").replace("AS a,", f"AS {a},").replace("AS b ", f"AS {b} ")


def engine(**options: Any) -> ps.Engine:
    eng = ps.Engine(**options)
    for name in "ABC":
        eng.stream(name, {"ts": "bigint", "x": "bigint", "v": "bigint"}, time="ts")
    eng.table("T", pa.table({"x": [1, 2], "name": ["one", "two"], "size": [10, 20]}))
    return eng


def rows(*tuples: tuple[int, int]) -> pa.Table:
    times, keys = zip(*tuples, strict=True)
    return pa.table({"ts": times, "x": keys, "v": [time % 3 for time in times]})


def joins(eng: ps.Engine) -> int:
    return len(joins_of(eng))


@pytest.mark.parametrize(
    "other",
    [
        pairs(3),
        pairs(10, " AND a.v > 1"),
        pairs(10, " AND a.ts < b.ts"),
        pairs(10, shown="b.v"),
        pairs(7, names="left right"),
        "SELECT b.x FROM B [RANGE 2] AS b JOIN A [UNBOUNDED] AS a ON b.x = a.x",
        f"RSTREAM ({pairs()})",
        pairs(shown="a.x, COUNT(*) AS n") + " GROUP BY a.x",
        pairs(7).replace("SELECT", "SELECT DISTINCT"),
    ],
)
def test_join_shared_by_different_queries(other: str) -> None:
    """Windows, filters, predicates, select lists and output of queries that share a join may differ."""
    eng = engine()
    eng.query("p", pairs())
    eng.query("q", other)
    assert joins(eng) == 1


@pytest.mark.parametrize(
    "other",
    [
        pairs().replace("a.x = b.x", "a.x = b.v"),
        pairs().replace("a.x = b.x", "a.x = b.x AND a.v = b.v"),
        "SELECT a.x FROM A [RANGE 10] AS a, C [RANGE 10] AS c WHERE a.x = c.x",
        "SELECT a.x FROM A [ROWS 3] AS a, B [RANGE 10] AS b WHERE a.x = b.x",
        pairs(shown="a.x, COUNT(*) AS n") + " GROUP BY a.x",
        "SELECT a.x FROM A [RANGE 10] AS a WHERE a.x > 1",
    ],
)
def test_join_not_shared_by_incompatible_queries(other: str) -> None:
    """Queries share a join only if streams, join classes and ROWS windows agree, and no budget can distort one."""
    eng = engine()
    eng.query("p", pairs() + " FRESHNESS a 10")
    eng.query("q", other)
    assert joins(eng) == 2


def counted(size: int, shown: str = "a.x", where: str = "a.x = b.x", partition: str = "") -> str:
    return f"SELECT {shown} FROM A [{partition}ROWS {size}] AS a, B [{partition}ROWS {size}] AS b WHERE {where}"


def test_windows_of_rows_with_different_sizes_share_one_join() -> None:
    eng = engine()
    for size in (3, 1, 7):
        eng.query(f"q{size}", counted(size))
    assert joins(eng) == 1
    assert "keeps more tuples for other queries: the last 7 of a, 7 of b" in eng.explain("q3")
    assert "keeps more" not in eng.explain("q7")
    eng.drop("q7")
    assert "keeps more" not in eng.explain("q3")


@pytest.mark.parametrize(
    "other",
    [
        f"DSTREAM ({counted(9)})",
        counted(9, shown="a.x, COUNT(*) AS n") + " GROUP BY a.x",
        counted(9, where="a.x = b.x AND a.v > 2"),
        counted(9, partition="PARTITION BY v "),
    ],
)
def test_windows_of_rows_that_need_joins_of_their_own(other: str) -> None:
    """The end of a row is known for one size only, and a filter of one query must not keep tuples for another."""
    eng = engine()
    eng.query("p", counted(3))
    eng.query("q", other)
    assert joins(eng) == 2


@pytest.mark.parametrize("share", [True, False])
def test_wider_window_of_rows_of_partitions_added_later(share: bool) -> None:
    """Rows that have left the smaller window are not counted for the larger one, which would never end later rows."""
    eng = ps.Engine(share=share)
    for stream in "AB":
        eng.stream(stream, {"ts": "bigint", "k": "bigint"}, time="ts")

    def push(time: int, keys: list[int]) -> None:
        times = list(range(time, time + len(keys)))
        eng.push({"A": {"ts": times, "k": keys}}, dict.fromkeys("AB", time + len(keys)))

    text = "SELECT a.ts AS a FROM A [PARTITION BY k ROWS {}] a, B [PARTITION BY k ROWS 1] b WHERE a.k = b.k"
    eng.query("p", text.format(1))
    push(1, [9, 0, 0])
    eng.query("q", text.format(5))
    push(4, [9] * 6)
    push(10, [7] * 60)
    push(70, [0] * 12)
    found = eng.push({"B": {"ts": [90], "k": [0]}}, {"A": 91, "B": 91})
    assert sorted(row["a"] for row in found["q"].to_pylist()) == [77, 78, 79, 80, 81]
    assert [row["a"] for row in found["p"].to_pylist()] == [81]


def test_plain_query_does_not_wait_for_aggregate() -> None:
    """One join gives a pair to the plain query at once, and to the aggregate when its instant is complete."""
    eng = engine()
    eng.query("plain", pairs())
    eng.query("counted", pairs(shown="a.x, COUNT(*) AS n") + " GROUP BY a.x")
    first = eng.push({"A": rows((1, 7)), "B": rows((1, 7))})
    assert (first["plain"].num_rows, first["counted"].num_rows) == (1, 0)
    assert joins(eng) == 1
    assert "rows are given to counted when their instant is complete, to the others at once" in eng.explain("plain")
    assert (eng.metrics("plain")["held_back"], eng.metrics("counted")["held_back"]) == (0, 1)
    later = ps.Engine.restore(eng.snapshot()).push({"A": rows((1, 7), (2, 8)), "B": rows((2, 7))})
    assert (later["plain"].num_rows, later["counted"].to_pylist()) == (3, [{"x": 7, "n": 2, "_ts": 1}])


def test_rows_held_back_are_given_without_plain_query() -> None:
    """The plain query is dropped while rows of an instant are held back; the aggregate gets them when it is over."""
    eng = engine()
    eng.query("plain", pairs())
    eng.query("counted", pairs(shown="a.x, COUNT(*) AS n") + " GROUP BY a.x")
    eng.push({"A": rows((1, 7)), "B": rows((1, 7))})
    eng.drop("plain")
    assert eng.push({"A": rows((2, 8)), "B": rows((2, 9))})["counted"].to_pylist() == [{"x": 7, "n": 1, "_ts": 1}]


def test_theta_join_shared_only_with_bounds_of_equal_terms() -> None:
    eng = engine()
    less = "SELECT a.x FROM A [RANGE 10] AS a, B [RANGE {}] AS b WHERE a.x < b.x"
    eng.query("p", less.format(10))
    eng.query("q", less.format(5))
    eng.query("r", less.format(5).replace("<", ">"))
    assert joins(eng) == 2


def test_join_sharing_with_table() -> None:
    """A filter on a table prevents sharing; further columns of the table are added when read."""
    text = "SELECT {} FROM A [RANGE 9] AS a, B [RANGE 9] AS b, T WHERE a.x = b.x AND b.x = T.x{}"
    eng = engine()
    eng.query("p", text.format("T.name", ""))
    eng.query("same", text.format("T.name, a.v", ""))
    assert joins(eng) == 1
    eng.query("other", text.format("T.size", ""))
    assert joins(eng) == 1
    eng.query("filtered", text.format("T.name", " AND T.size > 10"))
    assert joins(eng) == 2
    assert eng.push({"A": rows((1, 2)), "B": rows((1, 2))})["other"].to_pylist() == [{"size": 20, "_ts": 1}]


def test_join_with_explicit_plan_shared_by_equal_plan() -> None:
    text = "SELECT a.x FROM A [RANGE 9] AS a, B [RANGE 9] AS b, C [RANGE 9] AS c WHERE a.x = b.x AND b.x = c.x"
    eng = engine()
    eng.query("p", text, plan="((a b) c)")
    eng.query("q", text, plan="((a b) c)")
    eng.query("any", text)
    assert joins(eng) == 1
    eng.query("r", text, plan="(a (b c))")
    assert joins(eng) == 2


def test_join_not_shared_across_state_policies() -> None:
    """A query with another state policy has its own join, and so has every query with share=False."""
    eng = engine()
    eng.query("p", pairs())
    eng.query("q", pairs(3), state="none")
    assert joins(eng) == 2
    apart = engine(share=False)
    apart.query("p", pairs())
    apart.query("q", pairs(3))
    assert joins(apart) == 2


def test_migrate_and_policy_apply_to_shared_join() -> None:
    text = (
        "SELECT {0}.x FROM A [RANGE {1}] AS {0}, B [RANGE {1}] AS b, C [RANGE {1}] AS c WHERE {0}.x = b.x AND b.x = c.x"
    )
    eng = engine()
    eng.query("p", text.format("a", 9), plan="((a b) c)")
    eng.query("q", text.format("z", 5))
    eng.migrate("q", "(z (b c))")
    eng.policy("q", "none")
    assert (eng.metrics("p")["plan"], eng.metrics("q")["plan"]) == ("(a (b c))", "(z (b c))")
    assert eng.metrics("p")["state"] == eng.metrics("q")["state"] == "none"


def test_join_removed_with_last_query() -> None:
    eng = engine()
    eng.query("p", pairs())
    eng.query("q", pairs(3))
    eng.drop("p")
    assert joins(eng) == 1
    eng.query("p", pairs(5))
    assert operator_ids(eng)[3:] == ["p: join"]
    eng.drop("q")
    eng.drop("p")
    assert joins(eng) == 0
    with pytest.raises(ps.QueryError, match="no query p"):
        eng.drop("p")


def test_explain_shared_join_and_slices() -> None:
    eng = engine()
    eng.query("wide", pairs(10))
    eng.query("narrow", pairs(3, " AND a.v = 1"))
    eng.push({"A": rows((1, 1), (7, 1)), "B": rows((8, 1))})
    eng.advance("A", 8)
    eng.push({})
    text = eng.explain("narrow")
    assert "shared: one join for 2 queries with 2 different sets of filters" in text
    assert "age 0 to 3: tuples a 1, b 1; results 1; up to here read narrow" in text
    assert "age 3 to 10: tuples a 1, b 0; results 1; up to here read wide" in text
    assert eng.slices("wide").column("to").to_pylist() == [3, 10]
    assert eng.metrics("narrow")["emitted"] == 1
    assert eng.metrics("wide")["emitted"] == 2


def test_metrics_use_aliases_of_query() -> None:
    eng = engine()
    eng.query("p", pairs())
    eng.query("q", pairs(3, names="left right"))
    assert set(eng.metrics("q")["rows_in"]) == {"left", "right"}
    assert eng.metrics("q")["plan"] == "(left right)"


def test_complete_since_of_query_added_later() -> None:
    eng = engine()
    eng.query("p", pairs(10))
    eng.push({"A": rows((1, 1), (20, 1)), "B": rows((20, 1))})
    eng.query("now", pairs(6))
    eng.query("back", pairs(6), history=True)
    eng.query("wider", pairs(30), history=True)
    assert eng.metrics("p")["complete_since"] is None
    assert eng.metrics("now")["complete_since"] == 26
    assert eng.metrics("back")["complete_since"] == 21
    assert eng.metrics("wider")["complete_since"] == 40
    again = ps.Engine.restore(eng.snapshot())
    for name in ("p", "now", "back", "wider"):
        assert again.metrics(name)["complete_since"] == eng.metrics(name)["complete_since"]
    out = eng.push({"B": rows((21, 1)), "A": rows((30, 5))})
    assert out["now"].num_rows == 0
    assert out["back"].to_pylist() == [{"x": 1, "t": 21, "_ts": 21}]


def test_complete_since_of_rows_windows() -> None:
    eng = engine()
    text = pairs().replace("RANGE", "ROWS")
    eng.query("p", text)
    eng.push({"A": rows((1, 1)), "B": rows((2, 1))})
    eng.query("q", text)
    assert eng.metrics("p")["complete_since"] is None
    assert eng.metrics("q")["complete_since"] == 2**63 - 1


@pytest.mark.parametrize("state", ["auto", "eager", "lazy", "jit", "none"])
def test_alter_keeps_window_contents(state: str) -> None:
    eng = engine(state=state)
    eng.query("p", pairs(10))
    eng.query("q", pairs(3))
    eng.push({"A": rows((1, 1), (5, 1)), "B": rows((6, 2))})
    with pytest.raises(ps.QueryError):
        eng.alter("q", "SELECT nonsense")
    eng.alter("q", pairs(6))
    out = eng.push({"A": rows((7, 3)), "B": rows((7, 1))})
    assert list(out) == ["p", "q"]
    assert out["q"].num_rows == 1
    eng.alter("p", pairs(2))
    eng.drop("q")
    assert eng.flush()["p"].num_rows == 0


def test_push_returns_dictionary() -> None:
    eng = engine()
    eng.query("p", pairs())
    eng.query("q", pairs(3))
    data = {"A": rows((1, 1)), "B": rows((5, 1))}
    eng.push(data)
    eng.advance("A", 9)
    out = eng.push({})
    kept = eng.flush()
    assert isinstance(out, Mapping)
    assert list(out) == ["p", "q"]
    assert [table.num_rows for table in out.values()] == [1, 0]
    assert {name: table.num_rows for name, table in dict(out).items()} == {"p": 1, "q": 0}
    assert {**out}["p"].num_rows == 1
    assert out.get("nobody") is None
    assert out == out.copy()
    assert pickle.loads(pickle.dumps(out))["p"].num_rows == 1
    assert out.pop("p").num_rows == 1
    assert "p" not in out
    assert kept["q"].num_rows == 0


def test_results_read_later_belong_to_their_push() -> None:
    eng, now = engine(), engine()
    for each in (eng, now):
        each.query("p", pairs())
        each.query("q", pairs(3, " AND b.v = 2"))
    late, read = [], []
    for start in range(0, 60, 5):
        data = {name: rows(*((start + n, n % 2) for n in range(5))) for name in "AB"}
        late.append(eng.push(data))
        read.append(now.push(data)["q"].to_pylist())
        if start == 20:
            eng.query("r", pairs(20))
    eng.drop("q")
    assert [out["q"].to_pylist() for out in late] == read


def test_failing_filter_stops_only_its_query(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_in_filters_with("13", pa.ArrowInvalid("out of luck"), monkeypatch)
    eng, alone = engine(), engine()
    for each in (eng, alone):
        each.query("good", pairs(10, " AND a.v <> 2"))
    eng.query("bad", pairs(10, " AND a.v <> 13"))
    data = {"A": rows((1, 1), (2, 1)), "B": rows((3, 1))}
    with pytest.warns(RuntimeWarning, match="bad.*out of luck"):
        out = eng.push(data)
    assert out["bad"].num_rows == 0
    assert same_rows(out["good"], alone.push(data)["good"]) is None
    assert eng.failures()["bad"].condition == "EVALUATION_FAILED"
    assert list(eng.failures()) == ["bad"]
    eng.drop("bad")
    assert not eng.failures()


def test_limit_of_queries() -> None:
    eng = engine(max_queries=2)
    eng.query("p", pairs())
    eng.query("q", pairs())
    with pytest.raises(ps.ResourceError, match=r"2 queries run.*max_queries"):
        eng.query("r", pairs())
    eng.drop("p")
    eng.query("r", pairs())
    with pytest.raises(ps.QueryError, match="max_queries"):
        engine(max_queries=0)


def test_unneeded_tuples_are_freed() -> None:
    eng = engine()
    eng.query("short", pairs(10))
    eng.query("long", pairs(1_000, " AND a.v = 0"))
    for start in range(0, 3_000, 100):
        data = {name: rows(*((start + n, 7 if name == "A" else 8) for n in range(100))) for name in "AB"}
        eng.push(data)
    held = eng.metrics("short")["window_rows"]["a"]
    least = 10 + 990 / 3
    assert least <= held <= least * 1.1 + 100


def test_merged_slices_keep_results() -> None:
    eng, other = engine(), engine(slicing="cpu-opt")
    for each in (eng, other):
        for number, window in enumerate((100, 101, 102, 400)):
            each.query(f"q{number}", pairs(window, f" AND a.v <> {number}" if number else ""))
    for start in range(0, 1_000, 50):
        data = {name: rows(*((start + n, n % 7) for n in range(50))) for name in "AB"}
        one, two = eng.push(data), other.push(data)
        if start == 500:
            other.reslice("cpu-opt")
        assert all(same_rows(one[name], two[name]) is None for name in one)
    least, merged = (each.metrics("q0")["window_rows"]["a"] for each in (eng, other))
    assert merged >= least
    assert slicing_of(ps.Engine.restore(other.snapshot())) == "cpu-opt"
    with pytest.raises(ps.QueryError, match="unknown slicing 'fast'; known: mem-opt, cpu-opt"):
        eng.reslice("fast")


def test_snapshot_keeps_slicing_and_node_policies() -> None:
    eng = engine()
    eng.query("pair", pairs(20))
    text = (
        "SELECT l.ts, m.v FROM A [RANGE {0}] AS l, B [RANGE {0}] AS m, C [RANGE {0}] AS n WHERE l.x = m.x AND m.x = n.x"
    )
    for number, window in enumerate((20, 30)):
        eng.query(
            f"three{number}", text.format(window) + f" AND l.v <> {number}", plan="((m n) l)"
        )  # no node over A and B
    eng.reslice("cpu-opt", "three1")
    eng.policy("three0", "none", node="(m n)")
    again = ps.Engine.restore(eng.snapshot())
    for each in (eng, again):
        pair, three = (next(join for join in joins_of(each) if len(join.tree.stores) == items) for items in (2, 3))
        assert (pair.shared_join.slicing, three.shared_join.slicing) == ("mem-opt", "cpu-opt")
        assert [(set(node), policy.states) for node, policy in three.tree.node_policies.items()] == [
            ({"m", "n"}, "never")
        ]
        assert not pair.tree.node_policies
        assert [node.state for node in three.tree.walk_joins()] == [None, None]
    for start in range(0, 100, 10):
        data = {name: rows(*((start + n, n % 3) for n in range(10))) for name in "ABC"}
        one, two = eng.push(data), again.push(data)
        assert all(same_rows(one[name], two[name]) is None for name in one)


def test_restore_twice_keeps_reported_ends() -> None:
    eng = engine()
    for name, window in (("short", 5), ("long", 30)):
        eng.query(name, f"DSTREAM ({pairs(window)})")
    ended = eng.push({"A": rows((0, 1), (8, 3)), "B": rows((1, 1), (8, 4))})["short"]
    assert ended.num_rows == 1
    again = ps.Engine.restore(ps.Engine.restore(eng.snapshot()).snapshot())
    assert again.flush()["short"].num_rows == 0


def test_rows_window_ignores_tuples_held_for_lateness() -> None:
    """A ROWS window of a new query does not count tuples held back for older queries."""
    eng = engine()
    eng.stream("D", {"ts": "bigint", "x": "bigint"}, time="ts", lateness=10)
    text = "SELECT a.ts AS a, d.ts AS d FROM A [RANGE 100] AS a, D [ROWS 2] AS d WHERE a.x = d.x"
    eng.query("old", text)
    eng.push({"D": pa.table({"ts": [20, 19], "x": [1, 1]})})
    eng.query("new", text)
    assert joins(eng) == 2
    eng.push({"D": pa.table({"ts": [15, 40], "x": [1, 1]}), "A": rows((25, 1))})
    answer = eng.flush()
    assert answer["new"].to_pylist() == [{"a": 25, "d": 15, "_ts": 25}, {"a": 25, "d": 40, "_ts": 40}]
    eng.query("newest", text)  # nothing is held back now
    assert joins(eng) == 2


@pytest.mark.parametrize("share", [True, False])
def test_result_tables_read_long_after_push(share: bool) -> None:
    """The rings of the windows have been overwritten, compacted and resized by then."""
    rng = random.Random(3)
    at_once, later = engine(share=share), engine(share=share)
    shown = "a.x, a.v, b.ts AS t, CAST(b.v AS STRING) AS s"
    texts = {f"q{n}": pairs(9 - 2 * n, f" AND a.v <> {n}", shown) for n in range(3)} | {"all": pairs(12, shown=shown)}
    for name, text in texts.items():
        at_once.query(name, text)
        later.query(name, text)
    seen, kept = [], []
    for push in range(30):
        many = rng.choice([3, 40, 200])
        times = sorted(rng.randrange(5 * push, 5 * push + 5) for _ in range(many))
        data = {name: rows(*[(time, rng.randrange(6)) for time in times]) for name in "AB"}
        seen.append(dict(at_once.push(data).items()))
        kept.append(later.push(data))
        if push % 7 == 6:
            later.drop("q1")
            at_once.drop("q1")
            later.query("q1", texts["q1"])
            at_once.query("q1", texts["q1"])
    assert [dict(each.items()) for each in kept] == seen


@pytest.mark.parametrize("fewer", [False, True])
def test_unread_results_outlive_compactions(fewer: bool) -> None:
    """Tuples of A die early without the second query; the windows are compacted and overwritten before any is read."""
    small = Maintenance(dead_rows=0, dead_per_living_shared=0.0, capacity=16)
    at_once, later = engine(maintenance=small), engine(maintenance=small)
    for eng in (at_once, later):
        eng.query("p", pairs(4, shown="a.x, a.v, a.ts AS s, b.ts AS t"))
        eng.query("q", pairs(40, " AND a.v > 1", shown="a.x, a.v, a.ts AS s, b.ts AS t"))
    rng, expected, kept = random.Random(7), [], []
    for push in range(12):
        times = range(10 * push, 10 * push + 10)
        data = {name: rows(*((time, rng.randrange(40 if fewer else 2)) for time in times)) for name in "AB"}
        expected.append({name: table.to_pylist() for name, table in at_once.push(data).items()})
        kept.append(later.push(data))
    assert [{name: table.to_pylist() for name, table in results.items()} for results in kept] == expected


def test_more_than_256_interest_codes() -> None:
    eng, alone = engine(), engine(share=False)
    texts = {f"q{n}": pairs(10, f" AND a.v % {n + 2} = {n % 2} AND b.v > {n}") for n in range(40)}
    for name, text in texts.items():
        eng.query(name, text)
        alone.query(name, text)
    rng = random.Random(5)
    for push in range(4):
        data = {
            name: pa.table({
                "ts": [push] * 300,
                "x": [rng.randrange(40) for _ in range(300)],
                "v": [rng.randrange(10_000) for _ in range(300)],
            })
            for name in "AB"
        }  # fmt: skip
        one, other = eng.push(data), alone.push(data)
        assert all(same_rows(one[name], other[name]) is None for name in texts)
    (join,) = joins_of(eng)
    assert join.shared_join.interest is not None
    assert len(join.shared_join.interest.sets) > 256


def test_merged_slices_reach_is_longest_window() -> None:
    """Merged slices keep no tuple longer than the longest window on its stream."""
    eng = engine()
    eng.query("near", pairs(20, " AND a.v > 0"))
    eng.query("far", "SELECT a.x FROM A [RANGE 40] AS a, B [RANGE 30] AS b WHERE a.x = b.x")
    (join,) = joins_of(eng)
    near, far = join.shared_join.needs.build_interest((40,)).filter_groups
    assert near.longest == {"a": 40, "b": 30}
    assert far.longest == {"a": 40, "b": 30}


def test_emitted_counts_after_queries_are_added() -> None:
    """The metric `emitted` is the number of rows given, also after a new filter has changed the codes of interest."""
    eng, added = engine(), {0: ("all", ""), 10: ("few", " AND a.v > 1"), 20: ("some", " AND a.v > 0")}
    given = dict.fromkeys(("all", "few", "some"), 0)
    for time in range(30):
        if time in added:
            name, where = added[time]
            eng.query(name, pairs(5, where))
        results = eng.push({"A": rows((time, 1), (time, 2)), "B": rows((time, 1), (time, 2))})
        for name in results:
            given[name] += results[name].num_rows
    assert all(given.values())
    assert {name: eng.metrics(name)["emitted"] for name in given} == given


def test_range_condition_leaves_with_its_query() -> None:
    """A sorted index read a column that had been dropped with the only query that needs it: KeyError."""
    eng = engine()
    text = "SELECT a.x FROM A [RANGE 5] AS a, B [RANGE 5] AS b, C [RANGE 5] AS c WHERE a.x = b.x AND b.v = c.x"
    eng.query("ranged", text + " AND a.v < c.v", plan="((a c) b)")
    for time in range(20):
        if time == 5:
            eng.query("other", text, plan="((a c) b)")
        if time == 10:
            assert joins(eng) == 1
            eng.drop("ranged")
        results = eng.push({name: rows((time, 1), (time, time % 3)) for name in "ABC"})
    assert results["other"].num_rows


# ── tables of results ────────────────────────────────────────────────────────────────────────────────────────────────


def push_for_tables(*texts: str) -> list[pa.Table]:
    """The results of a push that finds pairs of ages 1, 2 and 4."""
    eng = engine()
    for place, text in enumerate(texts):
        eng.query(f"q{place}", text)
    return list(eng.push({"A": rows((1, 1), (3, 1), (4, 1)), "B": rows((5, 1))}, {"A": 6}).copy().values())


def test_equal_results_are_one_table() -> None:
    one, same, less = push_for_tables(pairs(3), pairs(3), pairs(2))
    assert one is same
    assert less.num_rows < one.num_rows == 2


def test_windows_without_an_age_between_have_one_table() -> None:
    """That is known once many queries with different windows have been read."""
    first, *others, last = push_for_tables(*[pairs(window) for window in range(5, 30)])
    assert others[-1] is last
    assert first == last
    assert last.num_rows == 3


@pytest.mark.parametrize(
    ("other", "names"),
    [
        (pairs(9, " AND a.x > 0"), ["x", "t"]),
        (pairs(9, shown="a.x AS t, b.ts AS x"), ["t", "x"]),
        (pairs(9, shown="b.ts AS x, a.x AS t"), ["x", "t"]),
        (pairs(9, shown="a.x, b.ts * 1.0 AS t"), ["x", "t"]),
    ],
)
def test_results_of_other_queries_are_other_tables(other: str, names: list[str]) -> None:
    one, two = push_for_tables(pairs(9), other)
    assert one is not two
    assert two.column_names == [*names, "_ts"]
    assert one.num_rows == two.num_rows == 3


def test_zeros_of_both_signs_are_other_columns() -> None:
    one, two = push_for_tables(pairs(9, shown="a.x * 0e0 AS z"), pairs(9, shown="a.x * -0e0 AS z"))
    assert [str(table.column("z")[0]) for table in (one, two)] == ["0.0", "-0.0"]


def test_table_that_is_not_used_any_more_is_freed() -> None:
    eng = engine()
    for name in "pq":
        eng.query(name, pairs())
    found = eng.push({"A": rows((1, 1)), "B": rows((2, 1))}, {"A": 3})
    weak = ref(found.pop("p"))
    assert weak() is None
    assert found["q"].num_rows == 1
