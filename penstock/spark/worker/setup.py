"""Python workers of Spark: the plan a task works by, and what they load is loaded for good."""

from __future__ import annotations

import gc

from pyspark import TaskContext

from penstock.errors import InternalError
from penstock.spark.pipeline_config import CONFIG_PROPERTY, ConfigSchedule
from penstock.spark.spec import PipelineSpec

_BATCH_PROPERTY = "streaming.sql.batchId"

_frozen: set[str] = set()


def get_task_context() -> TaskContext:
    """The context of the Spark task that calls this."""
    context = TaskContext.get()
    if context is None:
        raise InternalError("NO_TASK", "this function runs only inside a Spark task")
    return context


def read_task_spec(spec: PipelineSpec) -> PipelineSpec:
    """A pipeline's spec with the config of the micro-batch of this task."""
    context = get_task_context()
    plans, batch = context.getLocalProperty(CONFIG_PROPERTY), context.getLocalProperty(_BATCH_PROPERTY)
    return (
        spec
        if plans is None or batch is None
        else spec.with_config(ConfigSchedule.decode(plans).find_config(int(batch)))
    )


def freeze_gc(work: str) -> None:
    """Called at the end of a task: what is in memory after the first task of a kind stays there.

    Spark collects all garbage after every task. With the modules of an engine in memory that takes longer than a small
    micro-batch, so what was loaded with the first task is taken out of the collector's sight.
    """
    if work not in _frozen:
        _frozen.add(work)
        gc.collect()
        gc.freeze()
