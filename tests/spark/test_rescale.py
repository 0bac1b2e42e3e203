"""Another number of cells: no row is lost or duplicated, and the old checkpoint is unchanged."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faults import FailingTaskSink
from spark_support import build_pipeline, declare_pipeline, drain, merge_pushes, run_embedded, write_case
from typer.testing import CliRunner

import penstock as ps
from penstock.cli import app
from penstock.spark import sinks
from penstock.spark.driver.checkpoint_metadata import CheckpointMetadata
from penstock.spark.rescale import rescale
from penstock.spark.run import Run
from penstock.testing import another_query, difference, random_case

SEEDS = range(int(os.environ.get("PENSTOCK_SPARK_SEEDS", "1")))


@pytest.mark.parametrize("seed", SEEDS)
def test_rescaled_run_continues(spark: Any, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    case = merge_pushes(random_case(20 + seed, limit=1000, full=True), 4)
    queries = {"q": case.query, **{f"q{i}": another_query(case, 50 * seed + i) for i in range(4)}}
    cells = rng.sample(range(1, 6), 3)
    found: dict[str, list[pa.Table]] = {name: [] for name in queries}
    for part, batches in enumerate((range(0, 2), range(2, 3), range(3, 4))):
        place = tmp_path / f"ck{part}"
        if part:
            rescale(spark, str(tmp_path / f"ck{part - 1}"), str(place), cells[part])
        write_case(case, tmp_path, batches)
        pipe, answers = build_pipeline(spark, case, queries, tmp_path)
        drain(pipe.start(place, cells=cells[part]), finish=part == 2)
        for name, sink in answers.items():
            found[name].append(sink.table())
    wanted = {**run_embedded(case, queries, finish=True), "q": case.expected}
    for name, text in queries.items():
        fault = difference(pa.concat_tables(found[name]), wanted[name])
        assert fault is None, f"seed {seed}, {cells} cells, {name}: {text}\n{fault}"


def test_rescale_finishes_interrupted_micro_batch(spark: Any, tmp_path: Path) -> None:
    """Its sinks have received rows that the run with other cells would write again."""
    case = merge_pushes(random_case(1, limit=100), 2)
    write_case(case, tmp_path)

    def sink() -> sinks.TaskSink:
        return sinks.parquet(str(tmp_path / "out"))

    def started(place: str, cells: int, into: sinks.Sink) -> Run:
        pipe = declare_pipeline(spark, case, tmp_path)
        pipe.query("q", case.query, sink=into)
        return pipe.start(tmp_path / place, cells=cells)

    with pytest.raises(ps.PenstockError, match="the disk is full"):
        drain(started("ck", 2, FailingTaskSink(sink(), 1)))
    with pytest.raises(ps.DataError, match=r"BATCH_UNFINISHED.*within micro-batch 1"):
        rescale(spark, str(tmp_path / "ck"), str(tmp_path / "new"), 3)
    drain(started("ck", 2, sink()))
    rescale(spark, str(tmp_path / "ck"), str(tmp_path / "new"), 3)
    drain(started("new", 3, sink()), finish=True)
    files = sorted((tmp_path / "out").glob("*.parquet"))
    parts = [pq.read_table(file).cast(case.expected.schema) for file in files]
    assert difference(pa.concat_tables([case.expected.schema.empty_table(), *parts]), case.expected) is None


def interrupt(_: CheckpointMetadata) -> None:
    raise KeyboardInterrupt


def test_invalid_rescale_refused(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = CliRunner().invoke(app, ["rescale", str(tmp_path / "none"), str(tmp_path / "new"), "--cells", "3"])
    assert result.exit_code == 2
    assert "NO_CHECKPOINT" in result.output
    case = merge_pushes(random_case(1, limit=100), 2)
    pipe, _ = build_pipeline(spark, case, {"q": case.query}, tmp_path)
    drain(pipe.start(tmp_path / "ck", cells=2))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(ps.DataError, match="FOLDER_IN_USE"):
        rescale(spark, str(tmp_path / "ck"), str(tmp_path / "full"), 3)
    words = ["rescale", str(tmp_path / "ck"), str(tmp_path / "new"), "--cells", "3"]
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointMetadata, "save", interrupt)
        result = CliRunner().invoke(app, words)
    assert result.exit_code == 130
    assert f"interrupted; {tmp_path}/new was not written" in result.output
    assert not (tmp_path / "new").exists()
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    with pytest.raises(ps.QueryError, match="CELLS_DIFFER"):
        pipe.start(tmp_path / "new", cells=2)
