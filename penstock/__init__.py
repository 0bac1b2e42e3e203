"""Penstock: exact continuous queries over sliding windows of many streams."""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.errors import (
    DataError,
    InternalError,
    PenstockError,
    PenstockWarning,
    QueryError,
    ResourceError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from penstock.cql import secret, secret_file
    from penstock.engine import Engine
    from penstock.spark import sinks, sources
    from penstock.spark.frames import queries, sql, timed
    from penstock.spark.payloads import Payload
    from penstock.spark.pipeline import Pipeline

__all__ = [
    "DataError",
    "Engine",
    "InternalError",
    "Payload",
    "PenstockError",
    "PenstockWarning",
    "Pipeline",
    "QueryError",
    "ResourceError",
    "UnsupportedError",
    "__version__",
    "queries",
    "secret",
    "secret_file",
    "sinks",
    "sources",
    "sql",
    "timed",
]

__version__ = "0.1.0"

logging.getLogger("penstock").addHandler(logging.NullHandler())

_LAZY_IMPORTS = {
    "Engine": ("penstock.engine", "Engine"),
    "Pipeline": ("penstock.spark.pipeline", "Pipeline"),
    "Payload": ("penstock.spark.payloads", "Payload"),
    "queries": ("penstock.spark.frames", "queries"),
    "secret": ("penstock.cql", "secret"),
    "secret_file": ("penstock.cql", "secret_file"),
    "sinks": ("penstock.spark.sinks", None),
    "sources": ("penstock.spark.sources", None),
    "sql": ("penstock.spark.frames", "sql"),
    "timed": ("penstock.spark.frames", "timed"),
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Load a name at its first use: the modules load slowly, and some need Spark."""
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LAZY_IMPORTS[name]
    try:
        found = import_module(module)
    except (ImportError, AttributeError):  # AttributeError: an older pyspark lacks what a class derives from
        problem = _find_problem(spark=module.startswith("penstock.spark"))
        if problem is None:
            raise
        raise problem from None
    return found if attribute is None else getattr(found, attribute)


def _find_problem(*, spark: bool) -> ResourceError | None:
    """The package that is missing or of the wrong version, if that explains a failed import."""
    from penstock.spark.environment import check_packages  # noqa: PLC0415 - only to explain a failure

    return next((each.to_error() for each in check_packages(spark=spark) if each.level == "problem"), None)
