"""Regular expressions over columns of text: RE2, whose time is linear in the text."""

from __future__ import annotations

import re
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import QueryError
from penstock.expr.convert import Datum, null_unless

_GROUP_START = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\((?!\?)|\(\?P?<(?![=!])[^>]+>", re.DOTALL)


def match_regex(values: Datum, pattern: str) -> Datum:
    _check(pattern)
    return pc.match_substring_regex(values, pattern)


def extract_match(values: Datum, pattern: str, group: int | None = None) -> Datum:
    named, count = _name_groups(pattern)
    wanted = min(count, 1) if group is None else group
    if not 0 <= wanted <= count:
        message = f"the pattern {pattern!r} has {count} group(s), not {wanted}"
        raise QueryError("BAD_PATTERN", message, pattern=pattern)
    _check(pattern)
    found = pc.struct_field(pc.extract_regex(values, named), f"g{wanted}")
    return null_unless(pc.fill_null(found, ""), values.is_valid())


def replace_matches(values: Datum, pattern: str, replacement: str) -> Datum:
    _check(pattern)
    return pc.replace_substring_regex(values, pattern, re.sub(r"\$(\d)", r"\\\1", replacement))


@lru_cache(maxsize=256)
def _name_groups(pattern: str) -> tuple[str, int]:
    """The pattern with the whole as group g0 and its groups as g1, g2 and so on; and their number."""
    count = 0

    def rename(match: re.Match[str]) -> str:
        nonlocal count
        if not match[0].startswith("("):
            return match[0]
        count += 1
        return f"(?P<g{count}>"

    return f"(?P<g0>{_GROUP_START.sub(rename, pattern)})", count


@lru_cache(maxsize=256)
def _check(pattern: str) -> None:
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        raise QueryError("BAD_PATTERN", f"{pattern!r} is not a regular expression: {error}", pattern=pattern) from None
