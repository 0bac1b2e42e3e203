"""The embedded engine: queries over streams in one process, without Spark."""

from penstock.engine.descriptions import Descriptions, QueryDescription
from penstock.engine.engine import Engine

__all__ = ["Descriptions", "Engine", "QueryDescription"]
