"""Functions of dates and timestamps. A timestamp with a zone is read on the wall clock of that zone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.expr.cast import try_cast
from penstock.expr.convert import Datum
from penstock.expr.function import Function
from penstock.expr.library.calendar import (
    PARTS,
    TRUNCATED_UNITS,
    add_days,
    add_months,
    count_between,
    extract_part,
    floor_to_unit,
    to_count,
    to_instants,
)
from penstock.expr.library.time_formats import format_times, parse_times, read_java, read_percent, read_postgres
from penstock.expr.logic import Constants, Kernel
from penstock.expr.nodes import DOUBLE, INT, STRING, TIMESTAMP, Call, Expr, Literal
from penstock.expr.parameters import take
from penstock.expr.rowwise import make_by_column, make_plain
from penstock.expr.type_rules import Mismatch, Signature, TypeRule
from penstock.expr.types import NULL, classify_type, is_numeric

_MOMENT = "make_timestamp({0})"  # of a count of microseconds


def _read_unit(arg: Expr, known: Sequence[str]) -> str | None:
    """The unit that a constant names, in the singular; None if it is not a known one."""
    if not isinstance(arg, Literal) or not isinstance(arg.value, str):
        return None
    unit = arg.value.casefold()
    return next((each for each in (unit, unit.removesuffix("s")) if each in known), None)


def _type_unit(known: Sequence[str], rest: TypeRule) -> TypeRule:
    """A rule for functions whose first argument is a constant that names a unit."""

    def apply(name: str, args: Sequence[Expr]) -> Signature | Mismatch:
        if _read_unit(args[0], known) is None:
            return Mismatch((0,))
        signature = rest(name, args[1:])
        if isinstance(signature, Mismatch):
            return Mismatch(tuple(place + 1 for place in signature.positions))
        return Signature((STRING, *signature.arguments), signature.result)

    return apply


def _type_part(name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    result = DOUBLE if _read_unit(args[0], ("epoch",)) else INT
    return _type_unit(tuple(PARTS), take("time", result=result))(name, args)


def _type_moved(_name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    """A date or timestamp and a number: the type of the first."""
    signature = take("time", "integer", result=0)("", args)
    if isinstance(signature, Mismatch) or classify_type(args[0].type) != "date":
        return signature
    return Signature((args[0].type, INT), args[0].type)


def _type_difference(name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    """DATEDIFF(end, start) in days, or DATEDIFF(unit, start, end)."""
    if len(args) == 3:
        return _type_unit(TRUNCATED_UNITS, take("time", result=INT))(name, args)
    return take("date", result=INT)(name, args)


def _type_to_timestamp(name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    """A number of seconds, a text, or a text and its format."""
    given = args[0].type
    if len(args) == 1 and is_numeric(given):
        exact = {"integer": INT, "decimal": given}
        return Signature((exact.get(classify_type(given), DOUBLE),), TIMESTAMP)
    if len(args) == 1 and classify_type(given) in ("timestamp", "date"):
        return Signature((given,), given if classify_type(given) == "timestamp" else TIMESTAMP)
    return take("text", "constant", result=TIMESTAMP)(name, args)


def _type_to_date(name: str, args: Sequence[Expr]) -> Signature | Mismatch:
    if len(args) == 1 and (classify_type(args[0].type) in ("timestamp", "date") or args[0].type == NULL):
        return Signature((args[0].type,), pa.date32())
    return take("text", "constant", result=pa.date32())(name, args)


def _make_with_unit(compute: Callable[..., Datum]) -> Callable[[Call, Constants], Kernel]:
    def make(call: Call, _constants: Constants) -> Kernel:
        unit = _read_unit(call.args[0], (*PARTS, *TRUNCATED_UNITS)) or ""
        return lambda _unit, *args: compute(unit, *args)

    return make


def _make_difference(call: Call, constants: Constants) -> Kernel:
    if len(call.args) == 3:
        return _make_with_unit(count_between)(call, constants)
    return lambda end, start: pc.subtract(to_count(end, "day"), to_count(start, "day"))


def _make_to_timestamp(call: Call, constants: Constants) -> Kernel:
    given = call.args[0].type
    if is_numeric(given):
        return lambda seconds: to_instants(seconds, 1)
    if len(call.args) == 1:
        return lambda values: try_cast(values, call.type)
    pieces = read_java(constants[1].as_py()) if constants[1] is not None else ()
    return lambda values, _format: parse_times(values, pieces)


def _make_to_date(call: Call, constants: Constants) -> Kernel:
    if len(call.args) == 1:
        return lambda values: try_cast(values, call.type)
    parse = _make_to_timestamp(call, constants)
    return lambda values, format_: try_cast(parse(values, format_), call.type)


def _make_part_function(name: str, part: str, meaning: str, duckdb: str, aliases: tuple[str, ...] = ()) -> Function:
    return Function(
        name,
        make_plain(lambda values: extract_part(part, values)),
        type_rule=take("time", result=INT),
        mismatch=f"{name.upper()} needs a timestamp or date, not",
        arity=(1, 1),
        aliases=aliases,
        usage=f"{name.upper()}(t)",
        meaning=meaning,
        duckdb=f"{duckdb}({_MOMENT})",
    )


def _make_count_function(name: str, unit: str, aliases: tuple[str, ...], duckdb: str) -> Function:
    return Function(
        name,
        make_plain(lambda values: to_count(values, unit)),
        type_rule=take("time", result=INT),
        mismatch=f"{name.upper()} needs a timestamp or date, not",
        arity=(1, 1),
        aliases=aliases,
        usage=f"{name.upper()}(t)",
        meaning=f"whole {unit}s since 1970-01-01 00:00:00 UTC",
        duckdb=duckdb,
    )


def _make_instant_function(name: str, unit: str, per_second: int) -> Function:
    return Function(
        name,
        make_plain(lambda values: to_instants(values, per_second)),
        type_rule=take("integer", result=TIMESTAMP),
        mismatch=f"{name.upper()} needs an integer, not",
        arity=(1, 1),
        usage=f"{name.upper()}(n)",
        meaning=f"the timestamp `n` {unit}s after 1970-01-01 00:00:00",
        duckdb=f"TRY_CAST(CAST({{0}} AS HUGEINT) * {1_000_000 // per_second} AS BIGINT)",
    )


def _make_format_function(
    name: str, read: Callable[[str], tuple[str, ...]], example: str, duckdb: str | None
) -> Function:
    return Function(
        name,
        make_by_column(lambda values, pattern: format_times(values, read(pattern))),
        type_rule=take("time", "constant", result=STRING),
        mismatch=f"{name.upper()} needs a timestamp and a format that is a constant, not",
        arity=(2, 2),
        usage=f"{name.upper()}(t, '{example}')",
        meaning="the time as text",
        duckdb=duckdb,
    )


FUNCTIONS = (
    Function(
        "date_trunc",
        _make_with_unit(floor_to_unit),
        type_rule=_type_unit(TRUNCATED_UNITS, take("time", result=0)),
        mismatch=f"DATE_TRUNC needs one of {', '.join(TRUNCATED_UNITS)} and a timestamp, not",
        arity=(2, 2),
        usage="DATE_TRUNC('hour', t)",
        meaning="the start of the hour, day, week and so on; weeks start on Monday",
        duckdb="epoch_us(CAST(date_trunc({0}, make_timestamp({1})) AS TIMESTAMP))",
    ),
    Function(
        "date_part",
        _make_with_unit(extract_part),
        type_rule=_type_part,
        mismatch=f"DATE_PART needs one of {', '.join(PARTS)} and a timestamp, not",
        arity=(2, 2),
        aliases=("datepart",),
        usage="DATE_PART('hour', t), EXTRACT(HOUR FROM t)",
        meaning="a part of the time; `dayofweek` is 1 on Sunday, `isodow` 1 on Monday, `epoch` a number of seconds",
    ),
    _make_part_function("year", "year", "the year", "year"),
    _make_part_function("quarter", "quarter", "1 to 4", "quarter"),
    _make_part_function("month", "month", "1 to 12", "month"),
    _make_part_function("week", "week", "the ISO week, 1 to 53", "week", ("weekofyear",)),
    _make_part_function("day", "day", "1 to 31", "day", ("dayofmonth",)),
    _make_part_function("dayofyear", "doy", "1 to 366", "dayofyear"),
    _make_part_function("dayofweek", "dayofweek", "1 on Sunday, 7 on Saturday", "1 + dayofweek"),
    _make_part_function("hour", "hour", "0 to 23", "hour"),
    _make_part_function("minute", "minute", "0 to 59", "minute"),
    _make_part_function("second", "second", "0 to 59", "second"),
    _make_format_function("date_format", read_java, "yyyy-MM-dd HH:mm", None),
    _make_format_function("to_char", read_postgres, "YYYY-MM-DD HH24:MI", None),
    _make_format_function("strftime", read_percent, "%Y-%m-%d %H:%M", "strftime(make_timestamp({0}), {1})"),
    Function(
        "to_timestamp",
        _make_to_timestamp,
        type_rule=_type_to_timestamp,
        mismatch="TO_TIMESTAMP needs a text and a format that is a constant, or a number of seconds, not",
        arity=(1, 2),
        usage="TO_TIMESTAMP(s), TO_TIMESTAMP(s, 'yyyy-MM-dd HH:mm'), TO_TIMESTAMP(seconds)",
        meaning="the timestamp of a text in ISO form, or in a given one, or of a number of seconds since 1970",
    ),
    Function(
        "to_date",
        _make_to_date,
        type_rule=_type_to_date,
        mismatch="TO_DATE needs a text and a format that is a constant, not",
        arity=(1, 2),
        usage="TO_DATE(s), TO_DATE(s, 'dd.MM.yyyy'), TO_DATE(t)",
        meaning="the date that a text stands for, or the date of a timestamp",
    ),
    _make_count_function("unix_timestamp", "second", ("epoch", "unix_seconds"), "CAST(floor({0} / 1e6) AS BIGINT)"),
    _make_count_function("unix_millis", "millisecond", ("epoch_ms",), "CAST(floor({0} / 1e3) AS BIGINT)"),
    _make_count_function("unix_micros", "microsecond", ("epoch_us",), "{0}"),
    _make_instant_function("timestamp_seconds", "second", 1),
    _make_instant_function("timestamp_millis", "millisecond", 1_000),
    _make_instant_function("timestamp_micros", "microsecond", 1_000_000),
    Function(
        "datediff",
        _make_difference,
        type_rule=_type_difference,
        mismatch=f"DATEDIFF needs two dates, or one of {', '.join(TRUNCATED_UNITS)} and two timestamps, not",
        arity=(2, 3),
        aliases=("date_diff", "timestampdiff"),
        usage="DATEDIFF(end, start), DATEDIFF('hour', start, end)",
        meaning="days between two dates; or whole units between two timestamps, as in Spark",
    ),
    Function(
        "date_add",
        make_plain(add_days),
        type_rule=_type_moved,
        mismatch="DATE_ADD needs a date or timestamp and an integer, not",
        arity=(2, 2),
        usage="DATE_ADD(t, n)",
        meaning="`n` days later",
    ),
    Function(
        "date_sub",
        make_plain(lambda values, days: add_days(values, pc.negate(days))),
        type_rule=_type_moved,
        mismatch="DATE_SUB needs a date or timestamp and an integer, not",
        arity=(2, 2),
        usage="DATE_SUB(t, n)",
        meaning="`n` days earlier",
    ),
    Function(
        "add_months",
        make_plain(add_months),
        type_rule=_type_moved,
        mismatch="months and years can be added to a date or timestamp only, not to",
        arity=(2, 2),
        usage="ADD_MONTHS(t, n), t + INTERVAL n MONTHS",
        meaning="`n` months later, on the same day of the month or, if it has none, on its last",
    ),
)
