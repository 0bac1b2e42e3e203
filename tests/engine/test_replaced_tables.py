"""Static tables that get other rows while queries read them."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps

COLUMNS = {"ts": "bigint", "k": "bigint"}
OLD = {"k": [1, 2], "n": ["a", "b"]}
NEW = {"k": [1, 3], "n": ["A", "C"]}


def make_engine(**queries: str) -> ps.Engine:
    engine = ps.Engine(warn=False)
    engine.stream("o", COLUMNS, time="ts")
    engine.stream("p", COLUMNS, time="ts")
    engine.table("t", OLD)
    for name, text in queries.items():
        engine.query(name, text)
    return engine


def list_rows(out: Any, name: str = "q") -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in out[name].to_pylist()]


def run_around_replacement(text: str, *, restore: bool = False) -> list[tuple[Any, ...]]:
    """Tuples at 1, 2 and 2, a replacement after the one at 1, a late reader of the old rows at 1, and then 3."""
    engine = make_engine(q=text)
    rows = list_rows(engine.push({"o": [{"ts": 1, "k": 1}]}))
    engine.table("T", NEW)
    if restore:
        engine = ps.Engine.restore(engine.snapshot())
    rows += list_rows(engine.push({"o": [{"ts": 1, "k": 2}, {"ts": 2, "k": 1}]}))
    if restore:
        engine = ps.Engine.restore(engine.snapshot())
    rows += list_rows(engine.push({"o": [{"ts": 3, "k": 3}]}))
    return rows + list_rows(engine.flush())


@pytest.mark.parametrize("restore", [False, True])
def test_rows_in_the_answer_stay_as_they_are(*, restore: bool) -> None:
    rows = run_around_replacement("SELECT o.ts, t.n FROM o [RANGE 5] JOIN t ON o.k = t.k EMIT CHANGES", restore=restore)
    entered = [(1, "a", "+", 1), (1, "b", "+", 1), (2, "A", "+", 2), (3, "C", "+", 3)]
    left = [(1, "a", "-", 6), (1, "b", "-", 6), (2, "A", "-", 7), (3, "C", "-", 8)]
    assert sorted(rows, key=lambda row: row[-1]) == entered + left


@pytest.mark.parametrize("restore", [False, True])
def test_partners_are_those_of_the_birth(*, restore: bool) -> None:
    rows = run_around_replacement("SELECT o.ts, o.k FROM o WHERE o.k NOT IN (SELECT k FROM t)", restore=restore)
    assert rows == []
    rows = run_around_replacement("SELECT o.ts, t.n FROM o LEFT JOIN t ON o.k = t.k AND t.n < 'a'", restore=restore)
    assert rows == [(1, None, 1), (1, None, 1), (2, "A", 2), (3, "C", 3)]


def test_groups_and_frames_over_a_replaced_table() -> None:
    grouped = "SELECT t.n, COUNT(*) AS c FROM o JOIN t ON o.k = t.k GROUP BY t.n"
    assert run_around_replacement(grouped) == [("a", 1, 1), ("b", 1, 1), ("A", 1, 2), ("C", 1, 3)]
    framed = "SELECT o.ts, LAG(t.n) OVER (ORDER BY o.ts) AS before FROM o JOIN t ON o.k = t.k WHERE o.k <> 2"
    assert run_around_replacement(framed, restore=True) == [(1, None, 1), (2, "a", 2), (3, "A", 3)]


@pytest.mark.parametrize("state", ["eager", "lazy", "jit", "none"])
def test_states_with_old_rows_are_built_again(state: str) -> None:
    """A tuple from before the replacement that joins later gets the new row."""
    engine = make_engine()
    engine.query("q", "SELECT t.n, p.ts FROM o, t, p WHERE o.k = t.k AND o.k = p.k", plan="((o t) p)", state=state)
    engine.push({"o": [{"ts": 1, "k": 1}]})
    engine.table("t", NEW)
    found = list_rows(engine.push({"p": [{"ts": 1, "k": 1}, {"ts": 5, "k": 1}]}, {"o": 9, "p": 9}))
    assert sorted(found) == [("A", 5, 5), ("a", 1, 1)]


def test_waiting_tuples_get_the_rows_of_their_time() -> None:
    """The join waits for p: the tuples of o from before and after the replacement are joined in one push."""
    engine = make_engine(q="SELECT o.ts, t.n FROM o [NOW], p, t WHERE o.k = t.k")
    engine.push({"o": [{"ts": 4, "k": 1}]})
    engine.table("t", NEW)
    engine.push({"o": [{"ts": 5, "k": 1}]})
    engine.table("t", {"k": [1], "n": ["z"]})
    engine.push({"o": [{"ts": 6, "k": 1}]})
    assert list_rows(engine.push({"p": [{"ts": 1, "k": 0}, {"ts": 9, "k": None}]}, {"o": 8})) == [
        (4, "a", 4), (5, "A", 5), (6, "z", 6)
    ]  # fmt: skip


def test_a_query_that_starts_later_reads_the_new_rows() -> None:
    engine = make_engine(q="SELECT t.n FROM o [NOW] JOIN t ON o.k = t.k")
    engine.push({"o": [{"ts": 1, "k": 1}]})
    engine.table("t", NEW)
    engine.query("late", "SELECT t.n, t.k FROM o [NOW] JOIN t ON o.k = t.k")
    out = engine.push({"o": [{"ts": 2, "k": 3}]})
    assert (list_rows(out), list_rows(out, "late")) == ([("C", 2)], [("C", 3, 2)])


def test_a_replacement_is_checked_before_anything_changes() -> None:
    engine = make_engine(q="SELECT o.ts, t.n FROM o [NOW] JOIN t ON o.k = t.k")
    for wrong, condition in (({"k": [1]}, "COLUMNS_DIFFER"), ({"k": ["x"], "n": ["y"]}, "COLUMN_TYPE")):
        with pytest.raises(ps.errors.DataError) as refused:
            engine.table("t", wrong)
        assert refused.value.condition == condition
    with pytest.raises(ps.errors.QueryError, match="DUPLICATE_NAME"):
        engine.table("o", NEW)
    with pytest.raises(ps.errors.QueryError, match="DUPLICATE_NAME"):
        engine.table("t", {"ts": "bigint", "k": "bigint"}, key="k", time="ts")
    assert list_rows(engine.push({"o": [{"ts": 1, "k": 1}]})) == [(1, "a", 1)]


def test_a_function_that_fails_on_new_rows_stops_its_query() -> None:
    def check(values: Any) -> Any:
        assert "C" not in values.to_pylist(), "no C"
        return values

    engine = make_engine()
    engine.function("checked", check, returns="string")
    engine.query("q", "SELECT t.n FROM o [NOW] JOIN t ON o.k = t.k AND checked(t.n) <> ''")
    engine.query("r", "SELECT t.n FROM o [NOW] JOIN t ON o.k = t.k")
    engine.push({"o": [{"ts": 1, "k": 1}]})
    engine.table("t", NEW)
    with pytest.warns(RuntimeWarning, match="no C"):
        out = engine.push({"o": [{"ts": 2, "k": 1}]})
    assert (list_rows(out), list_rows(out, "r"), [*engine.failures()]) == ([], [("A", 2)], ["q"])


def test_former_rows_are_freed() -> None:
    engine = make_engine(q="SELECT o.ts, t.n FROM o [RANGE 5] JOIN t ON o.k = t.k EMIT CHANGES")
    sizes = []
    for push in range(40):
        engine.push({"o": [{"ts": 10 * push, "k": 1}], "p": [{"ts": 10 * push, "k": 1}]})
        engine.table("t", {"k": list(range(1000)), "n": [str(push)] * 1000})
        sizes.append(engine.metrics()["memory"]["tables"])
    assert max(sizes[20:]) <= max(sizes[:10])
    assert engine.tables["t"].rows == 1000
