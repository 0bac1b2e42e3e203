"""Queries over ranks report by value: a row that only its rank replaced stays, also if the rank is a view's column."""

from __future__ import annotations

import pyarrow as pa
import pytest

import penstock as ps
from penstock.testing import difference, expected

RANKED = "SELECT k, x, ROW_NUMBER() OVER (PARTITION BY k ORDER BY x DESC, ts) AS place FROM s [RANGE 10]"
READERS = (
    "SELECT k, x FROM v",
    "SELECT k, x FROM v EMIT CHANGES",
    "DSTREAM (SELECT k, x FROM v)",
    "RSTREAM (SELECT k, x FROM v)",
    "SELECT k, x FROM v WHERE place <= 2 EMIT CHANGES",
    "SELECT k, x FROM v WHERE place <= 2",
    "SELECT k, place FROM v EMIT CHANGES",
    "SELECT v.k, v.x, w.x AS y FROM v LEFT JOIN s [RANGE 3] AS w ON v.x = w.x AND w.k > v.k EMIT CHANGES",
    "SELECT k, x FROM v UNION ALL SELECT x, k FROM v EMIT CHANGES",
    "SELECT k, COUNT(*) AS n, MAX(place) AS m FROM v GROUP BY k EMIT CHANGES",
)
ROWS = ((1, 1, 5), (2, 1, 7), (3, 1, 7), (3, 2, 5), (4, 1, 9), (4, 1, 5), (6, 2, 1), (8, 1, 6))


def rows(*given: tuple[int, int, int]) -> pa.Table:
    return pa.table(dict(zip(("ts", "k", "x"), zip(*given, strict=True), strict=True)))


def in_with(reader: str, views: dict[str, str]) -> str:
    """The query with the views in WITH."""
    how, _, body = reader.partition("(") if reader.startswith(("DSTREAM", "RSTREAM")) else ("", "", reader)
    listed = ", ".join(f"{name} AS ({text})" for name, text in views.items())
    return f"{how}(WITH {listed} {body}" if how else f"WITH {listed} {body}"


def check(views: dict[str, str], reader: str, restart: int | None) -> None:
    made = ps.Engine(warn=False)
    made.stream("s", {"ts": "bigint", "k": "bigint", "x": "bigint"}, time="ts")
    for name, text in views.items():
        made.view(name, text)
    whole = in_with(reader, views)
    made.query("over views", reader)
    made.query("alone", whole)
    found: dict[str, list[pa.Table]] = {"over views": [], "alone": []}
    for place, row in enumerate(ROWS):
        if place == restart:
            made = ps.Engine.restore(made.snapshot())
        for name, table in made.push({"s": rows(row)}).items():
            found[name].append(table)
    for name, table in made.flush().items():
        found[name].append(table)
    answer = expected(whole, {"s": rows(*ROWS)}, time="ts")
    for name, tables in found.items():
        fault = difference(pa.concat_tables(tables), answer)
        assert fault is None, f"{name}: {reader}, restart before {restart}\n{fault}"


@pytest.mark.parametrize("restart", [None, 2, 5])
@pytest.mark.parametrize("reader", READERS)
def test_rank_that_is_not_read(reader: str, restart: int | None) -> None:
    """Over a declared view a row left and entered at one instant when only its rank changed."""
    check({"v": RANKED}, reader, restart)


@pytest.mark.parametrize("function", ["RANK", "DENSE_RANK"])
def test_other_ranks_that_are_not_read(function: str) -> None:
    view = f"SELECT k, x, {function}() OVER (ORDER BY x DESC) AS place FROM s [ROWS 4]"
    check({"v": view}, "SELECT k, x FROM v EMIT CHANGES", 4)


def test_view_over_view_with_rank() -> None:
    views = {"u": RANKED, "v": "SELECT u.k, u.x, u.place + 1 AS place FROM u WHERE u.place < 4"}
    check(views, "SELECT k, x FROM v EMIT CHANGES", 3)


def test_equal_row_takes_the_place_of_another() -> None:
    """The newest row has the same value as before: nothing changes."""
    made = ps.Engine(warn=False)
    made.stream("s", {"ts": "bigint", "k": "bigint", "x": "bigint"}, time="ts")
    made.query("newest", "SELECT x FROM s ORDER BY ts DESC LIMIT 1 EMIT CHANGES")
    out = made.push({"s": rows((1, 1, 5), (2, 2, 5), (3, 3, 6), (9, 9, 9))})["newest"].to_pylist()
    assert [tuple(row.values()) for row in out] == [(5, "+", 1), (5, "-", 3), (6, "+", 3)]
