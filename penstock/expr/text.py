"""Text from values and values from text, in ISO forms. Blanks around a text are ignored; other texts become NULL.

Law: the meaning of a text does not depend on other rows. Arrow parses a column only if every text has a form on which
Arrow and the parser in this module agree; otherwise the parser in this module reads each distinct text once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.expr.convert import int_range, map_distinct, round_to_decimal, timestamp_to_timestamp
from penstock.expr.nodes import INT, STRING, TIMESTAMP

EPOCH = datetime(1970, 1, 1)
BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
NON_FINITE = re.compile(r"[+-]?(inf|infinity|nan)", re.IGNORECASE)


def float_to_string(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return map_distinct(values, str, kind)


def decimal_to_string(values: pa.Array, kind: pa.DataType) -> pa.Array:
    text = pc.cast(values, kind)
    if not pc.any(pc.match_substring(text, "E")).as_py():
        return text
    return map_distinct(values, "{:f}".format, kind)


def timestamp_to_string(values: pa.Array, kind: pa.DataType) -> pa.Array:
    local = pc.local_timestamp(values) if values.type.tz is not None else values
    return pc.replace_substring_regex(pc.cast(local, kind), r"\.0+$", "")


def string_to_bool(text: pa.Array, _kind: pa.DataType) -> pa.Array:
    truth = pa.array(list(BOOLEANS.values()))
    return truth.take(pc.index_in(_strip(text, lower=True), value_set=pa.array(list(BOOLEANS))))


def _strip(text: pa.Array, lower: bool = False) -> pa.Array:
    text = pc.utf8_trim_whitespace(text.cast(STRING))
    return pc.utf8_lower(text) if lower else text


def _parse_column(text: pa.Array, kind: pa.DataType, plain: str, parse: Callable[[str], Any]) -> pa.Array:
    """Text as `kind`: parsed by Arrow if every text matches `plain`, where Arrow and `parse` agree, else by `parse`."""
    if pc.all(pc.match_substring_regex(text, f"^(?:{plain})$")).as_py() is not False:
        with suppress(pa.ArrowInvalid):
            return pc.cast(text, kind)
    return map_distinct(text, parse, kind)


def string_to_int(text: pa.Array, kind: pa.DataType) -> pa.Array:
    low, high = int_range(kind)

    def parse(word: str) -> int | None:
        if not re.fullmatch(r"[+-]?[0-9]{1,4000}", word):
            return None
        return number if low <= (number := int(word)) <= high else None

    return _parse_column(_strip(text), kind, r"-?[0-9]+", parse)


def string_to_float(text: pa.Array, kind: pa.DataType) -> pa.Array:
    def parse(word: str) -> float | None:
        return float(word) if NUMBER.fullmatch(word) or NON_FINITE.fullmatch(word) else None

    return _parse_column(_strip(text), kind, r"-?[0-9]{1,30}(\.[0-9]{1,30})?", parse)


def string_to_decimal(text: pa.Array, kind: pa.DataType) -> pa.Array:
    def parse(word: str) -> Decimal | None:
        return round_to_decimal(Decimal(word), kind) if NUMBER.fullmatch(word) else None

    plain = rf"-?[0-9]{{1,{kind.precision - kind.scale}}}" if kind.precision > kind.scale > 0 else "-?0"
    return _parse_column(_strip(text), kind, rf"{plain}(\.[0-9]{{1,{kind.scale or 1}}})?", parse)


def string_to_date(text: pa.Array, kind: pa.DataType) -> pa.Array:
    def parse(word: str) -> date | None:
        with suppress(ValueError):
            return date.fromisoformat(word)
        return None

    return _parse_column(_strip(text), kind, r"[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}", parse)


def string_to_timestamp(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """ISO date and time. A type without a zone ignores offsets; with a zone, text without an offset is local time."""
    text = _strip(text)
    seconds = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"

    def wall(word: str) -> int | None:
        moment = _parse_datetime(word)
        if moment is None or (moment.tzinfo is not None and kind.tz is not None):
            return None
        return (moment.replace(tzinfo=None) - EPOCH) // timedelta(microseconds=1)

    def instant(word: str) -> int | None:
        moment = _parse_datetime(word)
        offset = moment.utcoffset() if moment is not None else None
        if moment is None or offset is None:
            return None
        return (moment.replace(tzinfo=None) - EPOCH - offset) // timedelta(microseconds=1)

    local = _parse_column(text, TIMESTAMP, rf"[1-9][0-9]{{3}}-[0-9]{{2}}-[0-9]{{2}}([ T]{seconds})?", wall)
    result = timestamp_to_timestamp(local, kind)
    if kind.tz is None or result.null_count == text.null_count:
        return result
    zoned = map_distinct(text, instant, INT).view(pa.timestamp("us", kind.tz))
    return pc.coalesce(result, timestamp_to_timestamp(zoned, kind))


def _parse_datetime(word: str) -> datetime | None:
    with suppress(ValueError):
        return datetime.fromisoformat(word)
    return None
