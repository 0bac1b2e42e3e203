"""Type rules of functions with fixed parameters: each has a family of types, and the result has a type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal as OneOf

import pyarrow as pa

from penstock.expr.nodes import BOOL, DOUBLE, INT, STRING, TIMESTAMP, Expr, Literal
from penstock.expr.type_rules import Mismatch, Signature, TypeRule
from penstock.expr.types import NULL, classify_type, is_nested, is_numeric

Parameter = OneOf["text", "constant", "printable", "integer", "double", "time", "date", "any"]
"""`text` is a string, `constant` a string constant, `printable` all that has a text, `time` a timestamp or date."""


def take(*parameters: Parameter, result: pa.DataType | int) -> TypeRule:
    """A rule for these parameters, of which the last one may be repeated. `result`: a type, or the argument with it."""

    def apply(_name: str, args: Sequence[Expr]) -> Signature | Mismatch:
        wanted = [parameters[min(place, len(parameters) - 1)] for place in range(len(args))]
        types = [_find_type(kind, arg) for kind, arg in zip(wanted, args, strict=True)]
        wrong = tuple(place for place, type_ in enumerate(types) if type_ is None)
        if wrong:
            return Mismatch(wrong)
        return Signature(tuple(types), types[result] if isinstance(result, int) else result)

    return apply


def _find_type(parameter: Parameter, arg: Expr) -> pa.DataType | None:
    """The type in which a parameter takes an argument; None if it does not."""
    kind, is_null = classify_type(arg.type), arg.type == NULL
    is_text_constant = isinstance(arg, Literal) and isinstance(arg.value, str)
    match parameter:
        case "text":
            return STRING if is_null or kind == "string" else None
        case "constant":
            return STRING if is_text_constant else None
        case "printable":
            return STRING if is_null or (kind not in ("null", "interval") and not is_nested(arg.type)) else None
        case "integer":
            return INT if is_null or kind == "integer" else None
        case "double":
            return DOUBLE if is_null or is_numeric(arg.type) else None
        case "time":
            if kind == "timestamp":
                return arg.type
            return TIMESTAMP if is_null or kind == "date" or is_text_constant else None
        case "date":
            return pa.date32() if is_null or kind in ("date", "timestamp") or is_text_constant else None
    return BOOL if is_null else arg.type
