"""The law across batch and stream: `ps.sql` gives the answer of the oracle over DataFrames of both kinds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from frame_support import as_results, batch_case, read_results, stream_case, write_results
from spark_support import merge_pushes, run_embedded, write_case

import penstock as ps
from penstock.lab.meters import kill_workers
from penstock.testing import difference, expected, random_case, random_operators_case
from penstock.testing.frame_cases import random_frames_case

FIRST = int(os.environ.get("PENSTOCK_FIRST_SEED", "0"))
COUNT = int(os.environ.get("PENSTOCK_SPARK_SEEDS", "1"))
SEEDS = range(FIRST, FIRST + COUNT)


CASES = (random_case, random_operators_case, random_frames_case)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + 3 * COUNT))
def test_batch_answer_matches_oracle(spark: Any, tmp_path: Path, seed: int) -> None:
    """Rows of one time in several partitions have no order, which a window of a number of rows would show."""
    case = CASES[seed % 3](seed, limit=1000)
    by_rows = any(word in case.query.upper() for word in ("ROWS", "SEQ", "OVER"))
    frames = batch_case(spark, case, tmp_path, 1 if by_rows else 3)
    answer = ps.sql(spark, case.query, cells=seed % 4 + 1, **frames)
    assert not answer.isStreaming
    streams = {name: case.streams[name] for name in sorted(case.streams, key=str.casefold)}
    wanted = expected(case.query, streams, case.tables, case.times)
    fault = difference(as_results(answer, wanted.schema), wanted)
    assert fault is None, f"seed {seed}: {case.query}\n{fault}"


@pytest.mark.parametrize("seed", SEEDS)
def test_stream_answer_matches_engine_after_restart(spark: Any, tmp_path: Path, seed: int) -> None:
    """The results before a restart from the checkpoint and after it are those of an engine that was not stopped."""
    case = merge_pushes(random_case(seed, limit=1000), 4)
    wanted = run_embedded(case, {"q": case.query})["q"]
    late = sum(table.num_rows for table in case.late.values())
    write_case(case, tmp_path, range(2))
    first = ps.sql(spark, case.query, cells=seed % 3 + 1, **stream_case(spark, case, tmp_path))
    progress = write_results(first, tmp_path)
    kill_workers()
    write_case(case, tmp_path, range(2, 9))
    again = ps.sql(spark, f"-- the same query\n{case.query}", cells=seed % 3 + 1, **stream_case(spark, case, tmp_path))
    progress += write_results(again, tmp_path)
    fault = difference(read_results(spark, tmp_path, wanted.schema), wanted)
    assert fault is None, f"seed {seed}: {case.query}\n{fault}"
    metrics = [row for each in progress for name, row in each["observedMetrics"].items() if name.startswith("penstock")]
    assert sum(row["results"] for row in metrics) == wanted.num_rows
    assert sum(row["late"] for row in metrics) == late
