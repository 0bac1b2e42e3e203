"""Errors for results that are too large for their sink: they name the query, the size and what to do.

The run ends. Its state is not lost: Spark has not committed the micro-batch and repeats it at the next start, and then
it fails again unless the sink or its limit is another.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.errors import ResourceError
from penstock.spark.worker.cell_state import OutputKey
from penstock.spark.worker.writer import FRAME_LIMIT
from penstock.state import format_size

SPARK_LIMIT = "spark.driver.maxResultSize"
_REMEDY = (
    "use a sink that tasks write, such as ps.sinks.parquet, {other}, and start again: the state is kept, and the same "
    "micro-batch is repeated"
)


def build_limit_error(key: OutputKey, batch: int, size: int, limit: int) -> ResourceError:
    """For a sink in the driver."""
    remedy = _REMEDY.format(other=f'or raise its limit, such as ps.sinks.memory(limit="{format_size(2 * size)}")')
    message = (
        f"the {key[0]} rows of {key[1]} in micro-batch {batch} have {format_size(size)}; its sink is in the driver and "
        f"takes {format_size(limit)}; {remedy}"
    )
    return ResourceError("RESULTS_TOO_LARGE", message, query=key[1])


def build_frame_limit_error(key: OutputKey, batch: int, size: int) -> ResourceError:
    """For a sink that Spark writes."""
    message = (
        f"the {key[0]} rows of {key[1]} in micro-batch {batch} have {format_size(size)} in the largest cells; a frame "
        f"takes {format_size(FRAME_LIMIT)} from a cell; {_REMEDY.format(other='or rescale to more cells')}"
    )
    return ResourceError("RESULTS_TOO_LARGE", message, query=key[1])


def build_spark_limit_error(batch: int, names: Iterable[str]) -> ResourceError:
    """For all sinks in the driver together, above Spark's own limit."""
    message = (
        f"the results of micro-batch {batch} are larger than {SPARK_LIMIT}; the sinks of these queries are in the "
        f"driver: {', '.join(names)}; {_REMEDY.format(other=f'or raise {SPARK_LIMIT}')}"
    )
    return ResourceError("RESULTS_TOO_LARGE", message)
