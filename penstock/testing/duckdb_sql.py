"""Expressions in DuckDB's SQL, for the oracle in `penstock.testing.duckdb_oracle`.

Values are those of `penstock.testing.row_evaluator`: timestamps, durations and dates are integers. Arithmetic that
overflows or divides by zero gives NULL. Operations that DuckDB computes in another way (text to numbers), and those of
decimals whose digits do not fit its widest integer, are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from inspect import signature
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from penstock.errors import UnsupportedError
from penstock.expr import COMPARISONS, FUNCTIONS, NAMED_FUNCTIONS, Aggregate, Call, Column, Expr, Literal, UserFunction
from penstock.testing.row_evaluator import to_plain
from penstock.testing.row_functions import DAY

Resolve = Callable[[Column | Aggregate], str]

TYPE_NAMES = {
    "bool": "BOOLEAN", "int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT",
    "float": "FLOAT", "double": "DOUBLE", "string": "VARCHAR", "large_string": "VARCHAR", "null": "INTEGER",
}  # fmt: skip


def quote(name: str) -> str:
    """A name as an identifier of DuckDB."""
    return '"' + name.replace('"', '""') + '"'


def format_duckdb_type(kind: pa.DataType) -> str:
    """DuckDB's type for values of an Arrow type."""
    if pt.is_timestamp(kind) or pt.is_duration(kind):
        return "BIGINT"
    if pt.is_date(kind):
        return "INTEGER"
    if pt.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pt.is_list(kind):
        return f"{format_duckdb_type(kind.value_type)}[]"
    if pt.is_map(kind):
        return f"MAP({format_duckdb_type(kind.key_type)}, {format_duckdb_type(kind.item_type)})"
    if pt.is_struct(kind):
        return f"STRUCT({', '.join(f'{quote(field.name)} {format_duckdb_type(field.type)}' for field in kind)})"
    name = TYPE_NAMES.get(str(kind))
    if name is None:
        raise _make_unsupported_error(f"values of type {kind}")
    return name


def qualify(column: Column | Aggregate) -> str:
    """A column of a FROM item."""
    if isinstance(column, Aggregate):
        raise _make_unsupported_error(f"the aggregate {column.function} outside a group")
    return f"{quote(column.alias)}.{quote(column.name)}"


def register_function(connection: Any, user: UserFunction) -> None:
    """Declare a user-defined function in DuckDB. Its arguments are bigints."""
    arguments = ["BIGINT"] * len(signature(user.function).parameters)

    def call(*columns: Any) -> pa.Array:
        return user.function(*(each.combine_chunks() for each in columns)).cast(user.type)

    call.__signature__ = signature(user.function)  # type: ignore[attr-defined]  # by which DuckDB counts arguments
    connection.create_function(
        user.name, call, arguments, format_duckdb_type(user.type), type="arrow", null_handling="special"
    )


def to_duckdb(expr: Expr, resolve: Resolve = qualify) -> str:
    """The expression as SQL text; `resolve` writes its columns and aggregates."""
    if isinstance(expr, Column | Aggregate):
        return resolve(expr)
    if isinstance(expr, Literal):
        return _format_literal(expr)
    args = [to_duckdb(arg, resolve) for arg in expr.args]
    if expr.user is not None:
        return f"{expr.op}({', '.join(args)})"
    if expr.op in COMPARISONS:
        return f"({args[0]} {expr.op} {args[1]})"
    if expr.op in LOGIC_FORMATS:
        return LOGIC_FORMATS[expr.op](args)
    if expr.op == "cast":
        return _format_cast(args[0], expr.args[0].type, expr.type)
    if expr.op in ("field", "subscript") or (expr.op in NAMED_FUNCTIONS and expr.op not in ("abs", "mod")):
        return _format_function(expr, args)
    return _format_arithmetic(expr, args)


class _Arguments(list[str]):
    """The arguments of a function in its template: `{args}` with commas, `{args:||}` with another separator."""

    def __format__(self, separator: str) -> str:
        return f" {separator} ".join(self) if separator else ", ".join(self)


def _format_function(call: Call, args: list[str]) -> str:
    template = FUNCTIONS[call.op].duckdb
    decimals = any(pt.is_decimal(each.type) for each in (call, *call.args)) and call.op not in CHOICES
    of_map = any(pt.is_map(arg.type) for arg in call.args)
    if template is None or decimals or of_map or any(pt.is_timestamp(arg.type) and arg.type.tz for arg in call.args):
        raise _make_unsupported_error(f"{call.op} of {', '.join(str(arg.type) for arg in call.args)}")
    return f"({template.format(*args, args=_Arguments(args))})"


CHOICES = ("coalesce", "nullif", "if", "nvl2", "greatest", "least")
"""Functions that return one of their arguments."""


def _format_case(args: list[str]) -> str:
    branches = zip(args[:-1:2], args[1::2], strict=True)
    return "CASE " + " ".join(f"WHEN {when} THEN {then}" for when, then in branches) + f" ELSE {args[-1]} END"


LOGIC_FORMATS: dict[str, Callable[[list[str]], str]] = {
    "and": lambda args: "(" + " AND ".join(args) + ")",
    "or": lambda args: "(" + " OR ".join(args) + ")",
    "not": lambda args: f"(NOT {args[0]})",
    "is_null": lambda args: f"({args[0]} IS NULL)",
    "in": lambda args: f"({args[0]} IN ({', '.join(args[1:])}))",
    "like": lambda args: f"({args[0]} LIKE {args[1]} ESCAPE '\\')",
    "case": _format_case,
}


def _format_literal(literal: Literal) -> str:
    (value,) = to_plain(pa.array([literal.value], literal.type))
    if value is None:
        return f"CAST(NULL AS {format_duckdb_type(literal.type)})"
    text = str(value).replace("'", "''")
    return f"CAST('{text}' AS {format_duckdb_type(literal.type)})"


def _format_arithmetic(call: Call, args: list[str]) -> str:
    kind = call.type
    if pt.is_decimal(kind) or any(pt.is_decimal(arg.type) for arg in call.args):
        return _format_decimal_arithmetic(call, args)
    if pt.is_floating(kind):
        args = [f"CAST({arg} AS DOUBLE)" for arg in args]
        if call.op in ("/", "%", "mod"):
            args[1] = f"NULLIF({args[1]}, 0)"
        return f"CAST({_format_operation(call.op, args)} AS {format_duckdb_type(kind)})"
    in_time = pt.is_timestamp(kind) or pt.is_duration(kind)
    scales = [DAY if in_time and pt.is_date(arg.type) else 1 for arg in call.args]
    args = [f"(CAST({arg} AS HUGEINT) * {scale})" for arg, scale in zip(args, scales, strict=True)]
    if call.op in ("/", "%", "mod"):
        args[1] = f"NULLIF({args[1]}, 0)"
    op = "//" if call.op == "/" else call.op
    return f"TRY_CAST({_format_operation(op, args)} AS {format_duckdb_type(kind)})"


def _format_decimal_arithmetic(call: Call, args: list[str]) -> str:
    kinds = [arg.type for arg in call.args]
    if not all(map(pt.is_decimal, (call.type, *kinds))):
        raise _make_unsupported_error(f"{call.op} of {', '.join(map(str, kinds))} as {call.type}")
    if call.op in ("/", "%", "mod"):
        return _format_decimal_quotient(call, args, kinds)
    if call.op == "*" and sum(kind.precision for kind in kinds) > WIDEST:
        raise _make_unsupported_error(f"a product of {kinds[0]} and {kinds[1]}")
    return f"TRY_CAST({_format_operation(call.op, args)} AS {format_duckdb_type(call.type)})"


WIDEST = 38
"""The digits of DuckDB's widest decimal, and of its widest integer."""


def _format_decimal_quotient(call: Call, args: list[str], kinds: list[pa.DataType]) -> str:
    """A quotient or a remainder, computed with integers: DuckDB divides decimals as doubles."""
    (left, right), scale = kinds, max(kind.scale for kind in kinds)
    divides = call.op == "/"
    more = call.type.scale + right.scale - left.scale if divides else scale - left.scale
    digits = left.precision + more + divides, right.precision + scale + divides
    if more < 0 or max(digits) > WIDEST or (not divides and call.type.scale != scale):
        raise _make_unsupported_error(f"{call.op} of {left} and {right}")
    a = f"({count_units(args[0], left)} * {10**more}::HUGEINT)"
    b = f"NULLIF({count_units(args[1], right)}, 0)"
    if divides:
        return scale_units(round_quotient(a, b), call.type)
    return scale_units(f"({a} % ({b} * {10 ** (scale - right.scale)}::HUGEINT))", call.type)


def count_units(text: str, kind: pa.DataType) -> str:
    """A decimal as an integer that counts units of its last digit."""
    return f"CAST(CAST({text} AS DECIMAL({WIDEST}, {kind.scale})) * {10**kind.scale} AS HUGEINT)"


def round_quotient(a: str, b: str) -> str:
    """The quotient of two integers, rounded half away from zero."""
    return f"(sign({a}) * sign({b}) * ((2 * abs({a}) + abs({b})) // (2 * abs({b}))))"


def scale_units(text: str, kind: pa.DataType) -> str:
    """An integer that counts units of the last digit, as a decimal; NULL if it does not fit."""
    unit = f"CAST('{Decimal(1).scaleb(-kind.scale):f}' AS DECIMAL({kind.scale + 1}, {kind.scale}))"
    return f"(TRY_CAST({text} AS DECIMAL({kind.precision}, 0)) * {unit})::DECIMAL({kind.precision}, {kind.scale})"


def _format_operation(op: str, args: list[str]) -> str:
    op = "%" if op == "mod" else op
    if op == "neg":
        return f"(-{args[0]})"
    return f"abs({args[0]})" if op == "abs" else f"({args[0]} {op} {args[1]})"


def _format_cast(text: str, source: pa.DataType, target: pa.DataType) -> str:
    if source.equals(target):
        return text
    if pt.is_integer(source) and (pt.is_integer(target) or pt.is_floating(target) or pt.is_decimal(target)):
        return f"TRY_CAST({text} AS {format_duckdb_type(target)})"
    if pt.is_floating(target) and (pt.is_floating(source) or pt.is_decimal(source)):
        return f"TRY_CAST({text} AS {format_duckdb_type(target)})"
    if pt.is_integer(target) and (pt.is_floating(source) or pt.is_decimal(source)):
        return f"TRY_CAST(trunc({text}) AS {format_duckdb_type(target)})"
    if pt.is_decimal(source) and pt.is_decimal(target):
        return f"TRY_CAST({text} AS {format_duckdb_type(target)})"
    if pt.is_timestamp(target) and pt.is_date(source):
        return f"(CAST({text} AS BIGINT) * {DAY})"
    if pt.is_null(source):
        return f"CAST(NULL AS {format_duckdb_type(target)})"
    if pt.is_string(target) and pt.is_integer(source):
        return f"CAST({text} AS VARCHAR)"
    raise _make_unsupported_error(f"CAST from {source} to {target}")


def format_aggregate(node: Aggregate, arguments: Sequence[str]) -> str:
    """An aggregate over columns of a group. DuckDB adds doubles: exactly only if every partial sum is exact."""
    if not arguments:
        return "count(*)"
    value = arguments[0]
    inside = f"DISTINCT {value}" if node.distinct else value
    function, kind = node.function, format_duckdb_type(node.type)
    if function == "count":
        return f"count({inside})"
    if function in ("min", "max"):
        return f"{function}({value})"
    if function == "sum":
        return f"TRY_CAST(sum({inside}) AS {kind})"
    if function == "avg" and pt.is_decimal(node.type):
        given = node.args[0].type
        units = count_units(value, given)
        total = f"sum({f'DISTINCT {units}' if node.distinct else units})"
        more = node.type.scale - given.scale
        count = f"NULLIF(count({inside}), 0)"
        return scale_units(round_quotient(f"({total} * {10**more}::HUGEINT)", count), node.type)
    if function == "avg":
        return f"(CAST(sum({inside}) AS DOUBLE) / NULLIF(count({inside}), 0))"
    if function in ORDERED_FORMATS:
        return ORDERED_FORMATS[function](node, arguments)
    raise _make_unsupported_error(f"the aggregate {node.function}")


def _format_variance(node: Aggregate, arguments: Sequence[str]) -> str:
    square, inside = f"{arguments[0]} * {arguments[0]}", arguments[0]
    if node.distinct:
        raise _make_unsupported_error("a variance of distinct values")
    count = f"count({inside})"
    spread = f"({count} * sum({square}) - sum({inside}) * sum({inside}))"
    divisor = f"{count} * ({count} - 1)" if node.function.endswith("_samp") else f"{count} * {count}"
    variance = f"({spread} / NULLIF(CAST({divisor} AS DOUBLE), 0))"
    return f"sqrt({variance})" if node.function.startswith("stddev") else variance


def _format_percentile(node: Aggregate, arguments: Sequence[str]) -> str:
    fraction, descending = node.parameters
    if node.distinct:
        raise _make_unsupported_error("a percentile of distinct values")
    order = f"ORDER BY {arguments[0]}{' DESC' * descending}"
    return f"{node.function}({fraction}) WITHIN GROUP ({order}) FILTER (WHERE {arguments[0]} IS NOT NULL)"


def _format_choice(node: Aggregate, arguments: Sequence[str]) -> str:
    value, key = arguments
    function = "first" if node.function in ("arg_min", "first") else "last"
    known = f"{value} IS NOT NULL AND {key} IS NOT NULL"
    return f"{function}({value} ORDER BY {key}, {value}) FILTER (WHERE {known})"


def _format_list(node: Aggregate, arguments: Sequence[str]) -> str:
    value, *keys = arguments
    separator, *orders = node.parameters
    terms = [
        f"{key} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"
        for key, (descending, nulls_first) in zip(keys, orders, strict=True)
    ]
    ordered = f"{'DISTINCT ' * node.distinct}{value}"
    order = f"ORDER BY {', '.join([*terms, value])}"
    if separator is None:
        return f"coalesce(list({ordered} {order}) FILTER (WHERE {value} IS NOT NULL), [])"
    quoted = "'" + separator.replace("'", "''") + "'"
    return f"string_agg({ordered}, {quoted} {order})"


ORDERED_FORMATS: dict[str, Callable[[Aggregate, Sequence[str]], str]] = {
    **dict.fromkeys(("var_samp", "var_pop", "stddev_samp", "stddev_pop"), _format_variance),
    **dict.fromkeys(("percentile_cont", "percentile_disc"), _format_percentile),
    **dict.fromkeys(("arg_min", "arg_max", "first", "last"), _format_choice),
    **dict.fromkeys(("string_agg", "array_agg"), _format_list),
}


def _make_unsupported_error(what: str) -> UnsupportedError:
    message = f"the oracle on DuckDB does not compute {what}; penstock.testing.expected does"
    return UnsupportedError("ORACLE_EXPRESSION", message)


def to_plain_table(table: pa.Table) -> pa.Table:
    """The table with timestamps, durations and dates as integers."""
    return pa.table(
        {name: _to_plain_column(column) for name, column in zip(table.column_names, table.columns, strict=True)}
    )


def _to_plain_column(column: Any) -> Any:
    kind = column.type
    if pt.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    if pt.is_duration(kind):
        return column.cast(pa.duration("us"), safe=False).cast(pa.int64())
    return column.cast(pa.date32()).cast(pa.int32()) if pt.is_date(kind) else column


def to_typed_column(plain: Any, kind: pa.DataType) -> Any:
    """A column of plain values in the type of a query's column: the inverse of `to_plain_table`."""
    if pt.is_timestamp(kind):
        return plain.cast(pa.int64()).cast(pa.timestamp("us", kind.tz)).cast(kind)
    if pt.is_duration(kind):
        return plain.cast(pa.int64()).cast(pa.duration("us")).cast(kind)
    return plain.cast(pa.int32()).cast(pa.date32()).cast(kind) if pt.is_date(kind) else plain.cast(kind)
