"""The lab of Nexmark: every query on the embedded engine, on Spark and on PyFlink, its answer compared with DuckDB.

A query gets all three streams, in pushes by time, whether it reads them or not, as in the benchmark; on Spark, in
micro-batches of files. With `quick` all queries are one pipeline there, otherwise each is a pipeline of its own. An
answer is right if its rows are DuckDB's over the whole streams, as a multiset: all rows that entered it, the rows that
it has at the end, or, for windows of time, the rows that each window has when it ends. PyFlink is measured if
PENSTOCK_FLINK_PYTHON names an interpreter that has it (`flink_queries` says how); its answers are not compared.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

import pyarrow as pa

from penstock.engine import Engine
from penstock.errors import PenstockError
from penstock.lab.meters import create_temp_dir
from penstock.lab.nexmark.answers import Rows, ask_duckdb, count_differences, make_side_input, read_answer, write_text
from penstock.lab.nexmark.events import SCHEMAS, NexmarkEvents
from penstock.lab.nexmark.flink_runs import FLINK, run_on_flink
from penstock.lab.nexmark.queries import QUERIES, NexmarkQuery
from penstock.lab.peers.peer_engines import find_interpreters
from penstock.lab.report import Report, ReportRow, Section, check_at_least, check_equals
from penstock.progress import ProgressStep, show_progress
from penstock.spark.environment import require_spark

QUICK = NexmarkEvents(20_000)
FULL = NexmarkEvents(200_000, rate=5_000)
WARM = NexmarkEvents(2_000)  # compiles the kernels
PUSH = 2_000  # events
BATCHES = {True: 4, False: 8}
"""The micro-batches on Spark, if quick and if not."""


def run_query(query: NexmarkQuery, events: NexmarkEvents, push: int = PUSH) -> tuple[Rows, float]:
    """The answer of a query on the embedded engine, and the seconds that the pushes took."""
    engine = Engine(warn=False)
    for name, schema in SCHEMAS.items():
        engine.stream(name, schema, time="dateTime")
    engine.table("side_input", make_side_input())
    engine.query("q", write_text(query))
    pushes = list(events.make_pushes(push))
    start = perf_counter()
    parts = [engine.push(each)["q"] for each in pushes]
    parts.append(engine.flush()["q"])
    seconds = perf_counter() - start
    return read_answer(query, pa.concat_tables(parts)), seconds


def run(quick: bool) -> Report:
    """Run every query. Its checks say how many rows differ from DuckDB's, and whether it keeps up with the events."""
    events = QUICK if quick else FULL
    tables = events.make_tables()
    report = Report("nexmark", quick)
    rows: dict[str, ReportRow] = {
        query.name: {"query": query.name, "title": query.title, "rows": 0} for query in QUERIES
    }
    flink = find_interpreters((FLINK,)).get(FLINK)
    on_spark = 1 if quick else len(QUERIES)
    with show_progress("lab nexmark", len(QUERIES) + on_spark + (1 if flink else 0)) as step:
        expected: dict[str, Rows] = {}
        for query in QUERIES:
            step(f"{query.name}: {query.title}")
            expected[query.name] = ask_duckdb(query, tables)
            run_query(query, WARM)
            answer, seconds = run_query(query, events)
            rows[query.name] |= {"rows": answer.total(), "events_s": events.count / seconds}
            different = count_differences(answer, expected[query.name])
            report.checks += [
                check_equals(f"{query.name}_differences", different, 0, "rows"),
                check_at_least(f"{query.name}_events_s", events.count / seconds, events.rate, "events/s"),
            ]
        _measure_spark(report, rows, expected, events, step)
        if flink:
            step("PyFlink")
            measured, notes = run_on_flink(flink, events)
            report.notes += notes
            for name, rate in measured.items():
                rows[name]["flink_events_s"] = rate
        else:
            report.notes.append(FLINK.install_hint)
    report.sections.append(
        Section("queries", f"{events.count:,} events on the embedded engine and beside it", list(rows.values()))
    )
    report.notes += [f"{query.name}: {query.note}" for query in QUERIES if query.note]
    return report


def _measure_spark(
    report: Report, rows: dict[str, ReportRow], expected: dict[str, Rows], events: NexmarkEvents, step: ProgressStep
) -> None:
    """The same queries on Spark, if there is one: their answers, and events per second of each or of all together."""
    try:
        require_spark()
    except PenstockError as error:
        report.notes.append(f"Spark was not measured: {error}")
        return
    from penstock.lab.nexmark.spark_runs import run_on_spark, write_events  # noqa: PLC0415 (needs Spark)
    from penstock.lab.spark_runs import start_session  # noqa: PLC0415

    batches = BATCHES[report.quick]
    groups = [QUERIES] if report.quick else [(query,) for query in QUERIES]
    with create_temp_dir() as folder:
        write_events(events, Path(folder), batches)
        spark = start_session()
        for group in groups:
            step(f"Spark: {group[0].name if len(group) == 1 else 'all queries in one pipeline'}")
            answers, seconds = run_on_spark(spark, group, Path(folder), batches)
            rate = events.count / batches / seconds
            if len(group) > 1:
                row = {"queries": len(group), "events_s": rate, "events_s_and_query": rate * len(group)}
                report.sections.append(Section("spark", "One pipeline of all queries on Spark", [row]))
            for query in group:
                different = count_differences(answers[query.name], expected[query.name])
                report.checks.append(check_equals(f"{query.name}_spark_differences", different, 0, "rows"))
                if len(group) == 1:
                    rows[query.name]["spark_events_s"] = rate
