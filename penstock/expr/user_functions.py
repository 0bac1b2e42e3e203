"""User-defined scalar functions: Python functions of Arrow arrays.

Law: a function is called with one array for each argument, all of the same length, with NULLs as they are; it returns
an array of that length. It must depend on its arguments alone, row by row: how rows are divided into calls depends on
the data's arrival and on the plan. It is not called without rows. An exception of the function, a result of another
length, or one that does not fit its type raises `FunctionError`, which stops the query that calls it and no other.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.expr.convert import Datum
from penstock.expr.function import Function
from penstock.expr.logic import Constants, Kernel
from penstock.expr.nodes import Call, UserFunction
from penstock.expr.types import classify_type, is_numeric


class FunctionError(RuntimeError):
    """A user-defined function raised an exception, or returned something that does not fit."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"the function {name} {problem}")
        self.function = name


def make_user_entry(user: UserFunction) -> Function:
    """The function as an entry of the registry."""
    return Function(user.name, _make_kernel, null_type=None)


def find_argument_problem(user: UserFunction, count: int) -> str | None:
    """Why a function cannot be called with so many arguments; None if it can, or if that is not known."""
    try:
        signature = inspect.signature(user.function)
    except (TypeError, ValueError):  # a function that is not written in Python
        return None
    try:
        signature.bind(*[None] * count)
    except TypeError as error:
        return str(error)
    return None


def _make_kernel(call: Call, _constants: Constants) -> Kernel:
    user = call.user
    assert user is not None

    def kernel(*args: Datum) -> pa.Array:
        length = max(len(arg) for arg in args if isinstance(arg, pa.Array))
        if not length:
            return pa.array([], call.type)
        return _call_function(user, [_as_array(arg, length) for arg in args], length)

    return kernel


def _as_array(arg: Datum, length: int) -> pa.Array:
    return pa.repeat(arg, length) if isinstance(arg, pa.Scalar) else arg


def _call_function(user: UserFunction, arrays: list[pa.Array], length: int) -> pa.Array:
    try:
        result = user.function(*arrays)
    except MemoryError:
        raise
    except Exception as error:
        raise FunctionError(user.name, f"raised {type(error).__name__}: {error}") from error
    values = _read_result(user, result)
    if len(values) != length:
        raise FunctionError(user.name, f"returned {len(values)} values for {length} rows")
    return values


def _read_result(user: UserFunction, result: Any) -> pa.Array:
    """The result as an array of the declared type. Values are converted if none is lost."""
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    if not isinstance(result, pa.Array):
        if isinstance(result, str | bytes) or not hasattr(result, "__len__") or np.ndim(result) != 1:
            problem = f"returned {type(result).__name__}, not an array"
            raise FunctionError(user.name, problem)
        try:
            result = pa.array(result, from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise FunctionError(user.name, f"returned values that are no array: {error}") from error
    if result.type == user.type:
        return result
    if not _can_convert(result.type, user.type):
        raise FunctionError(user.name, f"returned {result.type}, but is declared to return {user.type}")
    try:
        return result.cast(user.type)
    except pa.ArrowException as error:
        raise FunctionError(user.name, f"returned values that do not fit {user.type}: {error}") from error


def _can_convert(given: pa.DataType, wanted: pa.DataType) -> bool:
    same = classify_type(given) == classify_type(wanted)
    return pa.types.is_null(given) or same or (is_numeric(given) and is_numeric(wanted))
