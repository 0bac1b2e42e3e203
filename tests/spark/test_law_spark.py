"""The law on Spark: a pipeline answers what the oracle and the embedded engine answer, on any number of cells."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from sparkkit import drained, embedded, in_batches, pipeline, write

from penstock.state.maintenance import DEFAULT_MAINTENANCE, SMALLEST_MAINTENANCE, Maintenance
from penstock.testing import another_query, difference, random_case

FIRST = int(os.environ.get("PENSTOCK_FIRST_SEED", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("PENSTOCK_SPARK_SEEDS", "4")))


@pytest.mark.parametrize("maintenance", [DEFAULT_MAINTENANCE, SMALLEST_MAINTENANCE], ids=["shipped", "smallest"])
@pytest.mark.parametrize("seed", SEEDS)
def test_oracle_engine_and_spark_agree(spark: Any, tmp_path: Path, seed: int, maintenance: Maintenance) -> None:
    case = in_batches(random_case(seed, limit=1000), 3)
    queries = {"q": case.query, **{f"q{i}": another_query(case, 10 * seed + i) for i in range(3)}}
    queries["groups"] = f"SELECT x, COUNT(*) AS n, MAX(id) AS last FROM {case.declarations[0].name} [NOW] GROUP BY x"
    wanted = {**embedded(case, queries, finish=True), "q": case.expected}
    write(case, tmp_path)
    pipe, answers = pipeline(spark, case, queries, tmp_path, maintenance=maintenance)
    drained(pipe.start(tmp_path / "checkpoint", cells=seed % 5 + 1), finish=True)
    for name, text in queries.items():
        fault = difference(answers[name].table(), wanted[name])
        assert fault is None, f"seed {seed}, {seed % 5 + 1} cells, {name}: {text}\n{fault}"
