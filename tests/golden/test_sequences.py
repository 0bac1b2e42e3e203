"""The RFID example of the query graph paper: products are packed into cases that were scanned before them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import penstock as ps

CASES = [(10, "c1"), (20, "c2"), (30, "c3")]
PRODUCTS = [(5, "p0"), (12, "p1"), (15, "p2"), (31, "p3"), (33, "p4"), (35, "p5")]
TEXT = "SELECT c.tag AS box, p.tag AS product FROM SEQ(cases AS c, products AS p) MODE {}"
PACKED = {
    # every product with the most recent earlier case
    "RECENT": [("c1", "p1", 12), ("c1", "p2", 15), ("c3", "p3", 31), ("c3", "p4", 33), ("c3", "p5", 35)],
    # one product per case: the earliest unused case
    "CHRONICLE": [("c1", "p1", 12), ("c2", "p3", 31), ("c3", "p4", 33)],
}


def table(rows: list[tuple[int, str]]) -> pa.Table:
    return pa.table(
        {"ts": pa.array([t for t, _ in rows], pa.int64()), "tag": pa.array([tag for _, tag in rows], "string")}
    )


def packing(mode: str) -> ps.Engine:
    engine = ps.Engine()
    for name in ("cases", "products"):
        engine.stream(name, {"ts": "bigint", "tag": "string"}, time="ts")
    engine.query("packed", TEXT.format(mode))
    return engine


def collected(engine: ps.Engine, pushes: list[dict[str, list[tuple[int, str]]]]) -> list[Any]:
    out = [engine.push({name: table(rows) for name, rows in push.items()})["packed"] for push in pushes]
    return [tuple(row.values()) for each in [*out, engine.flush()["packed"]] for row in each.to_pylist()]


@pytest.mark.parametrize("mode", PACKED)
def test_products_and_cases(mode: str) -> None:
    assert collected(packing(mode), [{"cases": CASES, "products": PRODUCTS}]) == PACKED[mode]


@pytest.mark.parametrize("mode", PACKED)
@pytest.mark.parametrize("first", ["cases", "products"])
def test_skew_between_readers_keeps_results(mode: str, first: str) -> None:
    """The reader of products is far ahead of the reader of cases, or behind: packing waits for the time registers."""
    data = {"cases": CASES, "products": PRODUCTS}
    second = "products" if first == "cases" else "cases"
    pushes = [{first: data[first]}, *({second: [row]} for row in data[second])]
    assert collected(packing(mode), pushes) == PACKED[mode]
