"""Metrics in Spark's own progress reports: `observedMetrics` of `lastProgress` and of StreamingQueryListener."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import coalesce, col, lit, sum, when

from penstock.spark.worker.cell_state import DEAD, LATE, RESULT
from penstock.spark.worker.writer import WRITTEN

OBSERVED_NAME = "penstock"
"""The name under which the metrics are reported."""


def observe_output(frame: DataFrame) -> DataFrame:
    """The frame of output rows, with the numbers of results, late and dead rows as observed metrics."""
    totals = {"results": RESULT, "late": LATE, "dead": DEAD}
    return frame.observe(OBSERVED_NAME, *(_count_rows(kind).alias(name) for name, kind in totals.items()))


def _count_rows(kind: str) -> Column:
    """The rows of a kind of output, written by tasks or sent."""
    return coalesce(sum(when(col("kind").isin(kind, WRITTEN + kind), col("rows"))), lit(0))
