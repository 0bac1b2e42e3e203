"""Values inside JSON texts. A text that is not JSON, and a path that leads nowhere, give NULL."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from functools import lru_cache
from typing import Any

from penstock.expr.function import Function
from penstock.expr.nodes import STRING
from penstock.expr.parameters import take
from penstock.expr.rowwise import make_by_row

_STEP = re.compile(r"""\.(?P<name>[^.\[\]]+)|\[(?:(?P<place>\d+)|'(?P<quoted>[^']*)'|"(?P<double>[^"]*)")\]""")


def get_scalar(text: str, path: str) -> str | None:
    """The number, text or boolean at a path, as text; NULL for objects and arrays."""
    value = _find(text, path)
    return None if isinstance(value, (dict, list)) else _write(value)


def get_value(text: str, path: str) -> str | None:
    """What is at a path, as text; objects and arrays as JSON without blanks."""
    return _write(_find(text, path))


def _find(text: str, path: str) -> Any:
    steps = _parse_path(path)
    if steps is None:
        return None
    value: Any = None
    with suppress(ValueError, RecursionError):
        value = json.loads(text, parse_float=_KeptNumber, parse_int=_KeptNumber)
    for step in steps:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and step < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


class _KeptNumber(str):
    """A number as it is written."""

    __slots__ = ()


def _write(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return None if value is None else str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return _dump(value)


def _dump(value: Any) -> str:
    """JSON without blanks, in which numbers are as they were written."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{_dump(name)}:{_dump(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_dump, value)) + "]"
    return str(value) if isinstance(value, _KeptNumber) else json.dumps(value, ensure_ascii=False)


@lru_cache(maxsize=256)
def _parse_path(path: str) -> tuple[str | int, ...] | None:
    """`$.a[0].b` as its steps; None if it is not a path."""
    if not path.startswith("$"):
        return None
    steps: list[str | int] = []
    at = 1
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None:
            return None
        name = match["name"] or match["quoted"] or match["double"]
        steps.append(int(match["place"]) if name is None else name)
        at = match.end()
    return tuple(steps)


FUNCTIONS = (
    Function(
        "json_value",
        make_by_row(get_scalar),
        type_rule=take("text", result=STRING),
        mismatch="JSON_VALUE needs texts, not",
        arity=(2, 2),
        usage="JSON_VALUE(json, '$.a[0].b')",
        meaning="the number, text or boolean at a path, as text; NULL for objects and arrays",
    ),
    Function(
        "get_json_object",
        make_by_row(get_value),
        type_rule=take("text", result=STRING),
        mismatch="GET_JSON_OBJECT needs texts, not",
        arity=(2, 2),
        aliases=("json_extract_string",),
        usage="GET_JSON_OBJECT(json, '$.a[0].b')",
        meaning="what is at a path, as text; objects and arrays as JSON without blanks",
        duckdb="CASE WHEN json_valid({0}) THEN {0} ->> {1} END",
    ),
)
