"""Answers of the queries of Nexmark as multisets of rows: from the results of an engine, and from DuckDB."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import pyarrow as pa

from penstock.lab.database import list_rounded_rows
from penstock.lab.nexmark.queries import NexmarkQuery

_DIGITS = 12  # of doubles that are compared; sums are rounded differently

Rows = Counter[tuple[Any, ...]]


def make_side_input() -> pa.Table:
    """The static table of q13."""
    return pa.table({"key": range(10_000), "value": [f"value-{key}" for key in range(10_000)]})


def write_text(query: NexmarkQuery) -> str:
    """The text of a query that reports what its answer is read from."""
    if query.answer == "windows":
        return f"DSTREAM ({query.text})"
    return f"{query.text} EMIT CHANGES" if query.answer == "answer" else query.text


def read_answer(query: NexmarkQuery, results: pa.Table) -> Rows:
    """The answer of a query from all of its results."""
    if query.answer == "windows":
        ends = next(name for name in ("window_end", "endtime") if name in results.column_names)
        results = results.filter(pa.array(results.column("_ts").to_numpy() == results.column(ends).to_numpy()))
    names = [name for name in results.column_names if name not in ("_ts", "_op")]
    rows = list_rounded_rows(results.select(names), _DIGITS)
    if query.answer != "answer":
        return Counter(rows)
    answer: Rows = Counter()
    for row, operation in zip(rows, results.column("_op").to_pylist(), strict=True):
        answer[row] += 1 if operation == "+" else -1
    return +answer


def ask_duckdb(query: NexmarkQuery, tables: dict[str, pa.Table]) -> Rows:
    """The answer of DuckDB over the whole streams."""
    with duckdb.connect() as database:
        for name, table in {**tables, "side_input": make_side_input()}.items():
            database.register(name, table)
        return Counter(list_rounded_rows(database.sql(query.duckdb or query.text).to_arrow_table(), _DIGITS))


def count_differences(one: Rows, other: Rows) -> int:
    """How many rows only one of two answers has."""
    return ((one - other) + (other - one)).total()
