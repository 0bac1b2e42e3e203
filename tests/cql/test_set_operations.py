"""Set operations: their kinds, their precedence, and relations by name."""

from __future__ import annotations

from collections import Counter

import pytest

import penstock as ps

A, B = (1, 1, 1, 2, None), (1, 1, 2, 2, 3, None, None)


def answer(text: str) -> list[int | None]:
    """The answer after all rows; half of the runs restart in between."""
    eng = ps.Engine(warn=False)
    for name in "ab":
        eng.stream(f"s{name}", {"ts": "bigint", "k": "bigint"}, time="ts")
        eng.view(name, f"SELECT k FROM s{name}")
    eng.query("q", f"{text} EMIT CHANGES")
    found: Counter[int | None] = Counter()
    for step in range(8):
        rows = {name: [{"ts": step, "k": given[step]}] for name, given in (("sa", A), ("sb", B)) if step < len(given)}
        out = eng.push(rows, {"sa": step + 1, "sb": step + 1})["q"]
        for row in out.to_pylist():
            found[row["k"]] += 1 if row["_op"] == "+" else -1
        assert min(found.values(), default=0) >= 0
        eng = ps.Engine.restore(eng.snapshot()) if len(text) % 2 or step % 3 else eng
    return sorted(found.elements(), key=repr)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a UNION b", [1, 2, 3, None]),
        ("a UNION DISTINCT b", [1, 2, 3, None]),
        ("a INTERSECT b", [1, 2, None]),
        ("a INTERSECT ALL b", [1, 1, 2, None]),
        ("a EXCEPT ALL b", [1]),
        ("b EXCEPT ALL a", [2, 3, None]),
        ("a EXCEPT b", []),
        ("b EXCEPT a", [3]),
        ("a EXCEPT b INTERSECT SELECT * FROM b WHERE k = 1", [2, None]),
        ("(a EXCEPT ALL b) UNION ALL SELECT k FROM sa [ROWS 1]", [1, None]),
        ("SELECT k FROM sa [PARTITION BY sa.k ROWS 1] UNION ALL SELECT k FROM b WHERE k > 2", [1, 2, 3, None]),
        ("SELECT k FROM sa [PARTITION BY x.k ROWS 1] AS x", [1, 2, None]),
        ("SELECT k FROM (a UNION b) AS u WHERE k > 1", [2, 3]),
    ],
)
def test_set_operations(text: str, rows: list[int | None]) -> None:
    """Bare names have the column ts too, so a view of each shows k only."""
    assert answer(text) == rows


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("SELECT k FROM sa [PARTITION BY sb.k ROWS 1]", "UNKNOWN_ALIAS"),
        ("SELECT k FROM a UNION SELECT k, ts FROM sb", "COLUMN_COUNT"),
        ("a UNION c", "UNKNOWN_RELATION"),
    ],
)
def test_refused(text: str, condition: str) -> None:
    with pytest.raises(ps.PenstockError) as caught:
        answer(text)
    assert caught.value.condition == condition


def test_relations_by_name_in_scripts() -> None:
    eng = ps.Engine.from_script(
        "CREATE STREAM a (ts BIGINT, k BIGINT) TIMESTAMP BY ts; CREATE STREAM b (ts BIGINT, k BIGINT) TIMESTAMP BY ts;"
        "CREATE VIEW both AS a [ROWS 2] UNION b [ROWS 2]; both EXCEPT a;"
    )
    eng.push({"a": [{"ts": 1, "k": 1}], "b": [{"ts": 2, "k": 1}]})
    assert [row["ts"] for row in eng.flush()["query"].to_pylist()] == [2]
