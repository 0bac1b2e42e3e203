"""Kernels of functions whose parameters, such as a pattern or a unit, are constants in most calls.

With constant parameters the kernel works on whole columns. Otherwise a Python function is called once for each distinct
combination of arguments. Either way a NULL among the arguments gives NULL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.expr.convert import Datum
from penstock.expr.logic import Constants, Kernel
from penstock.expr.nodes import Call

RowFunction = Callable[..., Any]
ColumnFunction = Callable[..., Datum]
_MISSING = object()


def map_rows(function: RowFunction, args: tuple[Datum, ...], kind: pa.DataType) -> pa.Array:
    """The function of each row of arguments that are not NULL, called once for equal ones."""
    length = max(len(arg) for arg in args if isinstance(arg, pa.Array))
    columns = [arg.to_pylist() if isinstance(arg, pa.Array) else [arg.as_py()] * length for arg in args]
    known: dict[tuple[Any, ...], Any] = {}
    results = []
    for row in zip(*columns, strict=True):
        value = known.get(row, _MISSING)
        if value is _MISSING:
            value = known[row] = None if None in row else function(*row)
        results.append(value)
    return pa.array(results, kind)


def make_by_row(function: RowFunction) -> Callable[[Call, Constants], Kernel]:
    """A function that has no kernel over columns."""
    return lambda call, _constants: lambda *args: map_rows(function, args, call.type)


def make_by_column(column: ColumnFunction, row: RowFunction | None = None) -> Callable[[Call, Constants], Kernel]:
    """`column(values, *parameters)` if all arguments but the first are constants, else `row` for each row.

    Without `row` the type rule of the function refuses parameters that are not constants.
    """

    def make(call: Call, constants: Constants) -> Kernel:
        parameters = constants[1:]
        if row is not None and any(parameter is None for parameter in parameters):
            return lambda *args: map_rows(row, args, call.type)
        if any(not parameter.is_valid for parameter in parameters if parameter is not None):
            return lambda *_args: pa.scalar(None, call.type)
        values = [parameter.as_py() for parameter in parameters if parameter is not None]
        return lambda *args: column(args[0], *values)

    return make


def make_plain(kernel: Kernel) -> Callable[[Call, Constants], Kernel]:
    """One kernel for all types and constants."""
    return lambda _call, _constants: kernel
