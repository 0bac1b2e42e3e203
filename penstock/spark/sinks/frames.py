"""Sinks that Spark writes: any batch format by its name, and a function of a DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.spark.sinks.protocol import FrameSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class SparkSink(FrameSink):
    """Appends to a destination by one of Spark's own writers.

    Delta ignores a micro-batch that it has already written, by its transaction id. Other formats append a repeated
    micro-batch a second time.
    """

    def __init__(self, format_: str, options: Mapping[str, Any]) -> None:
        self._format = format_
        self._options = dict(options)
        self._transactions: dict[str, str] = {}

    def open(self, run: str, name: str, schema: pa.Schema) -> None:  # noqa: ARG002
        self._transactions = {"txnAppId": f"penstock-{run}-{name}"} if self._format.casefold() == "delta" else {}

    def write(self, frame: DataFrame, batch: int) -> None:
        writer = frame.write.format(self._format).mode("append").options(**self._options)
        if self._transactions:
            writer = writer.options(**self._transactions, txnVersion=str(batch))
        writer.save()

    def __str__(self) -> str:
        return f"{self._format} of Spark"


class ForeachBatchSink(FrameSink):
    """Calls a function with a DataFrame and the number of the micro-batch, which is the same in a retry."""

    def __init__(self, function: Callable[[DataFrame, int], Any]) -> None:
        self._function = function

    def write(self, frame: DataFrame, batch: int) -> None:
        self._function(frame, batch)

    def __str__(self) -> str:
        return f"function {getattr(self._function, '__name__', repr(self._function))}"
