"""Python workers of Spark: the plan a task works by, and what they load is loaded for good."""

from __future__ import annotations

import gc

from pyspark import TaskContext

from penstock.spark.pipeline_config import PROPERTY, Schedule
from penstock.spark.spec import Spec

_BATCH = "streaming.sql.batchId"

_settled: set[str] = set()


def planned(spec: Spec) -> Spec:
    """A pipeline's spec with the plan that counts in the micro-batch of this task."""
    context = TaskContext.get()
    assert context is not None
    plans, batch = context.getLocalProperty(PROPERTY), context.getLocalProperty(_BATCH)
    return spec if plans is None or batch is None else spec.planned(Schedule.unpacked(plans).at(int(batch)))


def settle(work: str) -> None:
    """Called at the end of a task: what is in memory after the first task of a kind stays there.

    Spark collects all garbage after every task. With the modules of an engine in memory that takes longer than a small
    micro-batch, so what was loaded with the first task is taken out of the collector's sight.
    """
    if work not in _settled:
        _settled.add(work)
        gc.collect()
        gc.freeze()
