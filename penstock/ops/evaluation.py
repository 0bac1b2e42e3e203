"""Expressions that cannot be evaluated: the query stops, and says why."""

from __future__ import annotations

import pyarrow as pa

from penstock.errors import QueryError
from penstock.expr import FunctionError

EVALUATION_ERRORS = (pa.ArrowException, ArithmeticError, ValueError, TypeError, RuntimeError)
"""What evaluating an expression may raise. Some of Arrow's errors are also a MemoryError, which is not the query's."""


def make_evaluation_error(what: str, error: Exception) -> QueryError:
    """The error of a query that stops because one of its expressions cannot be evaluated."""
    message = f"{what} could not be evaluated: {error}; drop the query and start it again with another text"
    if isinstance(error, FunctionError):
        message = f"{what} stopped: {error}; correct the function, drop the query and start it again"
        stopped = QueryError("FUNCTION_FAILED", message, function=error.function)
    else:
        stopped = QueryError("EVALUATION_FAILED", message)
    stopped.__cause__ = error
    return stopped
