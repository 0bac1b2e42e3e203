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


def get_task_property(name: str) -> str | None:
    """A local property of the thread that started this task, which is the thread of the micro-batch."""
    return get_task_context().getLocalProperty(name)


def get_batch() -> int:
    """The number of the micro-batch of this task."""
    batch = get_task_property(_BATCH_PROPERTY)
    if batch is None:
        raise InternalError("NO_BATCH", "this task is not part of a micro-batch")
    return int(batch)


def read_task_spec(spec: PipelineSpec) -> PipelineSpec:
    """A pipeline's spec with the config of the micro-batch of this task."""
    configs, batch = get_task_property(CONFIG_PROPERTY), get_task_property(_BATCH_PROPERTY)
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
