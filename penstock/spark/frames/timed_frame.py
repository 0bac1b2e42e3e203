"""A DataFrame with a time column: a stream of a query, whether the DataFrame is streaming or batch."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from penstock.cql import Duration
from penstock.errors import DataError, QueryError


@dataclass(frozen=True)
class TimedFrame:
    """A DataFrame that a query reads as a stream; see `timed`."""

    frame: DataFrame
    time: str
    lateness: Duration = 0
    skew: Duration = 0
    idle_after: Duration | None = None

    def __repr__(self) -> str:
        kind = "streaming" if self.frame.isStreaming else "batch"
        return f"penstock.timed({kind} DataFrame, {self.time!r}, lateness={self.lateness!r})"


def timed(
    df: DataFrame, time: str, lateness: Duration = 0, *, skew: Duration = 0, idle_after: Duration | None = None
) -> TimedFrame:
    """Read a DataFrame as a stream: its time column, and how late a row may be, such as "5 seconds".

    The time column is a TIMESTAMP, a TIMESTAMP_NTZ or an integer. A row of a streaming DataFrame is late if its time is
    before the largest time of earlier micro-batches minus `lateness`. Rows of a batch DataFrame are never late.

    With `skew` (the longest delay between the time of a row and its arrival) or `idle_after` (after that long without
    rows, older rows are not expected) the clock of the micro-batches advances the time of the stream too, if rows of
    another stream wait for it. A micro-batch needs rows of some stream: while all are silent, nothing advances.
    """
    if not isinstance(df, DataFrame):
        raise DataError("NOT_A_FRAME", f"ps.timed takes a DataFrame of Spark, not a {type(df).__name__}")
    if not isinstance(time, str):
        raise QueryError("UNKNOWN_COLUMN", f"the time column is named by a text, not {time!r}")
    columns = df.columns
    if time.casefold() not in {name.casefold() for name in columns}:
        message = f"there is no column {time}; the DataFrame has {', '.join(columns)}"
        raise QueryError("UNKNOWN_COLUMN", message, column=time)
    return TimedFrame(df, time, lateness, skew, idle_after)
