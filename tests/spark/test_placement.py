"""Placement as a pure function: shares, routes, what is pinned and why; equal values have equal hashes."""

from __future__ import annotations

import itertools
import random
from decimal import Decimal
from math import nan, prod

import numpy as np
import pyarrow as pa
import pytest

from penstock.cql import Catalog, Stream, Table, bind_query
from penstock.expr import Column, find_columns
from penstock.spark.cell_keys import find_cell_keys
from penstock.spark.hashing import hash_column, hash_rows
from penstock.spark.placement import Placement, place_query
from penstock.spark.route import HashCoordinate, Route
from penstock.testing import random_case

SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.int64()), ("y", pa.int64()), ("s", pa.string())])


def placed(text: str, cells: int, rates: dict[str, float] | None = None) -> Placement:
    catalog = Catalog()
    for name in "ABCD":
        catalog.relations.add(Stream(name, SCHEMA, "ts"))
    catalog.relations.add(Table("rooms", SCHEMA))
    return place_query(bind_query(text, catalog), cells, rates)


def shares(placement: Placement) -> tuple[int, ...]:
    return tuple(step.share for step in next(iter(placement.routes.values())).dimensions)


def test_join_on_one_key_partitioned_without_copies() -> None:
    placement = placed("SELECT A.x FROM A [RANGE 5], B [RANGE 5], C [RANGE 5] WHERE A.x = B.x AND B.x = C.y", 7)
    assert shares(placement) == (7,)
    assert placement.compute_replication() == 1
    assert str(placement) == "7 cells, each row in 1 of them on average"


def test_chain_of_two_keys_is_grid() -> None:
    placement = placed("SELECT A.x FROM A [RANGE 5], B [RANGE 5], C [RANGE 5] WHERE A.x = B.x AND B.y = C.y", 9)
    assert shares(placement) == (3, 3)
    assert [route.copies for route in placement.routes.values()] == [3, 1, 3]


def test_theta_join_is_matrix() -> None:
    placement = placed("SELECT A.x FROM A [RANGE 5], B [RANGE 5] WHERE A.x < B.x", 4)
    assert shares(placement) == (2, 2)
    assert (
        placed("SELECT A.x FROM A [RANGE 5], B [RANGE 5] WHERE A.x < B.x", 4, {"A": 100.0}).routes[0, "A"].copies == 1
    )


def test_single_stream_is_spread() -> None:
    assert shares(placed("SELECT x FROM A [NOW] WHERE x > 3", 5)) == (5,)
    assert shares(placed("SELECT A.x FROM A [RANGE 5], rooms WHERE A.x = rooms.x", 5)) == (5,)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT A.x FROM A [ROWS 3], B [RANGE 5] WHERE A.x = B.x", "no PARTITION BY"),
        ("SELECT A.x FROM A [PARTITION BY y ROWS 3], B [RANGE 5] WHERE A.x = B.x", "covers no equality"),
        ("RSTREAM (SELECT A.x FROM A [RANGE 3], B [RANGE 5] WHERE A.x = B.x)", "RSTREAM"),
        ("SELECT DISTINCT A.x + B.x AS s FROM A [RANGE 3], B [RANGE 3] WHERE A.y = B.y", "DISTINCT needs all"),
        ("SELECT COUNT(*) AS n FROM A [RANGE 3]", "aggregate needs all"),
        ("SELECT DISTINCT COUNT(*) AS n FROM A [RANGE 3] GROUP BY x", "aggregate needs all"),
        ("SELECT x, COUNT(*) AS n FROM A [ROWS 3] GROUP BY x", "no PARTITION BY"),
        ("SELECT x FROM A [RANGE 3] UNION ALL SELECT COUNT(*) AS n FROM B [RANGE 3]", "aggregate needs all"),
        ("RSTREAM (SELECT x FROM A [RANGE 3] UNION ALL SELECT x FROM B [RANGE 3])", "RSTREAM"),
        ("SELECT x, 1 AS n FROM A [RANGE 3] EXCEPT SELECT 1 AS n, x FROM B [RANGE 3]", "set operation compares"),
        ("SELECT x FROM A [RANGE 3] EXCEPT SELECT COUNT(*) AS n FROM B [RANGE 3] GROUP BY x", "set operation compares"),
        ("SELECT A.x FROM SEQ(A, B) MODE RECENT WHERE A.x < B.x", "SEQ needs all"),
        ("SELECT A.x FROM SEQ(A, B, C) MODE RECENT WHERE A.x = C.x AND B.x = C.x", "SEQ needs all"),
        ("SELECT a.x FROM SEQ(A AS a, A AS b) MODE RECENT WHERE a.x = b.y", "SEQ needs all"),
        ("SELECT B.y, COUNT(*) AS n FROM SEQ(A, B) MODE RECENT WHERE A.x = B.x GROUP BY B.y", "SEQ needs all"),
    ],
)
def test_unpartitionable_query_pinned_with_reason(text: str, why: str) -> None:
    placement = placed(text, 8)
    assert placement.pin_reason is not None
    assert why in str(placement)
    assert placement.cells == 1
    assert len({route.first_cell for route in placement.routes.values()}) == 1


@pytest.mark.parametrize(
    ("text", "copies"),
    [
        ("SELECT x, COUNT(*) AS n FROM A [RANGE 3] GROUP BY x", [1]),
        ("SELECT DISTINCT y, s FROM A [RANGE 3]", [1]),
        ("SELECT B.x, SUM(A.y) AS s FROM A [RANGE 3], B [RANGE 3] WHERE A.x = B.x GROUP BY B.x", [1, 1]),
        ("SELECT B.y, SUM(A.y) AS s FROM A [RANGE 3], B [RANGE 3] WHERE A.x = B.x GROUP BY B.y", [6, 1]),
        ("SELECT x, COUNT(*) AS n FROM A [PARTITION BY x ROWS 3] GROUP BY x", [1]),
    ],
)
def test_group_by_partitioned_by_keys(text: str, copies: list[int]) -> None:
    placement = placed(text, 6)
    assert placement.pin_reason is None
    assert placement.cells == 6
    assert [route.copies for route in placement.routes.values()] == copies


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("SELECT A.x FROM SEQ(A, B) MODE CHRONICLE WHERE A.x = B.x", "x x"),
        ("SELECT A.x FROM SEQ(A, B, C) MODE RECENT WHERE A.y = B.x AND A.x = B.x AND C.y = B.x", "y x y"),
        ("SELECT a.x FROM SEQ(A AS a, A AS b) MODE RECENT WHERE a.x = b.y AND a.y = b.y AND a.s < b.s", "y y"),
        ("SELECT B.y, COUNT(*) AS n FROM SEQ(A, B) MODE RECENT WHERE A.x = B.x AND A.y = B.y GROUP BY B.y", "y y"),
    ],
)
def test_sequence_partitioned_by_common_key(text: str, terms: str) -> None:
    placement = placed(text, 6)
    assert placement.pin_reason is None
    found = [
        step.coordinate.term for route in placement.routes.values() for step in route.dimensions if step.coordinate
    ]
    assert [column.name for term in found if term is not None for column in find_columns(term)] == terms.split()


def test_union_sides_partitioned_separately() -> None:
    placement = placed(
        "SELECT x FROM A [RANGE 3] UNION ALL SELECT B.x FROM B [RANGE 3], C [RANGE 3] WHERE B.y = C.y "
        "UNION ALL SELECT x FROM D [RANGE 3] GROUP BY x",
        6,
    )
    assert placement.pin_reason is None
    terms = {item[1]: [step.coordinate for step in route.dimensions] for item, route in placement.routes.items()}
    assert terms["A"] == [HashCoordinate(None)]
    assert terms["B"] == terms["C"] == [HashCoordinate(Column("", "y", pa.int64()))]
    assert terms["D"] == [HashCoordinate(Column("", "x", pa.int64()), keeps_nulls=True)]


def test_except_sides_partitioned_by_common_column() -> None:
    placement = placed(
        "SELECT 1 AS n, x FROM A [RANGE 3] EXCEPT SELECT B.x + C.x AS n, C.y FROM B [RANGE 3], C [RANGE 3]", 6
    )
    assert placement.pin_reason is None
    terms = {item[1]: [step.coordinate for step in route.dimensions] for item, route in placement.routes.items()}
    assert terms["A"] == [HashCoordinate(Column("", "x", pa.int64()), keeps_nulls=True)]
    assert terms["B"] == [None]
    assert terms["C"] == [HashCoordinate(Column("", "y", pa.int64()), keeps_nulls=True)]


def test_matching_window_partition_is_partitioned() -> None:
    placement = placed("SELECT A.x FROM A [PARTITION BY x, y ROWS 3], B [RANGE 5] WHERE A.x = B.x AND A.s = B.s", 6)
    assert placement.pin_reason is None
    assert [route.copies for route in placement.routes.values()] == [1, 1]


def test_random_queries_within_cell_count() -> None:
    for seed in range(60):
        case = random_case(seed, limit=None)
        catalog = Catalog()
        for stream in case.declarations:
            catalog.relations.add(stream)
        for name, table in case.tables.items():
            catalog.relations.add(Table(name, table.schema))
        query = bind_query(case.query, catalog)
        for cells in (1, 2, 7, 100):
            placement = place_query(query, cells)
            assert placement == place_query(query, cells)
            for route in placement.routes.values():
                assert route.first_cell + prod(step.share for step in route.dimensions) <= cells
                owners = [cell for cell in range(cells) if route.is_owner(cell)]
                assert len(owners) * route.copies == prod(step.share for step in route.dimensions)


def test_offsets_are_mixed_radix() -> None:
    route = placed("SELECT A.x FROM A [RANGE 5], B [RANGE 5], C [RANGE 5] WHERE A.x = B.x AND B.y = C.y", 6).routes[
        0, "B"
    ]
    assert isinstance(route, Route)
    sizes = [range(step.share) for step in route.dimensions]
    cells = {sum(o * c for o, c in zip(route.compute_strides(), at, strict=True)) for at in itertools.product(*sizes)}
    assert cells == set(range(6))


def test_cell_keys_fill_spark_partitions() -> None:
    """Checked against `SELECT pmod(hash(i), 5)` of Spark 4.3 in tests/spark."""
    assert [len(set(find_cell_keys(cells))) for cells in (1, 2, 5, 16)] == [1, 2, 5, 16]
    assert find_cell_keys(1) == (0,)


def test_equal_values_have_equal_hashes() -> None:
    rng = random.Random(1)
    numbers = [rng.randrange(-(2**31), 2**31) for _ in range(50)]
    assert (hash_column(pa.array(numbers, pa.int32()), 3) == hash_column(pa.array(numbers, pa.int64()), 3)).all()
    floats = pa.array([0.0, -0.0, nan, -nan, 1.5])
    found = hash_column(floats)
    assert found[0] == found[1]
    assert found[2] == found[3]
    assert (hash_column(pa.array([1.5, 2.5], pa.float32())) == hash_column(pa.array([1.5, 2.5]))).all()
    words = pa.array(["", "a", "b", "ab", "ba", None, "a\0", "ä", "ab"])
    found = hash_column(words)
    assert len(set(found.tolist())) == 7
    assert (hash_column(words.slice(2, 5)) == found[2:7]).all()
    amounts = pa.array([Decimal("1.50"), None, Decimal("-2.25"), Decimal("1.50")], pa.decimal128(10, 2))
    found = hash_column(amounts.slice(1))
    assert found[2] == hash_column(amounts)[0]
    assert hash_column(pa.array([True, False])).size == 2
    assert hash_rows([words, pa.array(range(9))], 9).size == 9


def test_hashes_spread() -> None:
    for column in (pa.array(range(10_000)), pa.array([f"key {i}" for i in range(10_000)])):
        counts = np.bincount((hash_column(column, 1) >> np.uint64(11)) % np.uint64(8), minlength=8)
        assert counts.min() > 1000
