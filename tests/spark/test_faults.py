"""Failures on Spark: each result is written exactly once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fault_cases import KINDS, kill_jvm, name_kind, run_seed
from spark_support import build_pipeline, drain, merge_pushes, read_stream, run_embedded, write_case

import penstock as ps
from penstock.spark import sinks
from penstock.testing import Case, difference, random_case

CELLS = 2
FIRST = int(os.environ.get("PENSTOCK_FIRST_SEED", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("PENSTOCK_FAULT_SEEDS", "50")))
QUICK = [seed for seed in SEEDS[: len(KINDS)] if KINDS[seed % len(KINDS)] is not kill_jvm]
"""One seed of each kind; `make faults` runs the others. A driver that is killed in a commit loses its Java process too,
so the slow start of a driver for `kill_jvm` is left to `make faults`."""
EXTRA = "SELECT P.id AS p, Q.id AS q FROM {0} [PARTITION BY x ROWS 2] AS P, {1} [RANGE {2}] AS Q WHERE P.x = Q.x"


@pytest.fixture(scope="module")
def case() -> Case:
    return merge_pushes(random_case(12, sources=3, windows=("range",), shape="shared", emit="", full=True, rows=30,
                                  timestamps=False, tables=False, nulls=0.0, domain=4, late=True), 4)  # fmt: skip


@pytest.fixture(scope="module")
def queries(case: Case) -> dict[str, str]:
    names = [stream.name for stream in case.declarations] * 2
    return {"q": case.query, "rows": EXTRA.format(names[0], names[1], 5)}


@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.faults, id=f"{n}-{name_kind(n)}") for n in SEEDS]
)
def test_exactly_once_under_faults(spark: Any, tmp_path: Path, seed: int) -> None:
    run_seed(spark, seed, tmp_path)


def test_restart_with_added_query(spark: Any, case: Case, queries: dict[str, str], tmp_path: Path) -> None:
    write_case(case, tmp_path, range(0, 2))
    first, one = build_pipeline(spark, case, queries, tmp_path)
    drain(first.start(tmp_path / "ck", cells=CELLS))
    write_case(case, tmp_path, range(2, 4))
    more = {**queries, "new": queries["rows"]}
    second, two = build_pipeline(spark, case, more, tmp_path)
    run = drain(second.start(tmp_path / "ck", cells=CELLS))
    wanted = run_embedded(case, queries)
    for name in queries:
        found = pa.concat_tables([one[name].table(), two[name].table()])
        assert difference(found, wanted[name]) is None
    late = Case(case.seed, case.declarations, case.tables, case.query, case.plan, case.steps[2:])
    fresh = run_embedded(late, {"new": queries["rows"]})["new"]
    if not any(table.num_rows for table in case.late.values()):
        assert difference(two["new"].table(), fresh) is None
    assert run.metrics()["queries"]["q"]["placement"].startswith("2 cells")
    _mismatches(spark, case, queries, tmp_path)


def _mismatches(spark: Any, case: Case, queries: dict[str, str], folder: Path) -> None:
    """A checkpoint of another pipeline is refused."""
    pipe, _ = build_pipeline(spark, case, queries, folder)
    with pytest.raises(ps.QueryError, match="CELLS_DIFFER"):
        pipe.start(folder / "ck", cells=CELLS + 1)
    other, _ = build_pipeline(spark, case, {"q": queries["rows"]}, folder)
    with pytest.raises(ps.QueryError, match="QUERY_DIFFERS"):
        other.start(folder / "ck", cells=CELLS)
    stranger = ps.Pipeline(spark)
    schema = pa.schema([("ts", pa.int64())])
    stranger.stream("elsewhere", read_stream(spark, schema, folder / "elsewhere"), "ts")
    stranger.query("q", "SELECT ts FROM elsewhere [NOW]")
    with pytest.raises(ps.QueryError, match="CHECKPOINT_DIFFERS"):
        stranger.start(folder / "ck", cells=CELLS)


def test_late_and_bad_rows_reported_once(spark: Any, tmp_path: Path) -> None:
    case = merge_pushes(random_case(5, sources=2, shape="theta", windows=("range",), rows=40, full=True, late=True,
                                  timestamps=True, tables=False), 4)  # fmt: skip
    write_case(case, tmp_path)
    pipe = ps.Pipeline(spark)
    rejects = {}
    for stream in case.declarations:
        rejects[stream.name] = sinks.memory(), sinks.memory()
        late, dead = rejects[stream.name]
        frame = read_stream(spark, stream.schema, tmp_path / stream.name)
        pipe.stream(stream.name, frame, stream.time, stream.lateness, late=late, dead=dead)
    names = [stream.name for stream in case.declarations] * 2
    pipe.query("q", f"SELECT P.id AS p, Q.id AS q FROM {names[0]} [RANGE 5 SECONDS] AS P, {names[1]} [NOW] AS Q",
               sink=sinks.memory())  # fmt: skip
    run = drain(pipe.start(tmp_path / "ck", cells=4))
    assert any(table.num_rows for table in case.late.values())
    for stream in case.declarations:
        late, dead = rejects[stream.name]
        assert sorted(late.table().column("id").to_pylist()) == sorted(case.late[stream.name].column("id").to_pylist())
        bad = case.streams[stream.name].column(stream.time).null_count
        counted = run.metrics()["streams"][stream.name]
        assert (counted["late"], counted["dead"]) == (case.late[stream.name].num_rows, bad)
        assert dead.table().num_rows == bad
