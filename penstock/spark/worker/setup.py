"""Spark's Python workers: the config of a task, and garbage collection."""

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
    configs, batch = context.getLocalProperty(CONFIG_PROPERTY), context.getLocalProperty(_BATCH_PROPERTY)
    return (
        spec
        if configs is None or batch is None
        else spec.with_config(ConfigSchedule.decode(configs).find_config(int(batch)))
    )


def freeze_gc(work: str) -> None:
    """Exclude all present objects from garbage collection; called at the end of a task, once for each `work`.

    Spark collects garbage after every task. With the modules of an engine in memory that takes longer than a small
    micro-batch.
    """
    if work not in _frozen:
        _frozen.add(work)
        gc.collect()
        gc.freeze()
