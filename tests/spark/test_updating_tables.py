"""An updating table on Spark: enrichment with a dimension that changes, as of the time of the event."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from spark_support import drain, read_stream, write_file

import penstock as ps
from penstock.spark import sinks

EVENTS = pa.schema([("ts", pa.int64()), ("k", pa.int64())])
CHANGES = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("price", pa.float64()), ("_op", pa.string())])
TEXT = "SELECT e.ts, e.k, p.price FROM events [NOW] AS e JOIN prices AS p ON e.k = p.k"


@pytest.mark.parametrize("cells", [1, 3])
def test_enrichment_as_of_event_time(spark: Any, tmp_path: Path, cells: int) -> None:
    keys = range(6)
    for number in range(2):
        changes = [(10 * number + 1, k, 10.0 * number + k, None) for k in keys]
        changes += [(10 * number + 5, k, None, "-") for k in keys if k % 2]
        events = [(10 * number + at, k) for at in (0, 3, 7) for k in keys]
        for name, rows, schema in (("prices", changes, CHANGES), ("events", events, EVENTS)):
            table = pa.table([list(column) for column in zip(*sorted(rows), strict=True)], schema=schema)
            write_file(tmp_path / name / f"{number}.parquet", table, number)
    pipe, answers, dead = ps.Pipeline(spark), sinks.memory(), sinks.memory()
    events_frame = read_stream(spark, EVENTS, tmp_path / "events")
    pipe.stream("events", events_frame, "ts", late=sinks.memory(), dead=dead)
    pipe.table("prices", read_stream(spark, CHANGES, tmp_path / "prices"), key="k", time="ts")
    pipe.query("q", TEXT, sink=answers)
    drain(pipe.start(tmp_path / "ck", cells=cells), finish=True)
    found = sorted((row["ts"], row["k"], row["price"]) for row in answers.table().to_pylist())
    assert found == sorted(
        (10 * number + at, k, 10.0 * (number - (at == 0)) + k)
        for number in range(2)
        for at in (0, 3, 7)
        for k in keys
        if (at == 0 and number and not k % 2) or at == 3 or (at == 7 and not k % 2)
    )
