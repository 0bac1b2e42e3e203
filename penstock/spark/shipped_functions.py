"""User-defined functions on Spark: pickled once, in the driver, and loaded in the tasks.

A function is pickled by value if it is not in a module that the workers can import, as Spark's own UDFs are.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property, lru_cache

from pyspark import cloudpickle

from penstock.cql import FunctionSpec
from penstock.errors import QueryError
from penstock.expr import UserFunction


@dataclass(frozen=True)
class ShippedFunction:
    """A user-defined function as bytes."""

    name: str
    blob: bytes

    @classmethod
    def of(cls, function: UserFunction) -> ShippedFunction:
        try:
            return cls(function.name, cloudpickle.dumps(function))  # type: ignore[no-untyped-call]
        except Exception as error:
            message = f"the function {function.name} cannot be pickled for the workers: {error}"
            raise QueryError("FUNCTION_NOT_PICKLED", message, function=function.name) from error

    @cached_property
    def id(self) -> str:
        """Equal for equal bytes."""
        return f"{self.name}:{hashlib.sha256(self.blob).hexdigest()[:16]}"

    def load(self) -> UserFunction:
        """The function: the same object for the same bytes in a process."""
        return _load(self.blob)

    def as_spec(self) -> FunctionSpec:
        loaded = self.load()
        return loaded.function, loaded.type


@lru_cache(maxsize=256)
def _load(blob: bytes) -> UserFunction:
    function: UserFunction = cloudpickle.loads(blob)
    return function
