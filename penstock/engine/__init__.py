"""The embedded engine: queries over streams in one process, without Spark."""

from penstock.engine.descriptions import Descriptions, QueryDescription
from penstock.engine.engine import Engine
from penstock.engine.status import convert_frontier, describe_source
from penstock.engine.status_values import (
    ArcStatus,
    EngineStatus,
    OperatorStatus,
    QueryStatus,
    StreamStatus,
    split_queries,
)

__all__ = [
    "ArcStatus",
    "Descriptions",
    "Engine",
    "EngineStatus",
    "OperatorStatus",
    "QueryDescription",
    "QueryStatus",
    "StreamStatus",
    "convert_frontier",
    "describe_source",
    "split_queries",
]
