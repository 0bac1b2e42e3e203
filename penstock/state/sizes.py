"""Numbers of bytes as people write them: "512 MB", "2 GiB", or an integer. All units are powers of 1024."""

from __future__ import annotations

import re

from penstock.errors import QueryError

_UNITS = {"": 1, "B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(|[KMGT]?i?B|[KMGT])\s*", re.IGNORECASE)


def parse_size(size: int | str) -> int:
    """A number of bytes, or a text such as "256 MB"."""
    found = _SIZE.fullmatch(str(size)) if isinstance(size, (int, str)) and not isinstance(size, bool) else None
    bytes_ = 0
    if found:
        unit = found[2].upper().replace("I", "")
        bytes_ = int(float(found[1]) * _UNITS[unit if unit in _UNITS else f"{unit}B"])
    if bytes_ < 1:
        raise QueryError("BAD_SIZE", f'a size is a number of bytes or a text such as "256 MB", not {size!r}')
    return bytes_


def format_size(size: int) -> str:
    """A number of bytes for people."""
    unit = next(unit for unit in ("TB", "GB", "MB", "KB", "B") if size >= _UNITS[unit] or unit == "B")
    return f"{size / _UNITS[unit]:.3g} {unit}" if unit != "B" else f"{size} bytes"
