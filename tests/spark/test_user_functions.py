"""User-defined scalar functions on Spark: pickled in the driver, called in the cells."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from spark_support import drain, read_stream, write_file

import penstock as ps
from penstock.errors import QueryError
from penstock.spark import sinks

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("x", pa.int64())])
TEXTS = {
    "good": "SELECT k, half(x) AS h FROM s [RANGE 4] WHERE half(x) > 1",
    "joined": "SELECT a.x, b.x AS y FROM s [RANGE 3] AS a, s [RANGE 3] AS b WHERE half(a.x) = half(b.x)",
    "bad": "SELECT x FROM s WHERE broken(x) > 0",
}


def make_half() -> Callable[[pa.Array], pa.Array]:
    """A function that is pickled by value: the workers do not have this module."""
    return lambda values: pc.divide(values, 2)


def make_rows() -> pa.Table:
    return pa.table({"ts": list(range(40)), "k": [i % 3 for i in range(40)], "x": [i % 7 for i in range(40)]}, SCHEMA)


def test_functions_in_pipeline(spark: Any, tmp_path: Path) -> None:
    rows, shift, half = make_rows(), 0, make_half()

    def broken(values: pa.Array) -> pa.Array:
        if shift == 0:
            raise ValueError("broken")
        return values

    for number in range(2):
        write_file(tmp_path / "s" / f"{number}.parquet", rows.slice(20 * number, 20), number)
    pipe, answers = ps.Pipeline(spark), {name: sinks.memory() for name in TEXTS}
    pipe.stream("s", read_stream(spark, SCHEMA, tmp_path / "s"), "ts")
    pipe.function("half", half, "bigint")
    pipe.function("half", half, "bigint")
    pipe.function("broken", broken, "bigint")
    with pytest.raises(QueryError, match="DUPLICATE_NAME"):
        pipe.function("half", broken, "bigint")
    for name, text in TEXTS.items():
        pipe.query(name, text, sink=answers[name])
    run = pipe.start(tmp_path / "ck", cells=3)
    drain(run, finish=True)
    assert run.status["failures"].keys() == {"bad"}
    assert "broken" in run.status["failures"]["bad"]
    assert run.status["failures"]["bad"] == run.metrics()["queries"]["bad"]["error"]
    assert run.metrics()["queries"]["good"]["error"] is None
    assert any(notice.startswith("[QUERY_STOPPED] query bad stopped in cell") for notice in run.status["notices"])
    for name in ("good", "joined"):
        engine = ps.Engine(warn=False)
        engine.stream("s", SCHEMA, time="ts")
        engine.function("half", half, "bigint")
        engine.query(name, TEXTS[name])
        wanted = [*engine.push({"s": rows})[name].to_pylist(), *engine.flush()[name].to_pylist()]
        assert sorted(map(str, answers[name].table().to_pylist())) == sorted(map(str, wanted))
    assert answers["bad"].table().num_rows == 0


def test_functions_in_frames(spark: Any) -> None:
    frame = ps.timed(spark.createDataFrame(make_rows()), "ts")
    text = "SELECT third(x) AS t FROM s WHERE third(x) = 2"
    out = ps.sql(spark, text, cells=2, functions={"third": (lambda x: pc.divide(x, 3), "bigint")}, s=frame)
    assert out.count() == sum(i % 7 == 6 for i in range(40))
    with pytest.raises(QueryError, match="BAD_FUNCTION"):
        ps.sql(spark, text, functions={"third": make_half()}, s=frame)
