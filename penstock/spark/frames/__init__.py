"""DataFrames in and out: `ps.sql`, `ps.timed` and `ps.queries`."""

from penstock.spark.frames.frame_queries import FrameQueries, queries, sql
from penstock.spark.frames.timed_frame import TimedFrame, timed

__all__ = ["FrameQueries", "TimedFrame", "queries", "sql", "timed"]
