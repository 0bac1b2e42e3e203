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
        ("SELECT k FROM a WHERE x > 1 OR k IN (SELECT k FROM b)", "UNSUPPORTED_SUBQUERY"),
        ("SELECT k IN (SELECT k FROM b) AS y FROM a", "UNSUPPORTED_SUBQUERY"),
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
