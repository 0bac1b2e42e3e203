"""Three streams in a chain whose selective key changes half-way, in batches. The module is pickled by value."""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa

import penstock as ps

BATCH_TICKS = 5
"""The ticks per batch; windows are four times as long, so that joins are sampled once per batch."""
SCHEMA = pa.schema([("ts", pa.int64()), ("x", pa.int64()), ("y", pa.int64())])
CHAIN = "SELECT A.x, B.y FROM A [RANGE 20], B [RANGE 20], C [RANGE 20] WHERE A.x = B.x AND B.y = C.y"
PLAN = "((A B) C)"


def make_rows(stream: str, number: int, change: int = 6, rate: int = 30) -> pa.Table:
    """A batch of rows; before number `change` x is the selective key, from then on y."""
    rng = np.random.default_rng((ord(stream), number))
    x, y = (600, 6) if number < change else (6, 600)
    size = rate * BATCH_TICKS
    columns = [np.sort(rng.integers(BATCH_TICKS * number, BATCH_TICKS * (number + 1), size)),
               rng.integers(0, x, size), rng.integers(0, y, size)]  # fmt: skip
    return pa.table(columns, schema=SCHEMA)


def run_embedded(text: str, batches: int) -> pa.Table:
    """The results of the embedded engine, to the end of the streams."""
    engine = ps.Engine()
    for name in "ABC":
        engine.stream(name, SCHEMA, time="ts")
    engine.query("q", text)
    tables = [engine.push({name: make_rows(name, number) for name in "ABC"})["q"] for number in range(batches)]
    return pa.concat_tables([*tables, engine.flush()["q"]])


if "pyspark" in sys.modules:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
