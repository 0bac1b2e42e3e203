"""Functions of text. Positions and lengths count characters (code points); patterns are regular expressions of RE2."""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from penstock.expr.convert import Datum, null_unless
from penstock.expr.function import Function, use_string
from penstock.expr.library.regular import extract_match, match_regex, replace_matches
from penstock.expr.library.text_rows import (
    extract_part,
    find_position,
    pad_left,
    pad_right,
    slice_text,
    strip_text,
)
from penstock.expr.nodes import BOOL, INT, STRING
from penstock.expr.parameters import take
from penstock.expr.rowwise import make_by_column, make_by_row, make_plain, map_rows

_TEXT = take("text", result=STRING)
MAX_TEXT = 1 << 20  # characters that LPAD, RPAD and REPEAT make at most; beyond that the result is NULL


def _concat(*args: Datum) -> Datum:
    return pc.binary_join_element_wise(*args, pa.scalar(""))


def _concat_with(separator: Datum, *args: Datum) -> Datum:
    """The arguments that are not NULL, with a separator between them; NULL if the separator is."""
    # Arrow's own join that skips NULLs loses rows that have nothing else.
    joined = reduce(lambda a, b: pc.coalesce(pc.binary_join_element_wise(a, b, separator), a, b), args)
    joined = pc.coalesce(joined, pa.scalar(""))
    return pc.if_else(pc.is_valid(separator), joined, pa.scalar(None, STRING))


def _substring(values: Datum, start: int, length: int | None = None) -> Datum:
    if start <= 0 or (length is not None and length <= 0) or start + (length or 0) > 2**31:
        parameters = [pa.scalar(each, INT) for each in (start, length) if each is not None]
        return map_rows(slice_text, (values, *parameters), STRING)
    return pc.utf8_slice_codeunits(values, start - 1, None if length is None else start - 1 + length)


def _find_substring(values: Datum, sought: str) -> Datum:
    if sought.isascii() and pc.all(pc.string_is_ascii(values), min_count=0).as_py():
        return pc.add(pc.cast(pc.find_substring(values, sought), INT), 1)
    return map_rows(find_position, (values, pa.scalar(sought)), INT)


def _replace(values: Datum, sought: str, replacement: str) -> Datum:
    return pc.replace_substring(values, sought, replacement) if sought else values


def _split_part(values: Datum, separator: str, number: int) -> Datum:
    if not separator or number <= 0 or isinstance(values, pa.Scalar):
        return map_rows(extract_part, (values, pa.scalar(separator), pa.scalar(number, INT)), STRING)
    parts = pc.split_pattern(values, separator)
    places = pc.add(parts.offsets.slice(0, len(values)).cast(INT), number - 1)
    inside = pc.less(places, parts.offsets.slice(1).cast(INT))
    found = parts.values.take(pc.if_else(inside, places, pa.scalar(None, INT)))
    return null_unless(pc.fill_null(found, ""), values.is_valid())


def _pad(values: Datum, width: int, padding: str, left: bool) -> Datum:
    row = pad_left if left else pad_right
    if len(padding) != 1 or not 0 <= width <= MAX_TEXT:
        return map_rows(row, (values, pa.scalar(width, INT), pa.scalar(padding)), STRING)
    padded = (pc.utf8_lpad if left else pc.utf8_rpad)(values, width, padding)
    return pc.utf8_slice_codeunits(padded, 0, width)


def _left(values: Datum, count: int) -> Datum:
    return pc.utf8_slice_codeunits(values, 0, min(max(count, 0), 2**31 - 1))


def _right(values: Datum, count: int) -> Datum:
    # a slice of no characters from the end would be a slice from the start
    return pc.utf8_slice_codeunits(values, -min(count, 2**31 - 1)) if count > 0 else _left(values, 0)


def _repeat_text(text: str, count: int) -> str | None:
    return text * count if len(text) * count <= MAX_TEXT else None


FUNCTIONS = (
    Function(
        "concat",
        make_plain(_concat),
        type_rule=take("printable", result=STRING),
        mismatch="CONCAT cannot write as text",
        arity=(1, None),
        null_type=use_string,
        usage="CONCAT(a, b, …), a \\|\\| b",
        meaning="the texts one after another; NULL if one is NULL, as in Spark",
        duckdb="({args:||})",
    ),
    Function(
        "concat_ws",
        make_plain(_concat_with),
        type_rule=take("printable", result=STRING),
        mismatch="CONCAT_WS cannot write as text",
        arity=(2, None),
        null_type=use_string,
        usage="CONCAT_WS(separator, a, b, …)",
        meaning="the texts that are not NULL, with the separator between them",
        duckdb="concat_ws({args})",
    ),
    Function(
        "lower",
        make_plain(pc.utf8_lower),
        type_rule=_TEXT,
        mismatch="LOWER needs a text, not",
        arity=(1, 1),
        aliases=("lcase",),
        usage="LOWER(s)",
        meaning="in lower case",
        duckdb="lower({0})",
    ),
    Function(
        "upper",
        make_plain(pc.utf8_upper),
        type_rule=_TEXT,
        mismatch="UPPER needs a text, not",
        arity=(1, 1),
        aliases=("ucase",),
        usage="UPPER(s)",
        meaning="in upper case",
        duckdb="upper({0})",
    ),
    Function(
        "trim",
        make_by_column(lambda s, chars=" ": pc.utf8_trim(s, chars), lambda s, chars: strip_text(s, chars, "both")),
        type_rule=take("text", result=STRING),
        mismatch="TRIM needs texts, not",
        arity=(1, 2),
        aliases=("btrim",),
        usage="TRIM(s), TRIM(s, characters), TRIM(BOTH characters FROM s)",
        meaning="without blanks, or those characters, at both ends",
        duckdb="trim({args})",
    ),
    Function(
        "ltrim",
        make_by_column(lambda s, chars=" ": pc.utf8_ltrim(s, chars), lambda s, chars: strip_text(s, chars, "left")),
        type_rule=take("text", result=STRING),
        mismatch="LTRIM needs texts, not",
        arity=(1, 2),
        usage="LTRIM(s), LTRIM(s, characters), TRIM(LEADING characters FROM s)",
        meaning="without blanks, or those characters, at the start",
        duckdb="ltrim({args})",
    ),
    Function(
        "rtrim",
        make_by_column(lambda s, chars=" ": pc.utf8_rtrim(s, chars), lambda s, chars: strip_text(s, chars, "right")),
        type_rule=take("text", result=STRING),
        mismatch="RTRIM needs texts, not",
        arity=(1, 2),
        usage="RTRIM(s), RTRIM(s, characters), TRIM(TRAILING characters FROM s)",
        meaning="without blanks, or those characters, at the end",
        duckdb="rtrim({args})",
    ),
    Function(
        "substring",
        make_by_column(_substring, slice_text),
        type_rule=take("text", "integer", result=STRING),
        mismatch="SUBSTRING needs a text and integers, not",
        arity=(2, 3),
        aliases=("substr", "mid"),
        usage="SUBSTRING(s, start, length), SUBSTRING(s FROM start FOR length)",
        meaning="from a character on, which is 1 for the first and -1 for the last; 0 counts as 1, as in Spark",
    ),
    Function(
        "left",
        make_by_column(_left, lambda s, n: s[: max(n, 0)]),
        type_rule=take("text", "integer", result=STRING),
        mismatch="LEFT needs a text and an integer, not",
        arity=(2, 2),
        usage="LEFT(s, n)",
        meaning="the first `n` characters",
        duckdb="left({0}, CASE WHEN {1} < 0 THEN 0 ELSE {1} END)",
    ),
    Function(
        "right",
        make_by_column(_right, lambda s, n: s[-n:] if n > 0 else ""),
        type_rule=take("text", "integer", result=STRING),
        mismatch="RIGHT needs a text and an integer, not",
        arity=(2, 2),
        usage="RIGHT(s, n)",
        meaning="the last `n` characters",
        duckdb="right({0}, CASE WHEN {1} < 0 THEN 0 ELSE {1} END)",
    ),
    Function(
        "length",
        make_plain(lambda s: pc.cast(pc.utf8_length(s), INT)),
        type_rule=take("text", result=INT),
        mismatch="LENGTH needs a text, not",
        arity=(1, 1),
        aliases=("char_length", "character_length", "len"),
        usage="LENGTH(s)",
        meaning="the number of characters",
        duckdb="length({0})",
    ),
    Function(
        "strpos",
        make_by_column(_find_substring, find_position),
        type_rule=take("text", result=INT),
        mismatch="STRPOS needs texts, not",
        arity=(2, 2),
        aliases=("instr",),
        usage="STRPOS(s, part), POSITION(part IN s)",
        meaning="where the part is for the first time, 1 at the start and 0 if it is not there",
        duckdb="strpos({0}, {1})",
    ),
    Function(
        "replace",
        make_by_column(_replace, lambda s, sought, new: s.replace(sought, new) if sought else s),
        type_rule=take("text", result=STRING),
        mismatch="REPLACE needs texts, not",
        arity=(3, 3),
        usage="REPLACE(s, part, other)",
        meaning="every occurrence of a part replaced",
        duckdb="replace({0}, {1}, {2})",
    ),
    Function(
        "split_part",
        make_by_column(_split_part, extract_part),
        type_rule=take("text", "text", "integer", result=STRING),
        mismatch="SPLIT_PART needs a text, a separator and an integer, not",
        arity=(3, 3),
        usage="SPLIT_PART(s, separator, n)",
        meaning="the `n`-th part, from the end if `n` is negative; an empty text if there is none, NULL for 0",
        duckdb="CASE WHEN {2} = 0 THEN NULL ELSE split_part({0}, {1}, {2}) END",
    ),
    Function(
        "starts_with",
        make_by_column(pc.starts_with, str.startswith),
        type_rule=take("text", result=BOOL),
        mismatch="STARTS_WITH needs texts, not",
        arity=(2, 2),
        aliases=("startswith",),
        null_type=use_string,
        usage="STARTS_WITH(s, part)",
        meaning="whether the text starts with the part",
        duckdb="starts_with({0}, {1})",
    ),
    Function(
        "ends_with",
        make_by_column(pc.ends_with, str.endswith),
        type_rule=take("text", result=BOOL),
        mismatch="ENDS_WITH needs texts, not",
        arity=(2, 2),
        aliases=("endswith",),
        null_type=use_string,
        usage="ENDS_WITH(s, part)",
        meaning="whether the text ends with the part",
        duckdb="ends_with({0}, {1})",
    ),
    Function(
        "contains",
        make_by_column(pc.match_substring, str.__contains__),
        type_rule=take("text", result=BOOL),
        mismatch="CONTAINS needs texts, not",
        arity=(2, 2),
        null_type=use_string,
        usage="CONTAINS(s, part)",
        meaning="whether the text has the part",
        duckdb="contains({0}, {1})",
    ),
    Function(
        "regexp_like",
        make_by_column(match_regex),
        type_rule=take("text", "constant", result=BOOL),
        mismatch="REGEXP_LIKE needs a text and a pattern that is a constant, not",
        arity=(2, 2),
        aliases=("rlike", "regexp", "regexp_matches"),
        null_type=use_string,
        usage="REGEXP_LIKE(s, pattern)",
        meaning="whether the pattern matches a part of the text",
        duckdb="regexp_matches({0}, {1})",
    ),
    Function(
        "regexp_extract",
        make_by_column(extract_match),
        type_rule=take("text", "constant", "integer", result=STRING),
        mismatch="REGEXP_EXTRACT needs a text, a pattern that is a constant and an integer, not",
        arity=(2, 3),
        usage="REGEXP_EXTRACT(s, pattern, group)",
        meaning=(
            "the first match of a group of the pattern, by default the first group, or the whole match if the pattern "
            "has none; an empty text without a match"
        ),
    ),
    Function(
        "regexp_replace",
        make_by_column(replace_matches),
        type_rule=take("text", "constant", result=STRING),
        mismatch="REGEXP_REPLACE needs a text and constants, not",
        arity=(3, 3),
        usage="REGEXP_REPLACE(s, pattern, other)",
        meaning="every match replaced, as in Spark; `$1` or `\\1` in the replacement is the first group",
        duckdb="regexp_replace({0}, {1}, {2}, 'g')",
    ),
    Function(
        "lpad",
        make_by_column(lambda s, n, fill=" ": _pad(s, n, fill, left=True), pad_left),
        type_rule=take("text", "integer", "text", result=STRING),
        mismatch="LPAD needs a text, an integer and a text, not",
        arity=(2, 3),
        usage="LPAD(s, n, fill)",
        meaning="filled up to `n` characters at the start, by default with blanks, or cut off",
    ),
    Function(
        "rpad",
        make_by_column(lambda s, n, fill=" ": _pad(s, n, fill, left=False), pad_right),
        type_rule=take("text", "integer", "text", result=STRING),
        mismatch="RPAD needs a text, an integer and a text, not",
        arity=(2, 3),
        usage="RPAD(s, n, fill)",
        meaning="filled up to `n` characters at the end, by default with blanks, or cut off",
    ),
    Function(
        "reverse",
        make_plain(pc.utf8_reverse),
        type_rule=_TEXT,
        mismatch="REVERSE needs a text, not",
        arity=(1, 1),
        usage="REVERSE(s)",
        meaning="the characters in reverse order",
    ),
    Function(
        "repeat",
        make_by_row(_repeat_text),
        type_rule=take("text", "integer", result=STRING),
        mismatch="REPEAT needs a text and an integer, not",
        arity=(2, 2),
        usage="REPEAT(s, n)",
        meaning="the text `n` times",
        duckdb="repeat({0}, {1})",
    ),
)
