"""CAST with try-semantics: a value that cannot be cast becomes NULL, and data never raise an error.

Law: the result of a row depends on that row alone. Every cast therefore has one meaning, and the fast path (one checked
Arrow kernel) is used only where it has that meaning. A number cast to an integer is truncated toward zero; cast to a
decimal it is rounded half away from zero. Instants are floored to days and to coarser units. A timestamp with a zone
reads and writes the wall clock of that zone. Text is ISO; blanks around it are ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from penstock.errors import UnsupportedError
from penstock.expr import convert, text
from penstock.expr.convert import Datum
from penstock.expr.nodes import Call
from penstock.expr.types import TypeKind, classify_type

Caster = Callable[[pa.Array, pa.DataType], pa.Array]


def try_cast(value: Datum, kind: pa.DataType) -> Datum:
    """The array or scalar as `kind`, with NULL where the cast is impossible."""
    source = value.type
    if source == kind:
        return value
    if isinstance(value, pa.Scalar):
        return try_cast(pa.repeat(value, 1), kind)[0]
    if pt.is_null(source):
        return pa.nulls(len(value), kind)
    return CASTS.get((classify_type(source), classify_type(kind)), _cast_any)(value, kind)


def make_cast(call: Call, _constants: object) -> Callable[[Datum], Datum]:
    """The kernel of CAST to the type of the call."""
    return lambda value: try_cast(value, call.type)


def _cast_elements(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """An array with every element cast."""
    elements = try_cast(values.values, kind.value_type)
    return pa.Array.from_buffers(kind, len(values), values.buffers()[:2], offset=values.offset, children=[elements])


def _cast_any(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Pairs of types without an entry in `CASTS`: Arrow's checked cast, row by row if it raises."""
    try:
        return pc.cast(values, kind)
    except pa.ArrowNotImplementedError as error:
        message = f"cannot cast {values.type} to {kind}"
        raise UnsupportedError("CAST", message, source=str(values.type), target=str(kind)) from error
    except pa.ArrowInvalid:
        return pa.array([_cast_scalar(value, kind) for value in values], kind)


def _cast_scalar(value: pa.Scalar, kind: pa.DataType) -> pa.Scalar:
    with suppress(pa.ArrowInvalid):
        return value.cast(kind)
    return pa.scalar(None, kind)


CASTS: dict[tuple[TypeKind, TypeKind], Caster] = {
    ("integer", "integer"): convert.int_to_int,
    ("integer", "float"): convert.int_to_float,
    ("integer", "decimal"): convert.int_to_decimal,
    ("boolean", "decimal"): convert.bool_to_decimal,
    ("float", "integer"): convert.float_to_int,
    ("float", "decimal"): convert.float_to_decimal,
    ("float", "string"): text.float_to_string,
    ("decimal", "integer"): convert.decimal_to_int,
    ("decimal", "float"): convert.decimal_to_float,
    ("decimal", "decimal"): convert.decimal_to_decimal,
    ("decimal", "boolean"): convert.decimal_to_bool,
    ("decimal", "string"): text.decimal_to_string,
    ("timestamp", "timestamp"): convert.timestamp_to_timestamp,
    ("timestamp", "date"): convert.timestamp_to_date,
    ("timestamp", "string"): text.timestamp_to_string,
    ("date", "timestamp"): convert.date_to_timestamp,
    ("interval", "interval"): convert.duration_to_duration,
    ("string", "boolean"): text.string_to_bool,
    ("string", "integer"): text.string_to_int,
    ("string", "float"): text.string_to_float,
    ("string", "decimal"): text.string_to_decimal,
    ("string", "date"): text.string_to_date,
    ("string", "timestamp"): text.string_to_timestamp,
    ("array", "array"): _cast_elements,
}
