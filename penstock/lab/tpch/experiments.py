"""The lab of TPC-H: every query on the embedded engine, its answer compared with DuckDB at the end and in between.

A query gets the rows of all eight streams by time, whether it reads them or not. The changes that it emits up to an
instant make its answer there, which is right if it equals DuckDB's over the rows up to this instant, as a multiset. One
difference is defined: an aggregate without GROUP BY has no row before its first tuple, and one row in DuckDB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine import Engine
from penstock.lab.database import list_rounded_rows
from penstock.lab.report import Report, Section, check_equals
from penstock.lab.tpch.queries import QUERIES, REMOVED, TpchQuery
from penstock.lab.tpch.rows import SCHEMAS, TpchRows
from penstock.progress import show_progress

QUICK = TpchRows(600)
FULL = TpchRows(6_000)
WARM = TpchRows(40)  # compiles the kernels
PUSHES = 20
_DIGITS = 9  # of doubles that are compared; quotients are rounded differently
_SHARES = (0.25, 0.6)  # of all rows, at which answers in between are compared

Rows = Counter[tuple[Any, ...]]


def choose_instants(rows: TpchRows) -> list[int]:
    """Instants at which answers are compared, in microseconds; the last is that of the last row."""
    times = sorted(
        time for table in rows.make_tables().values() for time in table.column("ts").cast("int64").to_pylist()
    )
    return [*(times[int(share * len(times))] for share in _SHARES), times[-1]]


def run_query(query: TpchQuery, rows: TpchRows, pushes: int = PUSHES) -> tuple[pa.Table, float]:
    """The changes of a query's answer on the embedded engine, and the seconds that the pushes took."""
    engine = Engine(warn=False)
    for name, schema in SCHEMAS.items():
        engine.stream(name, schema, time="ts")
    for name, text in query.views.items():
        engine.view(name, text)
    engine.query("q", f"{query.text}\nEMIT CHANGES")
    parts = list(rows.make_pushes(pushes))
    start = perf_counter()
    results = [engine.push(each)["q"] for each in parts]
    results.append(engine.flush()["q"])
    return pa.concat_tables(results), perf_counter() - start


def read_answer(changes: pa.Table, instant: int) -> Rows:
    """The answer at an instant: the rows that entered it and have not left it."""
    known = changes.filter(pc.less_equal(changes.column("_ts").cast("int64"), instant))
    answer: Rows = Counter()
    rows = list_rounded_rows(known.drop(["_op", "_ts"]), _DIGITS)
    for row, operation in zip(rows, known.column("_op").to_pylist(), strict=True):
        answer[row] += 1 if operation == "+" else -1
    if any(count < 0 for count in answer.values()):
        raise AssertionError("a row left an answer that did not have it")
    return +answer


def ask_duckdb(query: TpchQuery, tables: dict[str, pa.Table], instant: int, schema: pa.Schema) -> Rows:
    """The answer of DuckDB over the rows up to an instant, in the types of a schema."""
    with duckdb.connect() as database:
        for name, table in tables.items():
            database.register(name, table.filter(pc.less_equal(table.column("ts").cast("int64"), instant)))
        for name, text in query.views.items():
            database.execute(f"CREATE TEMP VIEW {name} AS {text}")
        answer = database.sql(query.text).to_arrow_table()
    kinds = schema.types[: answer.num_columns]
    columns = [column.cast(kind) for column, kind in zip(answer.columns, kinds, strict=True)]
    rows = Counter(list_rounded_rows(pa.table(columns, answer.column_names), _DIGITS))
    return Counter() if query.one_row and list(rows) == [(None,)] else rows


def count_differences(
    query: TpchQuery, changes: pa.Table, tables: dict[str, pa.Table], instants: Sequence[int]
) -> tuple[int, int]:
    """The rows by which the answers at some instants differ from DuckDB's, and the rows of the last answer."""
    different = 0
    expected: Rows = Counter()
    for instant in instants:
        answer, expected = read_answer(changes, instant), ask_duckdb(query, tables, instant, changes.schema)
        different += ((answer - expected) + (expected - answer)).total()
    return different, expected.total()


def run(quick: bool) -> Report:
    """Run every query. Its checks say how many rows differ from DuckDB's."""
    rows = QUICK if quick else FULL
    tables, instants = rows.make_tables(), choose_instants(rows)
    total = sum(table.num_rows for table in tables.values())
    report, lines = Report("tpch", quick), []
    with show_progress("lab tpch", len(QUERIES)) as step:
        for query in QUERIES:
            step(f"{query.name}: {query.title}")
            run_query(query, WARM)
            changes, seconds = run_query(query, rows)
            different, found = count_differences(query, changes, tables, instants)
            lines.append({
                "query": query.name, "title": query.title, "rows_s": total / seconds, "changes": changes.num_rows,
                "rows": found,
            })  # fmt: skip
            report.checks.append(check_equals(f"{query.name}_differences", different, 0, "rows"))
    title = f"{total:,} rows on the embedded engine, answers compared at {len(instants)} instants"
    report.sections.append(Section("queries", title, lines))
    report.notes += [REMOVED, *(f"{query.name}: {query.note}" for query in QUERIES if query.note)]
    return report
