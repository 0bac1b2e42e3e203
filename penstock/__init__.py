"""Penstock: continuous queries, exact, over sliding windows of many streams."""

from penstock.engine import Engine
from penstock.errors import (
    DataError,
    InternalError,
    PenstockError,
    QueryError,
    ResourceError,
    UnsupportedError,
)

__all__ = [
    "DataError",
    "Engine",
    "InternalError",
    "PenstockError",
    "QueryError",
    "ResourceError",
    "UnsupportedError",
    "__version__",
]

__version__ = "0.1.0"
