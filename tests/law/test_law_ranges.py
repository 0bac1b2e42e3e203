"""The law for joins whose predicates bound intervals: two-sided ranges, overlaps, and single inequalities."""

from __future__ import annotations

import datetime
import random
from typing import Any

import pyarrow as pa
import pytest
from law_support import CHUNKS, list_seeds, make_engine

import penstock as ps
from penstock.testing import difference, expected_by_duckdb

COLUMNS = {"ts": "bigint", "k": "bigint", "lo": "bigint", "hi": "double"}
PREDICATES = (
    "B.lo BETWEEN A.lo AND A.hi",
    "A.lo < B.hi AND B.lo < A.hi",
    "A.lo <= B.hi AND A.hi >= B.lo",
    "A.lo + 2 > B.lo AND B.hi >= A.hi - 1.5",
    "A.lo < B.lo",
    "A.hi >= B.lo AND A.hi <= B.hi AND A.lo <> B.lo",
    "A.k = B.k AND B.lo BETWEEN A.lo AND A.hi",
    "A.lo + 3 < B.lo OR B.lo > A.lo + 5 OR A.lo + 9 <= B.lo",
    "COALESCE(A.lo < B.lo, TRUE) AND (A.lo < B.lo OR A.k = 1)",
)


def _draw_rows(rng: random.Random, time: int) -> pa.Table:
    count = rng.choice([0, 1, 8, 40])
    lows = [rng.choice([None, *range(12)]) for _ in range(count)]
    highs = [
        rng.choice([None, float("nan"), float("inf"), -0.0])
        if low is None or rng.random() < 0.1
        else low + rng.random()
        for low in lows
    ]
    return pa.table({
        "ts": pa.array(sorted(time + rng.randrange(10) for _ in range(count)), pa.int64()),
        "k": pa.array([rng.randrange(2) for _ in range(count)], pa.int64()),
        "lo": pa.array(lows, pa.int64()),
        "hi": pa.array(highs, pa.float64()),
    })  # fmt: skip


def check_ranges(seed: int) -> None:
    rng = random.Random(f"ranges {seed}")
    streams = ["A", "B", "C"] if rng.random() < 0.3 else ["A", "B"]
    pushes = [{name: _draw_rows(rng, 10 * step) for name in streams} for step in range(rng.randint(1, 5))]
    where = PREDICATES[seed % len(PREDICATES)]
    if "C" in streams:
        where += rng.choice([" AND C.lo BETWEEN B.lo AND B.hi", " AND C.k = A.k", " AND A.lo < C.hi AND C.lo < B.hi"])
    items = ", ".join(f"{name} [RANGE {rng.randint(5, 40)}]" for name in streams)
    text = f"SELECT A.lo, A.hi, B.lo AS bl, B.hi AS bh FROM {items} WHERE {where}"
    options = {"state": rng.choice(["eager", "lazy", "jit", "auto", "none"]), "batch": rng.choice([1, 7, 4096])}
    eng: Any = make_engine(**options)
    for name in streams:
        eng.stream(name, COLUMNS, time="ts")
    eng.query("q", text)
    found = []
    for push in pushes:
        if rng.random() < 0.2:
            eng = ps.Engine.restore(eng.snapshot())
        found.append(eng.push(push)["q"])
    found.append(eng.flush()["q"])
    whole = {name: pa.concat_tables([push[name] for push in pushes]) for name in streams}
    fault = difference(pa.concat_tables(found), expected_by_duckdb(text, whole, time="ts"))
    assert fault is None, f"seed {seed}, {options}: {text}\n{fault}"


@pytest.mark.parametrize("chunk", CHUNKS)
def test_ranges(chunk: int) -> None:
    for seed in list_seeds(chunk)[::10]:
        check_ranges(seed)


@pytest.mark.parametrize(
    ("where", "left", "right"),
    [
        ("CAST(a.v AS BIGINT) >= b.v", -1.5, -1.2),
        ("CAST(a.v AS INT) <= b.v - 2", 1.9, 3.1),
        ("CAST(a.d AS BIGINT) < b.d", 2.75, 2.5),
        ("CAST(a.v AS DECIMAL(10, 0)) > b.v", 1.6, 1.8),
        ("ABS(CAST(a.v AS INT) - b.v) < 1", 1.9, 0.5),
        ("CAST(a.v AS FLOAT) >= b.v", 1 - 2.0**-30, 1 - 2.0**-31),
        ("a.v + 1e17 <= b.v + 1e17", 2, 1),
        ("ABS(a.v + 1e17 - b.v) <= 1e17", 1, 0),
        ("a.x + 9000000000000000001 < b.x + 9000000000000000003", 1, 0),
        ("a.z > b.at", 1800, 3600),  # 0:30 and 1:00, which is 0:00 in Berlin
        ("CAST(a.z AS TIMESTAMP) > b.at", 1800, 3600),
    ],
)
@pytest.mark.parametrize("state", ["eager", "jit"])
def test_range_of_rounded_terms(where: str, left: float, right: float, state: str) -> None:
    """Casts that round or change the zone, and sums of large constants, were taken for exact differences."""
    eng: Any = make_engine(state=state)
    columns = {"x": "bigint", "v": "double", "d": "decimal(9, 2)", "z": "timestamp(Europe/Berlin)", "at": "timestamp"}
    for name in "AB":
        eng.stream(name, {"ts": "bigint", **columns}, time="ts")
    eng.query("q", f"SELECT a.v FROM A [RANGE 9] AS a, B [RANGE 9] AS b WHERE {where}")

    def row(number: float) -> list[dict[str, Any]]:
        at = datetime.datetime(2026, 1, 1) + datetime.timedelta(seconds=int(number))
        zoned = at.replace(tzinfo=datetime.UTC)
        return [{"ts": 1, "x": int(number), "v": float(number), "d": round(float(number), 2), "z": zoned, "at": at}]

    found = [eng.push({"A": row(left), "B": row(right)})["q"], eng.flush()["q"]]
    assert sum(table.num_rows for table in found) == 1
