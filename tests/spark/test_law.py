"""The law on Spark: a pipeline gives the results of the oracle and of the embedded engine, for any number of cells."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from spark_support import build_pipeline, drain, merge_pushes, run_embedded, write_case

from penstock.state import SHIPPED
from penstock.state.maintenance import SMALLEST
from penstock.testing import another_query, difference, random_case

FIRST = int(os.environ.get("PENSTOCK_FIRST_SEED", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("PENSTOCK_SPARK_SEEDS", "4")))


@pytest.mark.parametrize("seed", SEEDS)
def test_spark_matches_engine_and_oracle(spark: Any, tmp_path: Path, seed: int) -> None:
    """Odd seeds use the smallest maintenance thresholds; cells without a session run many more seeds with both."""
    maintenance = SMALLEST if seed % 2 else SHIPPED
    case = merge_pushes(random_case(seed, limit=1000), 3)
    queries = {"q": case.query, **{f"q{i}": another_query(case, 10 * seed + i) for i in range(3)}}
    queries["groups"] = f"SELECT x, COUNT(*) AS n, MAX(id) AS last FROM {case.declarations[0].name} [NOW] GROUP BY x"
    wanted = {**run_embedded(case, queries, finish=True), "q": case.expected}
    write_case(case, tmp_path)
    pipe, answers = build_pipeline(spark, case, queries, tmp_path, maintenance=maintenance)
    drain(pipe.start(tmp_path / "checkpoint", cells=seed % 5 + 1), finish=True)
    for name, text in queries.items():
        fault = difference(answers[name].table(), wanted[name])
        assert fault is None, f"seed {seed}, {seed % 5 + 1} cells, {name}: {text}\n{fault}"
