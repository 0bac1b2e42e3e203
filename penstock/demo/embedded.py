"""The demo on the embedded engine: three streams of a cold store. At the end the results are verified.

The data are generated from a seed. The demo reads and writes no files.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table

from penstock import Engine
from penstock.demo.results import ResultTables, concat_results
from penstock.demo.streams import SECOND, START
from penstock.progress import ProgressStep, show_progress
from penstock.testing import difference, expected

PUSHES = 15
PUSH_SECONDS = 120
CHECKED_PUSHES = 2
TAGS = 40

STREAMS = {
    "temperature": {"ts": "timestamp", "room": "int", "celsius": "double"},
    "humidity": {"ts": "timestamp", "room": "int", "percent": "double"},
    "reader": {"ts": "timestamp", "room": "int", "tag": "string"},
}
ROOMS = pa.table(
    {
        "room": pa.array(range(6), pa.int32()),
        "name": ["fish", "meat", "dairy", "fruit", "flowers", "ice"],
        "warmest": [4.0, 4.0, 5.0, 6.0, 7.0, -15.0],
        "coldest": [0.5, 0.5, 1.5, 2.5, 3.5, -18.5],
    }
)

QUERIES = {
    "at_risk": (
        "goods read in a room that is too warm and too damp: three streams and a table",
        "SELECT r.tag, rooms.name, t.celsius, h.percent\n"
        "FROM reader [RANGE 1 MINUTE] AS r, temperature [RANGE 4 SECONDS] AS t,\n"
        "     humidity [RANGE 6 SECONDS] AS h, rooms\n"
        "WHERE r.room = t.room AND t.room = h.room AND h.room = rooms.room\n"
        "  AND t.celsius > rooms.warmest AND h.percent > 88",
    ),
    "moved_on": (
        "where a tag was until it was read again: DSTREAM over PARTITION BY ... ROWS",
        "DSTREAM (SELECT tag, room AS was_in FROM reader [PARTITION BY tag ROWS 1])",
    ),
    "alike": (
        "rooms within 0.02 degrees of each other: a band join of a stream with itself",
        "SELECT x.room, y.room AS other, x.celsius, y.celsius AS other_celsius\n"
        "FROM temperature [RANGE 5 SECONDS] AS x, temperature [RANGE 5 SECONDS] AS y\n"
        "WHERE ABS(x.celsius - y.celsius) < 0.02 AND x.room < y.room",
    ),
    "damp": (
        "the last 12 humidity values joined with the last 30 reads: ROWS windows",
        "SELECT h.room, h.percent, r.tag\n"
        "FROM humidity [ROWS 12] AS h JOIN reader [ROWS 30] AS r ON h.room = r.room\n"
        "WHERE h.percent > 90",
    ),
}
ADDED_QUERY = (
    "freezing",
    "SELECT t.room, rooms.name, t.celsius FROM temperature [NOW] AS t, rooms\n"
    "WHERE t.room = rooms.room AND t.celsius < rooms.coldest",
)

StreamTables = dict[str, pa.Table]


def run_demo(console: Console) -> bool:
    """Run the demo. Returns False if results differ from the oracle's, or from those of the restored engine."""
    begin = time.perf_counter()
    batches = [make_batch(number) for number in range(PUSHES)]
    half = PUSHES // 2
    _show_intro(console)
    with show_progress("demo", PUSHES + 1, console, lines=False) as step:
        step("compiling")
        engine = build_engine()
        console.print("\n[bold]The plan of at_risk[/]")
        console.print(engine.explain("at_risk"), markup=False, highlight=False)
        console.print(
            "\n[bold]Pushes.[/] A push has two minutes of all streams; it returns the results that are certain."
        )
        before = _push_batches(console, engine, batches[:half], step)
        _show_metrics(console, engine)
        console.print(f"\n[bold]Changes while running.[/] Add the query {ADDED_QUERY[0]}, drop damp, take a snapshot.")
        engine.query(*ADDED_QUERY)
        engine.drop("damp")
        blob = engine.snapshot()
        after = _push_batches(console, engine, batches[half:], step, last=True)

    _show_samples(console, after)
    console.print("\n[bold]Verification[/]")
    restored = _check_restored(console, blob, batches[half:], after)
    verified = _check_oracle(console, batches, before)
    console.print(f"\n{time.perf_counter() - begin:.1f} s. See README.md and docs/cql.md.", style="dim")
    return restored and verified


def _show_intro(console: Console) -> None:
    text = (
        "A cold store. Every room reports its [bold]temperature[/] and [bold]humidity[/]; a [bold]reader[/] at its "
        "door reads the tags of the goods. Penstock joins the streams continuously and exactly: results depend on the "
        "tuples and on the query, not on batches or plans."
    )
    console.print(Panel(text, title="penstock demo", title_align="left"))
    for name, (meaning, cql) in QUERIES.items():
        console.print(f"\n[bold cyan]{name}[/]  {meaning}", highlight=False, soft_wrap=True)
        console.print(Syntax(cql, "sql", background_color="default", word_wrap=True))


def build_engine() -> Engine:
    engine = Engine()
    for name, columns in STREAMS.items():
        engine.stream(name, columns, time="ts")
    engine.table("rooms", ROOMS)
    for name, (_, cql) in QUERIES.items():
        engine.query(name, cql)
    return engine


def _push_batches(
    console: Console, engine: Engine, batches: Sequence[StreamTables], step: ProgressStep, last: bool = False
) -> ResultTables:
    """Push the batches and print a line of counts for each; returns the results of each query."""
    collected: list[Mapping[str, pa.Table]] = []
    for number, batch in enumerate(batches, 1):
        step("pushing")
        results = [engine.push(batch)]
        if last and number == len(batches):
            results.append(engine.flush())
        collected += results
        newest = max(pc.max(table.column("ts")).as_py() for table in batch.values())
        tuples = sum(table.num_rows for table in batch.values())
        counts = "  ".join(f"{name} +{sum(result[name].num_rows for result in results):<5}" for name in results[0])
        console.print(f"  {newest:%H:%M:%S}  {tuples:>4} tuples  {counts}", highlight=False, soft_wrap=True)
    return concat_results(collected)


def _show_samples(console: Console, results: ResultTables) -> None:
    for name in ("at_risk", "moved_on"):
        sample = results[name].slice(max(0, results[name].num_rows - 4))
        table = Table(title=f"{name}: the last rows of {results[name].num_rows:,}", title_justify="left")
        for column in sample.column_names:
            table.add_column(column)
        for row in sample.to_pylist():
            table.add_row(*(f"{value:.2f}" if isinstance(value, float) else str(value) for value in row.values()))
        console.print()
        console.print(table)


def _show_metrics(console: Console, engine: Engine) -> None:
    """Some metrics of the query at_risk."""
    console.print("\n[bold]Metrics of at_risk[/] after half of the pushes")
    metrics = engine.metrics("at_risk")
    for name in ("rows_in", "window_rows", "state_rows", "built", "bytes", "emitted"):
        value = metrics[name]
        shown = ", ".join(f"{part} {count:,}" for part, count in value.items()) if isinstance(value, dict) else value
        console.print(f"  {name:<12} {shown}", markup=False, highlight=False, soft_wrap=True)


def _check_restored(console: Console, blob: bytes, batches: Sequence[StreamTables], results: ResultTables) -> bool:
    """An engine restored from the snapshot must return the same results for the second half of the pushes."""
    engine = Engine.restore(blob)
    restored = concat_results((*map(engine.push, batches), engine.flush()))
    wrong = [name for name in results if difference(restored[name], results[name]) is not None]
    rows = sum(table.num_rows for table in results.values())
    what = f"an engine restored from the snapshot ({len(blob):,} bytes) has the same {rows:,} rows for the second half"
    return _show_verdict(console, what, wrong)


def _check_oracle(console: Console, batches: Sequence[StreamTables], results: ResultTables) -> bool:
    """Compare the results of the first pushes with the oracle's. They depend only on the tuples of these pushes."""
    until = pa.scalar(START + CHECKED_PUSHES * PUSH_SECONDS * SECOND, pa.timestamp("us"))
    streams = {name: pa.concat_tables(batch[name] for batch in batches[:CHECKED_PUSHES]) for name in STREAMS}
    wrong, rows = [], 0
    for name, (_, cql) in QUERIES.items():
        oracle = expected(cql, streams, {"rooms": ROOMS}, "ts")
        parts = [table.filter(pc.less(table.column("_ts"), until)) for table in (results[name], oracle)]
        rows += parts[1].num_rows
        if difference(*parts) is not None:
            wrong.append(name)
    minutes = CHECKED_PUSHES * PUSH_SECONDS // 60
    what = f"the naive oracle has the same {rows:,} rows for all {len(QUERIES)} queries in the first {minutes} minutes"
    return _show_verdict(console, what, wrong)


def _show_verdict(console: Console, what: str, wrong: Sequence[str]) -> bool:
    if wrong:
        console.print(f"  [red]no[/]   not true: {what}; wrong: {', '.join(wrong)}", highlight=False, soft_wrap=True)
    else:
        console.print(f"  [green]yes[/]  {what}", highlight=False, soft_wrap=True)
    return not wrong


def make_batch(number: int) -> StreamTables:
    """One push of all three streams. One room after the other is open: it is warm and damp, and many tags are read."""
    rng = np.random.default_rng((2026, number))
    begin = START + number * PUSH_SECONDS * SECOND
    open_room = number % ROOMS.num_rows
    usual = ROOMS.column("coldest").to_numpy()

    ts, room = _make_reports(rng, begin, every=2)
    warm = np.where(room == open_room, 3.2, 0.8)
    temperature = [ts, room, np.round(usual[room] + warm + rng.normal(0, 0.35, len(ts)), 2)]
    ts, room = _make_reports(rng, begin, every=3)
    damp = np.where(room == open_room, 89.0, 80.0)
    humidity = [ts, room, np.round(damp + rng.normal(0, 2.5, len(ts)), 1)]
    ts = np.sort(rng.integers(begin, begin + PUSH_SECONDS * SECOND, PUSH_SECONDS))
    room = np.where(rng.random(len(ts)) < 0.3, open_room, rng.integers(0, ROOMS.num_rows, len(ts)))
    reader = [ts, room, [f"tag-{tag:02}" for tag in rng.integers(0, TAGS, len(ts))]]
    return {
        "temperature": _make_table(temperature, ("room", "celsius"), pa.float64()),
        "humidity": _make_table(humidity, ("room", "percent"), pa.float64()),
        "reader": _make_table(reader, ("room", "tag"), pa.string()),
    }


def _make_reports(
    rng: np.random.Generator, begin: int, every: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Times and rooms: each room reports once in `every` seconds, at a random time."""
    seconds, rooms = np.meshgrid(np.arange(0, PUSH_SECONDS, every), np.arange(ROOMS.num_rows), indexing="ij")
    times = begin + seconds.ravel() * SECOND + rng.integers(0, SECOND, seconds.size)
    order = np.argsort(times)
    return times[order], rooms.ravel()[order]


def _make_table(columns: Sequence[object], names: tuple[str, str], kind: pa.DataType) -> pa.Table:
    types = [pa.timestamp("us"), pa.int32(), kind]
    arrays = [pa.array(column).cast(type_) for column, type_ in zip(columns, types, strict=True)]
    return pa.table(arrays, names=["ts", *names])
