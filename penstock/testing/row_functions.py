"""The meaning of the named functions for one row, in plain Python: slow, short and independent of the engine's kernels.

Times are counts of microseconds since 1970, dates counts of days, as in `penstock.testing.row_evaluator`. Functions of
`ROW_FUNCTIONS` are called with arguments that are not NULL.
"""

from __future__ import annotations

import calendar
import datetime
import hashlib
import json
import math
import re
import zlib
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any

import pyarrow.types as pt

from penstock.expr import Call

DAY = 86_400_000_000  # microseconds
EPOCH = datetime.datetime(1970, 1, 1)
WIDE_CONTEXT = Context(prec=76)
UNITS = {"microsecond": 1, "millisecond": 1_000, "second": 10**6, "minute": 6 * 10**7, "hour": 36 * 10**8, "day": DAY}


def _to_moment(ticks: int) -> datetime.datetime:
    return EPOCH + datetime.timedelta(microseconds=ticks)


def _to_ticks(moment: datetime.datetime) -> int:
    return (moment - EPOCH) // datetime.timedelta(microseconds=1)


def _substring(text: str, start: int, length: int | None = None) -> str:
    begin = max(start, 1) if start >= 0 else len(text) + start + 1
    end = len(text) + 1 if length is None else begin + max(length, 0)
    return "".join(char for place, char in enumerate(text, 1) if begin <= place < end)


def _split_part(text: str, separator: str, number: int) -> str | None:
    if number == 0:
        return None
    parts = text.split(separator) if separator else [text]
    if number < 0:
        parts, number = parts[::-1], -number
    return parts[number - 1] if number <= len(parts) else ""


def _pad(text: str, width: int, fill: str, left: bool) -> str:
    padding = ""
    while fill and len(padding) + len(text) < width:
        padding += fill
    padding = padding[: max(width - len(text), 0)]
    text = text[: max(width, 0)]
    return padding + text if left else text + padding


def _regexp_extract(text: str, pattern: str, group: int | None = None) -> str:
    compiled = re.compile(pattern)
    found = compiled.search(text)
    if found is None:
        return ""
    return found[min(compiled.groups, 1) if group is None else group] or ""


def _round(value: Any, digits: int = 0) -> Any:
    if isinstance(value, float):
        if not math.isfinite(value) or digits > 300:
            return value
        scaled = abs(value) * 10.0**digits if digits >= 0 else abs(value) / 10.0**-digits
        if not math.isfinite(scaled):
            return value
        whole = math.floor(scaled)
        whole += scaled - whole >= 0.5
        return math.copysign(whole / 10.0**digits if digits >= 0 else whole * 10.0**-digits, value)
    unit = Decimal(1).scaleb(-digits)
    rounded = WIDE_CONTEXT.multiply(
        WIDE_CONTEXT.divide(Decimal(value), unit).quantize(Decimal(1), ROUND_HALF_UP, WIDE_CONTEXT), unit
    )
    return int(rounded) if isinstance(value, int) else rounded


def _round_whole(rounding: str) -> Callable[[Any], Any]:
    def compute(value: Any) -> Any:
        if isinstance(value, float):
            return (
                int(math.floor(value) if rounding == ROUND_FLOOR else math.ceil(value))
                if math.isfinite(value)
                else None
            )
        return value.to_integral_value(rounding) if isinstance(value, Decimal) else value

    return compute


def _compute_sign(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return value
    return type(value)((value > 0) - (value < 0))


def _power(base: float, exponent: float) -> float:
    try:
        result = math.pow(base, exponent)
    except OverflowError:
        odd = exponent % 2 == 1
        return -math.inf if base < 0 and odd else math.inf
    except ValueError:
        return math.nan if base else math.inf if not (math.copysign(1, base) < 0 and exponent % 2 == 1) else -math.inf
    return result


def _log(base: float, value: float) -> float | None:
    return None if base <= 0 or value <= 0 or base == 1 else math.log(value) / math.log(base)


def _truncate(unit: str, ticks: int) -> int:
    moment, unit = _to_moment(ticks), unit.casefold().removesuffix("s")
    if unit == "week":
        day = moment - datetime.timedelta(days=moment.weekday())
        return _to_ticks(datetime.datetime(day.year, day.month, day.day))
    if unit in UNITS:
        return ticks // UNITS[unit] * UNITS[unit]
    month = {"month": moment.month, "quarter": (moment.month - 1) // 3 * 3 + 1, "year": 1}[unit]
    return _to_ticks(datetime.datetime(moment.year, month, 1))


def _extract(part: str, ticks: int) -> Any:
    moment = _to_moment(ticks)
    return {
        "year": moment.year,
        "quarter": (moment.month + 2) // 3,
        "month": moment.month,
        "week": moment.isocalendar().week,
        "day": moment.day,
        "doy": moment.timetuple().tm_yday,
        "dayofweek": moment.isoweekday() % 7 + 1,
        "isodow": moment.isoweekday(),
        "hour": moment.hour,
        "minute": moment.minute,
        "second": moment.second,
        "millisecond": moment.second * 1000 + moment.microsecond // 1000,
        "epoch": ticks / 1e6,
    }[part.casefold()]


_JAVA = {
    "yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S", "SSSSSS": "%f", "EEE": "%a",
}  # fmt: skip


def _format_java(ticks: int, pattern: str) -> str:
    moment, letters = _to_moment(ticks), "|".join(sorted(_JAVA, key=len, reverse=True))
    return re.sub(letters, lambda word: moment.strftime(_JAVA[word[0]]), pattern)


def _format_postgres(ticks: int, pattern: str) -> str:
    known = {"YYYY": "%Y", "MM": "%m", "DD": "%d", "HH24": "%H", "MI": "%M", "SS": "%S"}
    return re.sub("|".join(known), lambda word: _to_moment(ticks).strftime(known[word[0]]), pattern)


def _add_months(moment: datetime.datetime, months: int) -> datetime.datetime:
    years, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    day = min(moment.day, calendar.monthrange(years, month + 1)[1])
    return moment.replace(year=years, month=month + 1, day=day)


def _count_between(unit: str, start: int, end: int) -> int:
    unit = unit.casefold().removesuffix("s")
    if unit in UNITS or unit == "week":
        size = UNITS.get(unit, 7 * DAY)
        return (end - start) // size if end >= start else -((start - end) // size)
    first, last, sign = (_to_moment(start), _to_moment(end), 1)
    months = 0
    if first <= last:
        while _add_months(first, months + 1) <= last:
            months += 1
    else:
        sign = -1
        while _add_months(first, -months - 1) >= last:
            months += 1
    return sign * (months // {"month": 1, "quarter": 3, "year": 12}[unit])


def _find_json(text: str, path: str) -> Any:
    try:
        value: Any = json.loads(text)
    except ValueError:
        return None
    for name, place in re.findall(r"\.(\w+)|\[(\d+)\]", path):
        try:
            value = value[name] if name else value[int(place)]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _write_json(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _get_scalar(text: str, path: str) -> str | None:
    value = _find_json(text, path)
    return None if isinstance(value, (dict, list)) else _write_json(value)


def _guard(function: Callable[[float], float], fallback: float | None = math.nan) -> Callable[[float], float | None]:
    """A function of the math module; `fallback` where it has no value."""

    def compute(value: float) -> float | None:
        try:
            return function(value)
        except ValueError:
            return fallback
        except OverflowError:
            return math.inf

    return compute


def _guard_log(function: Callable[[float], float]) -> Callable[[float], float | None]:
    return lambda value: None if value <= 0 else function(value)


ROW_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "concat": lambda *texts: "".join(texts),
    "lower": str.lower,
    "upper": str.upper,
    "trim": lambda text, chars=" ": text.strip(chars) if chars else text,
    "ltrim": lambda text, chars=" ": text.lstrip(chars) if chars else text,
    "rtrim": lambda text, chars=" ": text.rstrip(chars) if chars else text,
    "substring": _substring,
    "left": lambda text, n: text[: max(n, 0)],
    "right": lambda text, n: text[max(len(text) - max(n, 0), 0) :],
    "length": len,
    "strpos": lambda text, part: text.find(part) + 1,
    "replace": lambda text, part, other: text.replace(part, other) if part else text,
    "split_part": _split_part,
    "starts_with": lambda text, part: text[: len(part)] == part,
    "ends_with": lambda text, part: not part or text[-len(part) :] == part,
    "contains": lambda text, part: part in text,
    "regexp_like": lambda text, pattern: re.search(pattern, text) is not None,
    "regexp_extract": _regexp_extract,
    "regexp_replace": lambda text, pattern, other: re.sub(pattern, other, text),
    "lpad": lambda text, width, fill=" ": _pad(text, width, fill, left=True),
    "rpad": lambda text, width, fill=" ": _pad(text, width, fill, left=False),
    "reverse": lambda text: text[::-1],
    "repeat": lambda text, count: text * count,
    "sign": _compute_sign,
    "round": _round,
    "floor": _round_whole(ROUND_FLOOR),
    "ceil": _round_whole(ROUND_CEILING),
    "sqrt": _guard(math.sqrt),
    "power": _power,
    "exp": _guard(math.exp),
    "ln": _guard_log(math.log),
    "log10": _guard_log(math.log10),
    "log2": _guard_log(math.log2),
    "log": lambda *args: _guard_log(math.log)(*args) if len(args) == 1 else _log(*args),
    "sin": _guard(math.sin),
    "cos": _guard(math.cos),
    "tan": _guard(math.tan),
    "asin": _guard(math.asin),
    "acos": _guard(math.acos),
    "atan": math.atan,
    "atan2": math.atan2,
    "degrees": lambda value: value * (180.0 / math.pi),
    "radians": lambda value: value * (math.pi / 180.0),
    "date_trunc": _truncate,
    "date_part": _extract,
    "date_format": _format_java,
    "to_char": _format_postgres,
    "strftime": lambda ticks, pattern: _to_moment(ticks).strftime(pattern),
    "unix_timestamp": lambda ticks: ticks // 10**6,
    "unix_millis": lambda ticks: ticks // 10**3,
    "unix_micros": lambda ticks: ticks,
    "timestamp_seconds": lambda count: count * 10**6,
    "timestamp_millis": lambda count: count * 10**3,
    "timestamp_micros": lambda count: count,
    "json_value": _get_scalar,
    "get_json_object": lambda text, path: _write_json(_find_json(text, path)),
    "md5": lambda text: hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(),
    "sha1": lambda text: hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(),
    "sha256": lambda text: hashlib.sha256(text.encode()).hexdigest(),
    "crc32": lambda text: zlib.crc32(text.encode()),
    **{
        name: lambda ticks, part=part: _extract(part, ticks)
        for name, part in {
            "year": "year", "quarter": "quarter", "month": "month", "week": "week", "day": "day", "dayofyear": "doy",
            "dayofweek": "dayofweek", "hour": "hour", "minute": "minute", "second": "second",
        }.items()
    },
}  # fmt: skip
"""By the name of the function: its value for arguments that are not NULL."""


def _compile_difference(call: Call) -> Callable[..., Any]:
    return _count_between if len(call.args) == 3 else lambda end, start: end - start


def _compile_to_timestamp(call: Call) -> Callable[..., Any] | None:
    given = call.args[0].type
    if pt.is_integer(given) or pt.is_decimal(given):
        return lambda seconds: int(Fraction(seconds) * 10**6)
    if pt.is_floating(given):
        return lambda seconds: int(seconds * 1e6) if math.isfinite(seconds) else None
    return None


def _compile_move(call: Call, move: Callable[[datetime.datetime, int], datetime.datetime]) -> Callable[..., Any]:
    size = DAY if pt.is_date(call.type) else 1

    def compute(ticks: int, amount: int) -> int:
        return _to_ticks(move(_to_moment(ticks * size), amount)) // size

    return compute


def _add_days(moment: datetime.datetime, days: int) -> datetime.datetime:
    return moment + datetime.timedelta(days=days)


def _get_element(values: list[Any], place: int) -> Any:
    """From 1, or from the end if the place is negative."""
    if place == 0 or abs(place) > len(values):
        return None
    return values[place - 1] if place > 0 else values[place]


def _compile_element(call: Call) -> Callable[..., Any]:
    if pt.is_map(call.args[0].type):
        return lambda pairs, key: dict(pairs).get(key)
    if call.op == "element_at":
        return _get_element
    return lambda values, place: values[place] if 0 <= place < len(values) else None


def _contains(values: list[Any], sought: Any) -> bool | None:
    if any(value == sought or repr(value) == repr(sought) == "nan" for value in values if value is not None):
        return True
    return None if None in values else False


TYPED_ROW_FUNCTIONS: dict[str, Callable[[Call], Callable[..., Any] | None]] = {
    "datediff": _compile_difference,
    "element_at": _compile_element,
    "subscript": _compile_element,
    "field": lambda _call: lambda struct, name: struct[name],
    "cardinality": lambda _call: len,
    "array_contains": lambda _call: _contains,
    "map_keys": lambda _call: lambda pairs: [key for key, _ in pairs],
    "map_values": lambda _call: lambda pairs: [value for _, value in pairs],
    "to_timestamp": _compile_to_timestamp,
    "to_date": lambda call: (lambda ticks: ticks // DAY) if pt.is_timestamp(call.args[0].type) else None,
    "date_add": lambda call: _compile_move(call, _add_days),
    "date_sub": lambda call: _compile_move(call, lambda moment, days: _add_days(moment, -days)),
    "add_months": lambda call: _compile_move(call, _add_months),
}
"""By the name of a function whose meaning depends on the types of the call."""
