"""The lab of Nexmark: every query on the embedded engine, in events per second, and its answer compared with DuckDB.

A query gets all three streams, in pushes by time, whether it reads them or not, as in the benchmark. An answer is right
if its rows are DuckDB's over the whole streams, as a multiset: all rows that entered it, the rows that it has at the
end, or, for windows of time, the rows that each window has when it ends.
"""

from __future__ import annotations

from collections import Counter
from time import perf_counter
from typing import Any

import duckdb
import pyarrow as pa

from penstock.engine import Engine
from penstock.lab.nexmark.events import SCHEMAS, NexmarkEvents
from penstock.lab.nexmark.queries import MISSING, QUERIES, NexmarkQuery
from penstock.lab.report import Report, Section, check_at_least, check_equals
from penstock.progress import show_progress

QUICK = NexmarkEvents(20_000)
FULL = NexmarkEvents(200_000, rate=5_000)
WARM = NexmarkEvents(2_000)  # compiles the kernels
PUSH = 2_000  # events
_DIGITS = 12  # of doubles that are compared; sums are rounded differently

Rows = Counter[tuple[Any, ...]]


def make_side_input() -> pa.Table:
    """The static table of q13."""
    return pa.table({"key": range(10_000), "value": [f"value-{key}" for key in range(10_000)]})


def run_query(query: NexmarkQuery, events: NexmarkEvents, push: int = PUSH) -> tuple[Rows, float]:
    """The answer of a query on the embedded engine, and the seconds that the pushes took."""
    engine = Engine(warn=False)
    for name, schema in SCHEMAS.items():
        engine.stream(name, schema, time="dateTime")
    engine.table("side_input", make_side_input())
    text = f"DSTREAM ({query.text})" if query.answer == "windows" else query.text
    engine.query("q", f"{query.text} EMIT CHANGES" if query.answer == "answer" else text)
    pushes = list(events.make_pushes(push))
    start = perf_counter()
    parts = [engine.push(each)["q"] for each in pushes]
    parts.append(engine.flush()["q"])
    seconds = perf_counter() - start
    return _read_answer(query, pa.concat_tables(parts)), seconds


def _read_answer(query: NexmarkQuery, results: pa.Table) -> Rows:
    if query.answer == "windows":
        ends = _find_window_end(results)
        results = results.filter(pa.array(results.column("_ts").to_numpy() == results.column(ends).to_numpy()))
    names = [name for name in results.column_names if name not in ("_ts", "_op")]
    rows = _to_rows(results.select(names))
    if query.answer != "answer":
        return Counter(rows)
    answer: Rows = Counter()
    for row, operation in zip(rows, results.column("_op").to_pylist(), strict=True):
        answer[row] += 1 if operation == "+" else -1
    return +answer


def _find_window_end(results: pa.Table) -> str:
    return next(name for name in ("window_end", "endtime") if name in results.column_names)


def _to_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [
        [None if value is None else float(f"{value:.{_DIGITS}g}") for value in column.to_pylist()]
        if pa.types.is_floating(column.type)
        else column.to_pylist()
        for column in table.columns
    ]
    return list(zip(*columns, strict=True))


def ask_duckdb(query: NexmarkQuery, tables: dict[str, pa.Table]) -> Rows:
    """The answer of DuckDB over the whole streams."""
    with duckdb.connect() as database:
        for name, table in {**tables, "side_input": make_side_input()}.items():
            database.register(name, table)
        return Counter(_to_rows(database.sql(query.duckdb or query.text).to_arrow_table()))


def run(quick: bool) -> Report:
    """Run every query. Its checks say how many rows differ from DuckDB's, and whether it keeps up with the events."""
    events = QUICK if quick else FULL
    tables = events.make_tables()
    report, rows = Report("nexmark", quick), []
    with show_progress("lab nexmark", len(QUERIES)) as step:
        for query in QUERIES:
            step(f"{query.name}: {query.title}")
            run_query(query, WARM)
            answer, seconds = run_query(query, events)
            expected = ask_duckdb(query, tables)
            different = ((answer - expected) + (expected - answer)).total()
            rows.append({
                "query": query.name, "title": query.title, "events_s": events.count / seconds, "rows": answer.total()
            })  # fmt: skip
            report.checks += [
                check_equals(f"{query.name}_differences", different, 0, "rows"),
                check_at_least(f"{query.name}_events_s", events.count / seconds, events.rate, "events/s"),
            ]
    report.sections.append(Section("queries", f"{events.count:,} events on the embedded engine", rows))
    report.notes += [f"{query.name}: {query.note}" for query in QUERIES if query.note]
    report.notes += [f"{name} is not there: it needs {what}" for name, what in MISSING.items()]
    return report
