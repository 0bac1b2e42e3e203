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
    from penstock.engine import Engine
    from penstock.spark import sinks
    from penstock.spark.pipeline import Pipeline

__all__ = [
    "DataError",
    "Engine",
    "InternalError",
    "PenstockError",
    "PenstockWarning",
    "Pipeline",
    "QueryError",
    "ResourceError",
    "UnsupportedError",
    "__version__",
    "sinks",
]

__version__ = "0.1.0"

logging.getLogger("penstock").addHandler(logging.NullHandler())

_LAZY_IMPORTS = {
    "Engine": ("penstock.engine", "Engine"),
    "Pipeline": ("penstock.spark.pipeline", "Pipeline"),
    "sinks": ("penstock.spark.sinks", None),
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Load `Engine`, `Pipeline` and `sinks` at their first use: they load slowly, and some need Spark."""
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _LAZY_IMPORTS[name]
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in ("pyspark", "pandas", "google"):
            raise
        raise ResourceError(
            "SPARK_NOT_INSTALLED", f"penstock.{name} needs {error.name}: pip install 'penstock[spark]'"
        ) from error
    return found if attribute is None else getattr(found, attribute)
