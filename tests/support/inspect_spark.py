"""What tests read of a running pipeline and of Spark that no public interface shows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.adapt import Decision
from penstock.spark import session
from penstock.spark.driver.adaptive import AdaptiveRun
from penstock.spark.driver.control import CommandLog
from penstock.spark.worker.cell_state import CellCache


def last_command_number(log: CommandLog) -> int:
    return log._last_number


def deliver_to_waiting_batch(adaptive: AdaptiveRun, decisions: Sequence[Decision]) -> bool:
    """Deliver decisions while a micro-batch waits for them; returns whether it goes on."""
    adaptive._idle.clear()
    adaptive._deliver(list(decisions), 0.0)
    return adaptive._idle.is_set()


def redirect_stderr(log: Path) -> AbstractContextManager[None]:
    """The redirection that `local_session(log=...)` uses while it starts Spark."""
    return session._redirect_stderr(log)


def wait_for_listeners(spark: Any) -> None:
    """Wait until Spark has delivered all events to its listeners."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()


def hadoop_configuration(spark: Any) -> Any:
    """Hadoop's configuration of a session; `get`, `set` and `unset` are its methods."""
    return spark.sparkContext._jsc.hadoopConfiguration()


def cached_engines(cache: CellCache) -> list[ps.Engine]:
    """The engines of the cells that a worker keeps between micro-batches."""
    return [cached.cell._engine for cached in cache._items.values()]
