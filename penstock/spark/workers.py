"""Python workers of Spark: what they load is loaded for good."""

from __future__ import annotations

import gc

_settled: set[str] = set()


def settle(work: str) -> None:
    """Called at the end of a task: what is in memory after the first task of a kind stays there.

    Spark collects all garbage after every task. With the modules of an engine in memory that takes longer than a small
    micro-batch, so what was loaded with the first task is taken out of the collector's sight.
    """
    if work not in _settled:
        _settled.add(work)
        gc.collect()
        gc.freeze()
