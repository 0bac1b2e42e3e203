"""The law with user-defined functions: in WHERE, SELECT, joins, GROUP BY, sequences and outer joins."""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock as ps
from penstock.state.maintenance import SHIPPED, SMALLEST
from penstock.testing import expected, expected_by_duckdb

FIRST, SEEDS = int(os.environ.get("PENSTOCK_FIRST_SEED", "0")), int(os.environ.get("PENSTOCK_SEEDS", "1"))
SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("x", pa.int64())])
QUERIES = (
    "SELECT low(x) AS v, mixed(x, k) AS m FROM A WHERE mixed(k, x) > 7",
    "SELECT A.x, mixed(A.x, B.k) AS v FROM A [RANGE 9], B [RANGE 7] WHERE low(A.x) = low(B.x) AND mixed(A.x, B.x) > 8",
    "SELECT A.x, B.x AS y FROM A [RANGE 9], B [ROWS 5], C [RANGE 8] WHERE A.k = B.k AND low(B.x) = C.k AND C.x > 1",
    "SELECT low(x) AS k, SUM(mixed(x, k)) AS s FROM A [RANGE 15] GROUP BY low(x) HAVING low(SUM(k)) > 0",
    "SELECT A.x, B.k FROM A [RANGE 9] LEFT JOIN B [RANGE 9] ON low(A.x) = B.k AND mixed(B.x, B.k) > 4",
    "SELECT A.x, B.k FROM SEQ(A, B) MODE RECENT WHERE low(A.x) = low(B.k) AND mixed(A.x, B.k) > 3",
    "SELECT low(x) AS k FROM A [RANGE 9] EXCEPT SELECT k FROM B [RANGE 5]",
    "SELECT x FROM A [RANGE 9] WHERE low(x) IN (SELECT low(x) FROM B [RANGE 9])",
)


def low(x: pa.Array) -> pa.Array:
    return pc.bit_wise_and(x, 3)


def mixed(x: pa.Array, y: pa.Array) -> pa.Array:
    return pc.coalesce(pc.add(pc.multiply(x, 2), y), pa.scalar(5))


FUNCTIONS: dict[str, Any] = {"low": (low, "bigint"), "mixed": (mixed, "bigint")}


def make_stream(chance: random.Random, rows: int) -> pa.Table:
    columns = {
        "ts": sorted(chance.randrange(60) for _ in range(rows)),
        "k": [chance.randrange(4) for _ in range(rows)],
        "x": [chance.choice([None, *range(9)]) for _ in range(rows)],
    }
    return pa.table(columns, SCHEMA)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_functions_agree_with_oracles(seed: int) -> None:
    chance = random.Random(seed)
    rows = 30
    streams = {name: make_stream(chance, rows) for name in "ABC"}
    for text in QUERIES:
        maintenance = chance.choice([SHIPPED, SMALLEST])
        engine = ps.Engine(
            state=chance.choice(["auto", "eager", "lazy", "jit", "none"]), batch=chance.choice([1, 3, 4096]),
            maintenance=maintenance, warn=False,
        )  # fmt: skip
        for name in streams:
            engine.stream(name, SCHEMA, time="ts")
        for name, (function, returns) in FUNCTIONS.items():
            engine.function(name, function, returns)
        engine.query("q", text)
        found, step = [], chance.choice([7, 15])
        for start in range(0, rows, step):
            found += engine.push({name: table.slice(start, step) for name, table in streams.items()})["q"].to_pylist()
            if chance.random() < 0.5:
                engine = ps.Engine.restore(engine.snapshot(), functions=FUNCTIONS)
        found += engine.flush()["q"].to_pylist()
        wanted = expected(text, streams, functions=FUNCTIONS).to_pylist()
        assert Counter(map(str, found)) == Counter(map(str, wanted)), (seed, text)
        by_duckdb = expected_by_duckdb(text, streams, functions=FUNCTIONS).to_pylist()
        assert Counter(map(str, by_duckdb)) == Counter(map(str, wanted)), (seed, text)
