"""How results look on a terminal and in a notebook: the first rows of each table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

import pyarrow as pa

from penstock.display import MAX_ROWS, render_block, render_rows

_MAX_TERMINAL_ROWS = 10
_MAX_WIDTH = 40
"""Of a column on a terminal, in characters."""


def format_results(results: Mapping[str, pa.Table]) -> str:
    """The tables of some queries as text, with their first rows."""
    lines = [line for name in islice(results, MAX_ROWS) for line in _format_table(name, results[name])]
    more = len(results) - MAX_ROWS
    return "\n".join([*lines, *([f"… {more:,} more queries"] if more > 0 else [])]) or "no queries"


def _format_table(name: str, table: pa.Table) -> Iterator[str]:
    yield f"{name}: {table.num_rows:,} {'row' if table.num_rows == 1 else 'rows'}"
    if not table.num_rows:
        return
    shown = table.slice(0, _MAX_TERMINAL_ROWS)
    columns = [[heading, *map(_format_value, column.to_pylist())] for heading, column in _iter_columns(shown)]
    widths = [max(map(len, column)) for column in columns]
    for row in zip(*columns, strict=True):
        yield "  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
    if table.num_rows > _MAX_TERMINAL_ROWS:
        yield f"  … {table.num_rows - _MAX_TERMINAL_ROWS:,} more rows"


def _iter_columns(table: pa.Table) -> Iterator[tuple[str, pa.ChunkedArray]]:
    return zip(table.column_names, table.columns, strict=True)


def _format_value(value: object) -> str:
    text = "NULL" if value is None else str(value).replace("\n", " ")
    return text if len(text) <= _MAX_WIDTH else f"{text[: _MAX_WIDTH - 1]}…"


def render_results(results: Mapping[str, pa.Table]) -> str:
    """The tables of some queries in a notebook, with their first rows."""
    tables = [render_rows(name, results[name]) for name in islice(results, MAX_ROWS)]
    more = len(results) - MAX_ROWS
    return render_block("results", *tables, *([f"<div>… {more:,} more queries</div>"] if more > 0 else []))
