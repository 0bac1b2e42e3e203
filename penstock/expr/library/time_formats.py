"""Formats of dates and times: Java's (`yyyy-MM-dd`), PostgreSQL's (`YYYY-MM-DD`) and C's (`%Y-%m-%d`).

All are read as pieces: C's directives, text between them, and `%f3` or `%f6` for the fraction of a second, which Arrow
does not write.
"""

from __future__ import annotations

import re
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import QueryError
from penstock.expr.convert import Datum, timestamp_to_timestamp, to_ticks
from penstock.expr.nodes import INT, STRING, TIMESTAMP

Pieces = tuple[str, ...]

_JAVA = {
    "yyyy": "%Y", "uuuu": "%Y", "yy": "%y", "MMMM": "%B", "MMM": "%b", "MM": "%m", "dd": "%d", "DDD": "%j",
    "HH": "%H", "hh": "%I", "mm": "%M", "ss": "%S", "SSS": "%f3", "SSSSSS": "%f6", "a": "%p", "EEEE": "%A",
    "EEE": "%a", "E": "%a",
}  # fmt: skip
_POSTGRES = {
    "YYYY": "%Y", "YY": "%y", "MONTH": "%B", "MON": "%b", "MM": "%m", "DDD": "%j", "DD": "%d", "HH24": "%H",
    "HH12": "%I", "HH": "%I", "MI": "%M", "SS": "%S", "MS": "%f3", "US": "%f6", "AM": "%p", "PM": "%p", "DAY": "%A",
    "DY": "%a",
}  # fmt: skip
_DIRECTIVES = frozenset("YymdHIMSpjABab")


@lru_cache(maxsize=256)
def read_java(pattern: str) -> Pieces:
    """The pieces of a pattern as in Spark's DATE_FORMAT."""
    pieces = []
    for match in re.finditer(r"'([^']*)'|([A-Za-z])\2*|[^A-Za-z']+|'", pattern):
        word = match[0]
        if match[1] is not None:
            pieces.append(match[1] or "'")
        elif match[2] is None:
            pieces.append(word)
        elif word in _JAVA:
            pieces.append(_JAVA[word])
        else:
            raise _make_error(pattern, word, _JAVA)
    return tuple(pieces)


@lru_cache(maxsize=256)
def read_postgres(pattern: str) -> Pieces:
    """The pieces of a pattern as in PostgreSQL's TO_CHAR, in upper or lower case."""
    words = "|".join(sorted(_POSTGRES, key=len, reverse=True))
    pieces = []
    for match in re.finditer(rf'(?i:({words}))|"([^"]*)"|([A-Za-z]+)|([^A-Za-z"]+)', pattern):
        if match[1]:
            pieces.append(_POSTGRES[match[1].upper()])
        elif match[3]:
            raise _make_error(pattern, match[3], _POSTGRES)
        else:
            pieces.append(match[2] or match[4] or "")
    return tuple(pieces)


@lru_cache(maxsize=256)
def read_percent(pattern: str) -> Pieces:
    """The pieces of a pattern with the directives of C."""
    pieces = []
    for match in re.finditer(r"%(.)|[^%]+|%", pattern, re.DOTALL):
        letter = match[1]
        if letter == "f":
            pieces.append("%f6")
        elif letter is None or letter == "%":
            pieces.append(match[0] if letter is None else "%")
        elif letter in _DIRECTIVES:
            pieces.append(match[0])
        else:
            raise _make_error(pattern, match[0], [f"%{each}" for each in sorted(_DIRECTIVES)])
    return tuple(pieces)


def _make_error(pattern: str, word: str, known: object) -> QueryError:
    listed = ", ".join(map(str, known))  # type: ignore[call-overload]
    message = f"unknown {word} in the time format {pattern!r}; known are {listed}. Write other letters in quotes"
    return QueryError("BAD_TIME_FORMAT", message, format=pattern)


def _is_directive(piece: str) -> bool:
    return len(piece) > 1 and piece.startswith("%")


def format_times(values: Datum, pieces: Pieces) -> pa.Array:
    """The times as text."""
    local = timestamp_to_timestamp(values, TIMESTAMP)
    seconds = pc.floor_temporal(local, unit="second").cast(pa.timestamp("s"))
    columns = [_format_piece(piece, local, seconds) if _is_directive(piece) else pa.scalar(piece) for piece in pieces]
    columns.append(pc.if_else(local.is_valid(), "", pa.scalar(None, STRING)))
    return pc.binary_join_element_wise(*columns, pa.scalar(""))


def _format_piece(piece: str, local: pa.Array, seconds: pa.Array) -> pa.Array:
    if not piece.startswith("%f"):
        return pc.strftime(seconds, format=piece)
    digits = int(piece[2:])
    ticks = to_ticks(local, "us")
    fraction = pc.subtract(ticks, pc.multiply(pc.cast(seconds.view(INT), INT), 1_000_000))
    return pc.utf8_lpad(pc.cast(pc.divide(fraction, 10 ** (6 - digits)), STRING), digits, "0")


def parse_times(values: Datum, pieces: Pieces) -> pa.Array:
    """Texts as timestamps; NULL for a text of another form."""
    if any(piece.startswith("%f") for piece in pieces):
        message = "a format with a fraction of a second can be written but not read; read the text without a format"
        raise QueryError("BAD_TIME_FORMAT", message)
    pattern = "".join(piece if _is_directive(piece) else piece.replace("%", "%%") for piece in pieces)
    return pc.strptime(values, format=pattern, unit="us", error_is_null=True).cast(TIMESTAMP)
