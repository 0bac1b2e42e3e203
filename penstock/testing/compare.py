"""Compares tables as multisets of rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa

from penstock.testing.row_evaluator import to_identity, to_plain

MAX_SHOWN_ROWS = 5


def difference(actual: pa.Table, wanted: pa.Table) -> str | None:
    """The rows that are missing from `actual` and the unexpected ones, or None if both tables have the same rows.

    Duplicates count, the order does not; NULL equals NULL, NaN equals NaN, and floats must be equal exactly.

    >>> print(difference(pa.table({"x": [1, 1]}), pa.table({"x": [1, 2]})))
    2 rows, 2 expected; 1 missing, 1 unexpected
      missing:    x=2
      unexpected: x=1
    """
    if not actual.schema.equals(wanted.schema):
        return f"the columns differ:\n  actual:   {_format_columns(actual)}\n  expected: {_format_columns(wanted)}"
    have, want = _count_rows(actual), _count_rows(wanted)
    missing, unexpected = want - have, have - want
    if not missing and not unexpected:
        return None
    lines = [
        f"{actual.num_rows} rows, {wanted.num_rows} expected; "
        f"{missing.total()} missing, {unexpected.total()} unexpected"
    ]
    for title, rows, table in (("missing:   ", missing, wanted), ("unexpected:", unexpected, actual)):
        lines += [f"  {title} {row}" for row in _format_first_rows(rows, table)]
        if rows.total() > MAX_SHOWN_ROWS:
            lines.append(f"  {title} ... and {rows.total() - MAX_SHOWN_ROWS} more")
    return "\n".join(lines)


def same_rows(actual: pa.Table, wanted: pa.Table) -> None:
    """Raise an AssertionError with the `difference`, if there is one."""
    found = difference(actual, wanted)
    if found is not None:
        raise AssertionError(found)


def _format_columns(table: pa.Table) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in table.schema)


def _count_rows(table: pa.Table) -> Counter[Any]:
    if not table.num_columns:
        return Counter({(): table.num_rows})
    return Counter(to_identity(row) for row in zip(*(to_plain(column) for column in table.columns), strict=True))


def _format_first_rows(rows: Counter[Any], table: pa.Table) -> list[str]:
    """The first few of `rows`, with their values in the table."""
    left, shown = Counter(rows), []
    for plain, row in zip(zip(*(to_plain(c) for c in table.columns), strict=True), table.to_pylist(), strict=True):
        name = to_identity(plain)
        if left[name] > 0:
            left[name] -= 1
            shown.append(", ".join(f"{column}={value}" for column, value in row.items()))
        if len(shown) == MAX_SHOWN_ROWS:
            break
    return shown
