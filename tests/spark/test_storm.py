"""Storms on a Spark session; most seeds run on cells without a session, see tests/storm."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from storm.spark_run import draw_for_spark, find_spark_fault

FIRST = int(os.environ.get("PENSTOCK_FIRST_SEED", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("PENSTOCK_SPARK_SEEDS", "6")) // 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_storm_on_spark(spark: Any, tmp_path: Path, seed: int) -> None:
    scenario = draw_for_spark(seed, 500)
    fault = find_spark_fault(spark, scenario, tmp_path)
    assert fault is None, f"on Spark: {scenario}\n{fault}"
