"""Subqueries in expressions: what they mean, and what is refused."""

from __future__ import annotations

import pytest

import penstock as ps

A = [(1, 1, 5), (2, 2, 1), (3, None, 9)]
B = [(2, 1, 7), (4, None, 1)]


def answer(text: str, at: int, a: list = A, b: list = B) -> list[tuple]:  # type: ignore[type-arg]
    """The answer at an instant, sorted."""
    eng = ps.Engine(warn=False)
    for name in "ab":
        eng.stream(name, {"ts": "bigint", "k": "bigint", "x": "bigint"}, time="ts")
    eng.table("names", {"k": [1, 2], "name": ["one", "two"]})
    eng.query("q", f"{text} EMIT CHANGES")
    data = {"a": a, "b": b}
    rows = {name: [dict(zip(("ts", "k", "x"), row, strict=True)) for row in given] for name, given in data.items()}
    changes = eng.push(rows)["q"].to_pylist()
    eng = ps.Engine.restore(eng.snapshot()) if at % 2 else eng
    found: list[tuple] = []  # type: ignore[type-arg]
    for row in [*changes, *eng.flush()["q"].to_pylist()]:
        time, sign = row.pop("_ts"), row.pop("_op")
        if time <= at:
            (found.append if sign == "+" else found.remove)(tuple(row.values()))
    return sorted(found, key=repr)


@pytest.mark.parametrize(
    ("where", "at", "kept"),
    [
        ("k IN (SELECT k FROM b [RANGE 5])", 6, [1]),
        ("k IN (SELECT k FROM b [RANGE 5])", 7, []),
        ("k IN (SELECT k FROM names WHERE name = 'two')", 4, [2]),
        ("k NOT IN (SELECT k FROM b [RANGE 1] WHERE x > 5)", 2, [2]),
        ("k NOT IN (SELECT k FROM b [RANGE 9])", 4, []),  # b has a NULL
        ("k NOT IN (SELECT k FROM b [RANGE 1])", 6, [1, 2, None]),  # b has no row
        ("k NOT IN (SELECT b.k FROM b [RANGE 9] WHERE b.x < a.x)", 4, [2]),
        ("EXISTS (SELECT 1 FROM b [RANGE 9] WHERE b.k = a.k AND b.x > a.x)", 4, [1]),
        ("NOT EXISTS (SELECT * FROM b [RANGE 9] WHERE b.k = a.k)", 4, [2, None]),
        ("NOT (EXISTS (SELECT * FROM b [RANGE 9] WHERE b.x > 100))", 4, [1, 2, None]),
        ("x > (SELECT AVG(x) FROM b [RANGE 9])", 4, [1, None]),
        ("x > (SELECT MAX(b.x) FROM b [RANGE 9] WHERE b.k = a.k) AND k = 1", 4, []),
        ("(SELECT COUNT(*) FROM b [RANGE 9] WHERE b.k = a.k) = 0", 4, [2, None]),
        ("k IN (SELECT k FROM b [RANGE 9] GROUP BY k HAVING COUNT(*) = 1)", 4, [1]),
        ("k IN (SELECT b.k FROM b [RANGE 9], names WHERE b.k = names.k AND b.x <> a.x)", 4, [1]),
        ("k IN (SELECT k FROM a [RANGE 9] AS c WHERE EXISTS (SELECT * FROM b [RANGE 9] WHERE b.k = c.k))", 4, [1]),
        ("k IN (SELECT k FROM b [RANGE 9] EXCEPT SELECT x FROM b [RANGE 9] AS c)", 4, []),
        ("k IN (WITH w AS (SELECT k FROM b [RANGE 9]) SELECT k FROM w)", 4, [1]),
    ],
)  # fmt: skip
def test_where(where: str, at: int, kept: list[int | None]) -> None:
    assert answer(f"SELECT k FROM a [RANGE 10] WHERE {where}", at) == sorted(((k,) for k in kept), key=repr)


@pytest.mark.parametrize(
    ("text", "at", "rows"),
    [
        ("SELECT k FROM a WHERE x > 6 OR k IN (SELECT k FROM b)", 4, [(1,), (None,)]),
        ("SELECT k FROM a WHERE x > 6 OR k NOT IN (SELECT k FROM b)", 2, [(2,)]),
        ("SELECT k FROM a WHERE x > 6 OR k NOT IN (SELECT k FROM b)", 4, [(None,)]),  # b has a NULL
        ("SELECT k FROM a WHERE x > 6 OR NOT EXISTS (SELECT * FROM b WHERE b.k = a.k)", 4, [(2,), (None,)]),
        ("SELECT k, k IN (SELECT k FROM b) AS y FROM a", 2, [(1, True), (2, False)]),
        ("SELECT k, k IN (SELECT k FROM b) AS y FROM a", 4, [(1, True), (2, None), (None, None)]),
        ("SELECT k, k IN (SELECT k FROM b WHERE x > 100) AS y FROM a", 4, [(1, False), (2, False), (None, False)]),
        ("SELECT k, k NOT IN (SELECT k FROM names) AS y FROM a", 4, [(1, False), (2, False), (None, None)]),
        ("SELECT k, EXISTS (SELECT 1 FROM b WHERE b.x > a.x) AS y FROM a", 4, [(1, True), (2, True), (None, False)]),
        ("SELECT CASE WHEN EXISTS (SELECT 1 FROM b WHERE b.x > a.x) THEN k ELSE (SELECT COUNT(*) FROM b) END FROM a", 4,
         [(1,), (2,), (2,)]),
        ("SELECT k FROM a WHERE (k IN (SELECT k FROM b)) IS NULL", 4, [(2,), (None,)]),
        ("SELECT k FROM a WHERE NOT (x > 6 OR k IN (SELECT k FROM names WHERE name = 'one'))", 4, [(2,)]),
        ("SELECT k FROM a WHERE (k IN (SELECT k FROM names)) = (x < 6)", 4, [(1,), (2,)]),
        ("SELECT k, COUNT(*) AS n, k IN (SELECT k FROM b) AS y FROM a GROUP BY k", 4,
         [(1, 1, True), (2, 1, None), (None, 1, None)]),
        ("SELECT k FROM a GROUP BY k HAVING SUM(x) > 99 OR k IN (SELECT k FROM b)", 4, [(1,)]),
        ("SELECT DISTINCT k IN (SELECT k FROM b) AS y FROM a", 4, [(None,), (True,)]),
        ("SELECT a.k FROM a LEFT JOIN b ON a.k = b.k WHERE b.x IS NULL OR a.k IN (SELECT k FROM names)", 4,
         [(1,), (2,), (None,)]),
        ("SELECT k FROM a WHERE x > 6 OR k IN (SELECT k FROM b WHERE x > 9 OR k IN (SELECT k FROM names))", 4,
         [(1,), (None,)]),
    ],
)  # fmt: skip
def test_below_or_in_case_and_in_select(text: str, at: int, rows: list) -> None:  # type: ignore[type-arg]
    assert answer(text, at) == sorted(rows, key=repr)


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("EXISTS (SELECT 1 FROM b WHERE a.k IN (SELECT k FROM names))", [1, 2]),
        ("EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND EXISTS (SELECT 1 FROM names WHERE names.k = a.k))", [1]),
        ("k IN (SELECT k FROM b WHERE x > 0 AND k IN (SELECT names.k FROM names WHERE names.k < a.x))", [1]),
        ("NOT EXISTS (SELECT 1 FROM b WHERE EXISTS (SELECT 1 FROM names WHERE names.k = a.k AND b.x > 1))", [None]),
        ("EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND NOT EXISTS (SELECT 1 FROM names WHERE names.k = a.k))", []),
        ("EXISTS (SELECT 1 FROM b WHERE NOT EXISTS (SELECT 1 FROM names WHERE names.k = a.k))", [None]),
        ("NOT EXISTS (SELECT 1 FROM names WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = names.k AND b.x > a.x))", []),
        ("NOT EXISTS (SELECT 1 FROM names WHERE name = 'one' AND k NOT IN (SELECT k FROM b WHERE b.x > a.x))", [1, 2]),
        ("2 NOT IN (SELECT k FROM names WHERE k NOT IN (SELECT b.k FROM b WHERE b.k = a.k))", []),
    ],
)
def test_columns_of_a_query_two_levels_above(where: str, kept: list[int | None]) -> None:
    """The first one was answered as if every row of names had the value."""
    assert answer(f"SELECT k FROM a WHERE {where}", 4) == sorted(((k,) for k in kept), key=repr)


FAR = [
    ("x < (SELECT SUM(x) FROM b WHERE b.k = a.k AND EXISTS (SELECT 1 FROM names WHERE names.k = a.k))",
     ["x < (SELECT SUM(x) FROM b WHERE b.k = a.k AND EXISTS (SELECT 1 FROM names WHERE names.k = b.k))"], [(1,)]),
    ("EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND (b.x > 9 OR EXISTS (SELECT 1 FROM names WHERE names.k = a.k)))",
     ["EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND (b.x > 9 OR EXISTS (SELECT 1 FROM names WHERE names.k = b.k)))"],
     [(1,)]),
]  # fmt: skip


@pytest.mark.parametrize(("where", "instead", "kept"), FAR)
def test_far_columns_that_are_refused(where: str, instead: list[str], kept: list[tuple[int]]) -> None:
    with pytest.raises(ps.PenstockError, match="two levels above; name an equal column of the query between") as caught:
        answer(f"SELECT k FROM a WHERE {where}", 4)
    assert caught.value.condition == "CORRELATED_SUBQUERY"
    for each in instead:
        assert answer(f"SELECT k FROM a WHERE {each}", 4) == kept


def test_mark_that_changes_and_is_not_seen() -> None:
    """A row that is kept for another reason stays when only its mark changes."""
    eng = ps.Engine(warn=False)
    for name in "ab":
        eng.stream(name, {"ts": "bigint", "k": "bigint"}, time="ts")
    eng.query("q", "SELECT k FROM a WHERE k > 0 OR k IN (SELECT k FROM b [RANGE 5]) EMIT CHANGES")
    rows = {"a": [{"ts": 1, "k": 1}, {"ts": 2, "k": -1}, {"ts": 9, "k": 2}],
            "b": [{"ts": 3, "k": 1}, {"ts": 3, "k": -1}, {"ts": 9, "k": 0}]}  # fmt: skip
    found = [tuple(row.values()) for row in eng.push(rows)["q"].to_pylist()]
    assert found == [(1, "+", 1), (-1, "+", 3), (-1, "-", 8)]


def test_scalar_in_select() -> None:
    text = (
        "SELECT k, (SELECT COUNT(*) FROM b [RANGE 9] WHERE b.k = a.k) AS n, (SELECT MAX(x) FROM b [RANGE 9]) AS m "
        "FROM a [RANGE 10]"
    )
    assert answer(text, 4) == [(1, 1, 7), (2, 0, 7), (None, 0, 7)]
    assert answer(text, 4, b=[]) == [(1, 0, None), (2, 0, None), (None, 0, None)]


def test_subqueries_beside_aggregates() -> None:
    text = (
        "SELECT k, SUM(x) - (SELECT MIN(x) FROM b [RANGE 9]) AS d FROM a [RANGE 10] GROUP BY k "
        "HAVING COUNT(*) < (SELECT COUNT(*) FROM b [RANGE 9]) AND k IN (SELECT k FROM names)"
    )
    assert answer(text, 4) == [(1, 4), (2, 0)]


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("SELECT k FROM a WHERE k IN (SELECT k, x FROM b)", "COLUMN_COUNT"),
        ("SELECT k FROM a WHERE x = (SELECT x FROM b)", "SCALAR_SUBQUERY"),
        ("SELECT k FROM a WHERE x = (SELECT MAX(x) FROM b GROUP BY k)", "SCALAR_SUBQUERY"),
        ("SELECT SUM(CASE WHEN k IN (SELECT k FROM b) THEN 1 END) AS n FROM a", "UNSUPPORTED_SUBQUERY"),
        ("SELECT COUNT(*) FILTER (WHERE EXISTS (SELECT 1 FROM b)) AS n FROM a", "UNSUPPORTED_SUBQUERY"),
        ("SELECT k FROM a ORDER BY k IN (SELECT k FROM b) LIMIT 1", "UNSUPPORTED_SUBQUERY"),
        ("SELECT k IN (SELECT k, x FROM b) AS y FROM a", "COLUMN_COUNT"),
        ("SELECT k IN (SELECT MAX(k) FROM b) AS y FROM a", "UNSUPPORTED_IN_WITH_ONE_AGGREGATE"),
        ("SELECT COUNT(*) FROM a GROUP BY (SELECT MAX(x) FROM b)", "UNSUPPORTED_SUBQUERY"),
        ("SELECT a.k FROM a JOIN b ON a.k IN (SELECT k FROM b)", "UNSUPPORTED_SUBQUERY"),
        ("SELECT k FROM a WHERE EXISTS (SELECT COUNT(*) FROM b)", "UNSUPPORTED_EXISTS_WITH_ONE_AGGREGATE"),
        ("SELECT k FROM a WHERE k IN (SELECT MAX(k) FROM b)", "UNSUPPORTED_IN_WITH_ONE_AGGREGATE"),
        ("SELECT k FROM a WHERE x > (SELECT MAX(x) FROM b WHERE b.k < a.k)", "CORRELATED_SUBQUERY"),
        ("SELECT k FROM a WHERE x > (SELECT MAX(b.x + a.x) FROM b)", "CORRELATED_SUBQUERY"),
        ("SELECT k FROM a WHERE x > (SELECT COUNT(*) FROM names)", "NO_STREAM"),
        ("SELECT k FROM a WHERE k IN (SELECT name FROM names)", "TYPE_MISMATCH"),
        ("SELECT COUNT(*) FROM a [RANGE 5 SLIDE 5] WHERE k IN (SELECT k FROM b)", "UNSUPPORTED_SLIDE_WITH_A_SUBQUERY"),
        ("SELECT k FROM a WHERE k IN (SELECT k FROM nothing)", "UNKNOWN_RELATION"),
        ("SELECT k FROM a WHERE k IN (SELECT k FROM b WHERE c.k = 1)", "UNKNOWN_ALIAS"),
        ("SELECT k FROM a WHERE k IN (VALUES (1))", "UNSUPPORTED_VALUES"),
        ("SELECT k FROM a WHERE k IN (SELECT k FROM b", "SYNTAX_ERROR"),
    ],
)
def test_refused(text: str, condition: str) -> None:
    with pytest.raises(ps.PenstockError) as caught:
        answer(text, 4)
    assert caught.value.condition == condition


def test_names_of_columns_behind_an_alias() -> None:
    assert answer("SELECT p, n FROM (SELECT k, COUNT(*) FROM a GROUP BY k) AS g (p, n) WHERE p > 1", 4) == [(2, 1)]
    union = "SELECT k, x FROM a UNION ALL SELECT k, x FROM b"
    assert answer(f"WITH w (p, n) AS ({union}) SELECT n FROM w WHERE p = 1", 4) == [(5,), (7,)]
    text = "SELECT t.p, u.p AS q FROM a [RANGE 9] AS t (at, p, n) LEFT JOIN b AS u (at, p, n) ON t.p = u.p"
    assert answer(text, 4) == [(1, 1), (2, None), (None, None)]


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("SELECT p FROM a AS t (p, q)", "COLUMN_COUNT"),
        ("SELECT p FROM a AS t (p, q, P)", "DUPLICATE_COLUMN"),
        ("SELECT k FROM a AS t (p, q, r)", "UNKNOWN_COLUMN"),
        ("WITH w (p, q) AS (SELECT k FROM a) SELECT p FROM w", "COLUMN_COUNT"),
        ("SELECT p FROM a AS t (p q)", "SYNTAX_ERROR"),
    ],
)
def test_refused_names_of_columns(text: str, condition: str) -> None:
    with pytest.raises(ps.PenstockError) as caught:
        answer(text, 4)
    assert caught.value.condition == condition
