"""The embedded engine: queries over streams in one process, without Spark."""

from penstock.engine.engine import Engine
from penstock.engine.ingest import fit_columns, to_tick
from penstock.engine.relations import Duration, describe_stream

__all__ = ["Duration", "Engine", "describe_stream", "fit_columns", "to_tick"]
