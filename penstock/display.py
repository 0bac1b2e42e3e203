"""How values look on a terminal and in a notebook.

HTML has small tables without scripts, colours or outside resources, so that any theme can show them. Every text is
escaped here, so callers pass what users wrote as it is.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import islice
from typing import Any

import pyarrow as pa

MAX_ROWS = 20
"""How many rows of a table are shown."""
_MAX_NAMES = 5
_MAX_TEXT = 200
_CELL = "text-align:left"


def format_summary(title: str, names: Mapping[str, Sequence[str]]) -> str:
    """What an object has, in a line: numbers and first names by kind, such as `stream`."""
    parts = [_format_names(kind, found) for kind, found in names.items() if found]
    return f"<{title}: {', '.join(parts) or 'no streams'}>"


def _format_names(kind: str, names: Sequence[str]) -> str:
    number = len(names)
    plural = kind if number == 1 else "queries" if kind == "query" else f"{kind}s"
    shown = ", ".join(names[:_MAX_NAMES]) + (", …" if number > _MAX_NAMES else "")
    return f"{number} {plural} ({shown})"


def render_table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]], count: int) -> str:
    """A titled table of at most 20 of the `count` rows; empty if there are none."""
    if not count:
        return ""
    head = "".join(f'<th style="{_CELL}">{escape(text)}</th>' for text in headings)
    body = "".join(f"<tr>{_render_cells(row)}</tr>" for row in islice(rows, MAX_ROWS))
    more = f"<div>… {count - MAX_ROWS:,} more rows</div>" if count > MAX_ROWS else ""
    return f"<div><b>{escape(title)}</b></div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def render_rows(title: str, table: pa.Table) -> str:
    """The first rows of an Arrow table."""
    shown = table.slice(0, MAX_ROWS)
    rows = zip(*(column.to_pylist() for column in shown.columns), strict=True)
    counted = f"{title}: {table.num_rows:,} {'row' if table.num_rows == 1 else 'rows'}"
    return render_table(counted, table.column_names, rows, table.num_rows) or f"<div><b>{escape(counted)}</b></div>"


def render_block(title: str, *parts: str) -> str:
    """A heading over some parts."""
    return f"<div><div><b>{escape(title)}</b></div>{''.join(parts)}</div>"


def render_text(text: str) -> str:
    """Text with its line breaks."""
    return f"<pre>{escape(text)}</pre>"


def render_svg(svg: str, text: str) -> str:
    """A picture as an image, so that its styles do not reach the page; `text` replaces it where it cannot be shown."""
    data = b64encode(svg.encode()).decode()
    return f'<img style="max-width:100%" alt="{escape(text)}" src="data:image/svg+xml;base64,{data}"/>'


def _render_cells(row: Sequence[object]) -> str:
    return "".join(f'<td style="{_CELL}">{escape(_format_value(value))}</td>' for value in row)


def _format_value(value: object) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"


_SHOWN_ITEMS = 5
"""The first items of a long list."""


def format_rows(table: pa.Table, *, numbers: bool = False) -> dict[str, Any]:
    """A table for the page, as names of columns and rows of texts; with `numbers`, integers stay numbers."""
    rows = [
        [value if numbers and isinstance(value, int) else _format_item(value) for value in row.values()]
        for row in table.to_pylist()
    ]
    return {"columns": table.column_names, "rows": rows}


def _format_item(value: object) -> str:
    if not isinstance(value, list):
        return _format_value(value)
    more = len(value) - _SHOWN_ITEMS
    return ", ".join(map(_format_item, value[:_SHOWN_ITEMS])) + (f" and {more:,} more" if more > 0 else "")
