"""The STREAM project's examples of CQL, tuple by tuple."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import penstock as ps


def answers(query: str, streams: dict[str, tuple[dict[str, str], list[tuple[Any, ...]]]]) -> list[tuple[Any, ...]]:
    """All results of a query whose streams are pushed tuple by tuple in temporal order."""
    engine = ps.Engine()
    for name, (schema, _) in streams.items():
        engine.stream(name, schema, time="ts")
    engine.query("q", query)
    arrivals = sorted((row[0], name, row) for name, (_, rows) in streams.items() for row in rows)
    out = []
    for _, name, row in arrivals:
        schema = streams[name][0]
        out.append(engine.push({name: pa.table([[value] for value in row], names=list(schema))})["q"])
    out.append(engine.flush()["q"])
    return [tuple(row.values()) for row in pa.concat_tables(out).to_pylist()]


S = ({"ts": "bigint", "a": "bigint", "g": "string"}, [(1, 5, "x"), (2, 7, "y"), (4, 4, "x"), (7, 9, "y")])


def test_rows_window_insert_at_arrival() -> None:
    assert answers("ISTREAM (SELECT a FROM S [ROWS 2])", {"S": S}) == [(5, 1), (7, 2), (4, 4), (9, 7)]


def test_rows_window_expiry_at_second_later_arrival() -> None:
    assert answers("DSTREAM (SELECT a FROM S [ROWS 2])", {"S": S}) == [(5, 4), (7, 7)]


def test_now_window_lives_one_instant() -> None:
    assert answers("ISTREAM (SELECT a FROM S [NOW])", {"S": S}) == [(5, 1), (7, 2), (4, 4), (9, 7)]
    assert answers("DSTREAM (SELECT a FROM S [NOW])", {"S": S}) == [(5, 2), (7, 3), (4, 5), (9, 8)]


def test_partitioned_rows_1_keeps_newest_of_group() -> None:
    assert answers("DSTREAM (SELECT a FROM S [PARTITION BY g ROWS 1])", {"S": S}) == [(5, 4), (7, 7)]
    newest = answers("RSTREAM (SELECT g, a FROM S [PARTITION BY g ROWS 1])", {"S": S})
    assert sorted(newest) == sorted(
        [("x", 5, 1), ("x", 5, 2), ("y", 7, 2), ("x", 4, 4), ("y", 7, 4), ("x", 4, 7), ("y", 9, 7)]
    )


def test_rstream_of_now_joined_with_relation() -> None:
    """Each tuple of S1 joins the tuples that S2 holds at that instant."""
    columns = {"ts": "bigint", "A": "bigint"}
    streams = {"S1": (columns, [(2, 1), (5, 1), (6, 2)]), "S2": (columns, [(1, 1), (3, 1), (4, 2)])}
    found = answers("RSTREAM (SELECT S2.ts FROM S1 [NOW], S2 WHERE S1.A = S2.A)", streams)
    assert sorted(found) == [(1, 2), (1, 5), (3, 5), (4, 6)]


@pytest.mark.parametrize(("value", "half"), [(7, 3), (-7, -3), (1, 0)])
def test_integer_division(value: int, half: int) -> None:
    stream = ({"ts": "bigint", "A": "bigint"}, [(1, value)])
    assert answers("SELECT A/2 AS half FROM S", {"S": stream}) == [(half, 1)]
