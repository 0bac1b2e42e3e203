"""The demo on Spark: five streams and a dozen queries in one streaming query, changed while it runs.

A minute of event time takes about a second. In the rush hour this is too short for one of the queries. It has
FRESHNESS, so the pipeline sets a budget for it, and removes the budget afterwards. At the end the results are compared
with those of the embedded engine.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from penstock.adapt import Decision, Rules
from penstock.demo import streams
from penstock.demo.results import ResultTables, concat_results
from penstock.engine import Engine
from penstock.progress import ProgressStep, show_progress
from penstock.spark import sinks
from penstock.spark.generated import generate_stream
from penstock.spark.hashing import hash_rows
from penstock.spark.pipeline import Pipeline
from penstock.spark.run import Run
from penstock.spark.session import SHORT_RUN_SETTINGS, local_session
from penstock.state import flatten_column

MINUTES = 24
CELLS = 2
RULES = Rules(speed=60, confirm=1, cool_down=12)
"""A minute of event time takes a second. Two decisions of a kind are at least twelve windows, two minutes, apart."""
QUERIES = {
    "at_risk": "SELECT r.tag, rooms.name, t.celsius, h.percent "
    "FROM reader [RANGE 10 SECONDS] AS r, temperature [RANGE 2 SECONDS] AS t, humidity [RANGE 2 SECONDS] AS h, rooms "
    "WHERE r.room = t.room AND t.room = h.room AND h.room = rooms.room AND t.celsius > rooms.warmest "
    "AND h.percent > 88",
    "open_door": "SELECT t.room, t.celsius, p.watts "
    "FROM temperature [RANGE 3 SECONDS] AS t, power [RANGE 3 SECONDS] AS p WHERE t.room = p.room AND p.watts > 1200",
    "all_three": "SELECT t.room, t.celsius, h.percent, p.watts FROM temperature [RANGE 2 SECONDS] AS t, "
    "humidity [RANGE 2 SECONDS] AS h, power [RANGE 2 SECONDS] AS p "
    "WHERE t.room = h.room AND h.room = p.room AND h.percent > 90",
    "left_the_house": "SELECT r.tag, r.room, g.dock FROM reader [RANGE 40 SECONDS] AS r, gate [RANGE 40 SECONDS] AS g "
    "WHERE r.tag = g.tag",
    "where_it_was": "SELECT g.tag, g.dock, r.room FROM gate [NOW] AS g, reader [PARTITION BY tag ROWS 1] AS r "
    "WHERE g.tag = r.tag",
    "moved_on": "DSTREAM (SELECT tag, room AS was_in FROM reader [PARTITION BY tag ROWS 1])",
    "warm_goods": "SELECT g.tag, g.dock, t.celsius FROM gate [RANGE 30 SECONDS] AS g, reader [RANGE 30 SECONDS] AS r, "
    "temperature [RANGE 1 SECOND] AS t WHERE g.tag = r.tag AND r.room = t.room AND t.celsius > 7",
    "too_warm": "SELECT t.room, rooms.name, t.celsius FROM temperature [NOW] AS t, rooms "
    "WHERE t.room = rooms.room AND t.celsius > rooms.warmest + 2",
    "mean_power": "SELECT room, AVG(watts) AS watts FROM power [RANGE 30 SECONDS SLIDE 30 SECONDS] GROUP BY room",
    "damp_rooms": "SELECT DISTINCT room FROM humidity [RANGE 5 SECONDS] WHERE percent > 96",
    "spoiling": "SELECT r.tag, r.room, t.celsius, h.percent FROM reader [RANGE 10 SECONDS] AS r, "
    "temperature [RANGE 10 SECONDS] AS t, humidity [RANGE 10 SECONDS] AS h WHERE r.room = t.room AND t.room = h.room "
    "AND t.celsius * 10 + h.percent > 150 + r.tag * 0.05 FRESHNESS r 10 SECONDS",
    "busy_docks": "SELECT dock, COUNT(*) AS n FROM gate [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY dock",
}
ADDED_QUERY = (
    "frozen_out",
    "SELECT g.tag, g.dock, p.watts FROM gate [RANGE 5 SECONDS] AS g, reader [RANGE 20 SECONDS] AS r, "
    "power [RANGE 2 SECONDS] AS p WHERE g.tag = r.tag AND r.room = p.room AND p.watts > 1250",
)
NEW_PLAN = ("at_risk", "((t h) r rooms)")


def run_spark_demo(console: Console, out: Path, page: int | None = None) -> bool:
    """Run the demo. Returns False if the results differ from those of the embedded engine.

    `page` is the port of a page, which stays until Ctrl-C; None without a page.
    """
    begun = time.perf_counter()
    console.print(
        Panel(
            f"A depot with {streams.ROOMS} rooms and {streams.TAGS} tagged goods: five streams, a table, "
            f"{len(QUERIES)} queries in one streaming query of Spark on {CELLS} cells; results are written to {out}.",
            title="penstock demo",
            title_align="left",
        )
    )
    pipe = _build_pipeline(out)
    console.print(f"Spark {pipe.spark.version} started in {time.perf_counter() - begun:.0f} s.", style="dim")
    run = pipe.start(out / "checkpoint", cells=CELLS, adapt=RULES)
    server = None if page is None else run.serve(page)
    if server is not None:
        console.print(f"page: {server.url}", highlight=False, soft_wrap=True)
    try:
        with show_progress("minutes of the depot", MINUTES, console, lines=False) as step:
            _drive_run(run, console, step)
        metrics = run.metrics()
    finally:
        run.stop()
    correct = _print_results(console, out, metrics)
    console.print(f"\n{time.perf_counter() - begun:.0f} s. See README.md and docs/spark.md.", style="dim")
    if server is not None:
        console.print("The page stays open; end it with Ctrl-C.")
        server.wait()
    return correct


def _build_pipeline(out: Path) -> Pipeline:
    pipe = Pipeline(local_session(settings=SHORT_RUN_SETTINGS, log=out / "spark.log"))
    for name in streams.STREAMS:
        rows = generate_stream(pipe.spark, streams.build_generator(name), MINUTES)
        pipe.stream(name, rows, "ts", schema=streams.build_schema(name), packed=True)
    pipe.table("rooms", streams.build_rooms())
    for name, text in QUERIES.items():
        pipe.query(name, text, sink=sinks.parquet(str(out / name)))
    return pipe


class DemoPrinter:
    """A listener that prints the micro-batches and the decisions of the pipeline."""

    def __init__(self, run: Run, console: Console, step: ProgressStep) -> None:
        self._run = run
        self._console = console
        self._step = step
        self._shown_decisions = 0
        self._last_time = time.perf_counter()
        self.minutes = 0
        self.batch_shown = threading.Event()

    def __call__(self, batch: int, cells: Mapping[int, Any]) -> None:
        now = time.perf_counter()
        rows = sum(sum(cell["rows"].values()) for cell in cells.values())
        queries = self._run.metrics()["queries"]
        if rows:
            self.minutes += 1
            self._step("rush hour" if self.minutes - 1 in streams.RUSH_MINUTES else "as usual")
            results = sum(query["emitted"] for query in queries.values())
            engines = max(cell["worked"] for cell in cells.values())
            part = queries["spoiling"]["completeness"]
            self._print(
                f"  batch {batch:3}  {rows:7,} rows to cells  {results:10,} results so far  "
                f"{now - self._last_time:5.1f} s, engines {engines:4.2f} s"
                + (f"  spoiling has {part:.0%}" if part < 1 else "")
            )
        for decision in self._run.decisions()[self._shown_decisions :]:
            self._shown_decisions += 1
            self._print(f"[bold]decided:[/] {_format_decision(decision)}")
        self._last_time = now
        self.batch_shown.set()

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)


def _format_decision(decision: Decision) -> str:
    command, numbers = decision.command, decision.numbers
    if command is None or decision.error is not None:
        return f"no change, {decision.error}"
    if command.do == "budget":
        why = f"engines used {numbers['busy']:.0%} of the available time"
        return f"{command.query} {'is exact again' if command.value is None else f'has {command.value} a batch'}, {why}"
    value = command.value if command.do == "policy" else f"the plan {command.value}"
    return f"{command.query} continues with {value}"


def _drive_run(run: Run, console: Console, step: ProgressStep) -> None:
    """Print the run, and change it while it runs."""
    printer = DemoPrinter(run, console, step)
    run.listen(printer)
    changes: list[tuple[int, str, Callable[[], None]]] = [
        (4, f"migrate {NEW_PLAN[0]} to the plan {NEW_PLAN[1]}", lambda: run.migrate(*NEW_PLAN)),
        (8, f"add {ADDED_QUERY[0]}", lambda: run.add(*ADDED_QUERY, sink=sinks.memory())),
        (streams.RUSH_MINUTES.stop + 4, "schedule bfs", lambda: run.schedule("bfs")),
    ]
    while printer.minutes < MINUTES:
        printer.batch_shown.wait(1)
        printer.batch_shown.clear()
        if not run.isActive:
            run.awaitTermination()
            return
        while changes and printer.minutes >= changes[0][0]:
            _, what, change = changes.pop(0)
            console.print(f"[bold]change:[/] {what}", highlight=False, soft_wrap=True)
            change()
    run.finish()
    run.processAllAvailable()


def _print_results(console: Console, out: Path, metrics: Mapping[str, Any]) -> bool:
    """Print the results, compared with those of the embedded engine on the same rows."""
    expected = _run_embedded()
    table = Table(title="results", title_justify="left", header_style="bold")
    for heading in ("query", "results", "copies of a row", "same as the embedded engine"):
        table.add_column(heading)
    correct = True
    for name, query in metrics["queries"].items():
        verdict = "added while running"
        if name in expected:
            found = pa_parquet.read_table(out / name).cast(expected[name].schema)
            part = found.num_rows / max(1, expected[name].num_rows)
            right = _is_subset(found, expected[name]) and (part == 1 or "FRESHNESS" in QUERIES[name])
            correct = correct and right
            verdict = "[green]yes[/]" if part == 1 else f"[green]{part:.0%} of it[/], the rest was shed"
            verdict = verdict if right else "[red]no[/]"
        table.add_row(name, f"{query['emitted']:,}", f"{query['replication']:.2g}", verdict)
    console.print(table)
    rows = sum(streams.generate_minute(name, number).num_rows for name in streams.STREAMS for number in range(MINUTES))
    kept = sum(cell["base_rows"] for cell in metrics["cells"].values())
    console.print(f"{rows:,} rows were read; at the end {kept:,} base rows are stored, and no derived state.")
    return correct


def _is_subset(found: pa.Table, expected: pa.Table) -> bool:
    """Whether every row found is expected, and not more often than expected."""
    rows = [
        np.unique(hash_rows(list(map(flatten_column, table.columns)), table.num_rows), return_counts=True)
        for table in (found, expected)
    ]
    (some, some_counts), (every, counts) = rows
    places = np.minimum(np.searchsorted(every, some), every.size - 1)
    return bool(np.all(every[places] == some) and np.all(some_counts <= counts[places]))


def _run_embedded() -> ResultTables:
    engine = Engine()
    for name in streams.STREAMS:
        engine.stream(name, streams.build_schema(name), time="ts")
    engine.table("rooms", streams.build_rooms())
    for name, text in QUERIES.items():
        engine.query(name, text)
    results = [
        engine.push({name: streams.generate_minute(name, number) for name in streams.STREAMS})
        for number in range(MINUTES)
    ]
    return concat_results((*results, engine.flush()))
