"""The map of CONTRIBUTING.md: what its lines call one entry or one type is enough for a running engine.

Functions have this test in tests/expr/test_registries.py, commands in tests/spark/test_config_changes.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest

import penstock as ps
from penstock.adapt import Command, SetSchedule, decode_command, encode_command
from penstock.cql import Catalog, bind_query, bind_script
from penstock.cql.windows import Window
from penstock.expr import AGGREGATES, NAMED_AGGREGATES
from penstock.graph.rules import STRATEGIES, backtrack, encore, forward
from penstock.join import POLICIES, StatePolicy
from penstock.ops.aggregate.accumulators import ACCUMULATORS
from penstock.spark.sinks import as_sink
from penstock.spark.sinks.formats import FileFormat

SCHEMA = {"ts": "bigint", "k": "bigint", "x": "bigint"}
JOIN = "SELECT a.x AS left, b.x AS right FROM A [RANGE 10] AS a, B [RANGE 10] AS b WHERE a.k = b.k"


def run_query(query: Any, **options: Any) -> list[tuple[Any, ...]]:
    """All results of one query over two small streams, in order."""
    engine = ps.Engine(**options)
    for name in "AB":
        engine.stream(name, SCHEMA, time="ts")
    engine.query("q", query)
    found = []
    for first in range(0, 60, 12):
        times = list(range(first, first + 12))
        table = pa.table({"ts": times, "k": [time % 3 for time in times], "x": times})
        found += engine.push({"A": table, "B": table})["q"].to_pylist()
    return [tuple(row.values()) for row in (*found, *engine.flush()["q"].to_pylist())]


def bind(text: str) -> Any:
    catalog = Catalog()
    columns = ", ".join(f"{name} {kind}" for name, kind in SCHEMA.items())
    bind_script("".join(f"CREATE STREAM {name} ({columns}) TIMESTAMP BY ts;" for name in "AB"), catalog)
    return bind_query(text, catalog)


def test_aggregate_is_an_entry_and_an_accumulator(monkeypatch: pytest.MonkeyPatch) -> None:
    total = replace(AGGREGATES["sum"], name="total")
    monkeypatch.setitem(AGGREGATES, "total", total)
    monkeypatch.setitem(NAMED_AGGREGATES, "total", total)
    monkeypatch.setitem(ACCUMULATORS, "total", ACCUMULATORS["sum"])
    text = "SELECT k, {}(x) AS s FROM A [RANGE 5] GROUP BY k"
    assert sorted(run_query(text.format("TOTAL"))) == sorted(run_query(text.format("SUM")))


@dataclass(frozen=True)
class LastTen(Window):
    """A window that is nowhere in the package."""

    keyword = "LAST TEN"
    bounded = True

    @property
    def lifetime(self) -> int:
        return 10


def test_window_kind_is_a_type() -> None:
    query = bind(JOIN)
    sources = tuple(replace(source, window=LastTen()) for source in query.body.sources)
    assert run_query(replace(query, body=replace(query.body, sources=sources))) == run_query(JOIN)


def test_state_policy_is_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "slow", StatePolicy(lazy=True, gated="always", pace=0))
    assert run_query(JOIN, state="slow") == run_query(JOIN, state="eager")


def test_scheduling_rule_is_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STRATEGIES, "backwards", (backtrack, encore, forward))
    text = f"{JOIN} UNION ALL SELECT x, k FROM A [NOW]"
    assert sorted(run_query(text, schedule="backwards", batch=1)) == sorted(run_query(text))


def test_command_is_a_type_of_the_union() -> None:
    assert SetSchedule in get_args(Command)
    assert decode_command(*encode_command(SetSchedule("bfs"))) == SetSchedule("bfs")


def test_sink_is_a_class() -> None:
    class LastBatch:
        def open(self, run: str, name: str, schema: pa.Schema) -> None:
            self.opened = run, name, schema

        def write(self, batch: int, rows: pa.Table) -> None:
            self.written = batch, rows

    sink = LastBatch()
    assert as_sink(sink) is sink


def test_task_sink_is_a_class() -> None:
    class Log(ps.sinks.TaskSink):
        def write(self, attempt: ps.sinks.Attempt, rows: Iterator[pa.RecordBatch]) -> Any:
            return [attempt.token, sum(batch.num_rows for batch in rows)]

        def commit(self, batch: int, messages: Sequence[Any]) -> None:
            self.committed = batch, messages

    sink = Log()
    assert as_sink(sink) is sink
    with pytest.raises(ps.QueryError, match="NOT_A_SINK"):
        as_sink(Log)


def test_file_format_is_a_value(tmp_path: Path) -> None:
    class Lines:
        def __init__(self, file: Any) -> None:
            self.file = file

        def write(self, table: pa.Table) -> None:
            self.file.write("".join(f"{row}\n" for row in table.to_pylist()).encode())

    sink = ps.sinks.FileSink(str(tmp_path), FileFormat("txt", lambda file, _: nullcontext(Lines(file))))
    sink.open("a run", "q", pa.schema([("x", pa.int64())]))
    rows = pa.table({"x": [1, 2]})
    sink.commit(0, [sink.write(ps.sinks.Attempt(0, 0, "token"), iter(rows.to_batches()))])
    assert [path.read_text() for path in tmp_path.glob("*.txt")] == ["{'x': 1}\n{'x': 2}\n"]
