"""The end of `penstock run`: where results are, how many, what was rejected, and how to continue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from penstock.cli.run_options import RunOptions
from penstock.cli.run_progress import RunProgress
from penstock.spark.java_process import JAVA_ENDED
from penstock.spark.storage import as_file_name

Outcome = Literal["completed", "stopped", "interrupted"]
"""The data ended; another process stopped the run; a signal stopped it."""


@dataclass(frozen=True)
class QuerySummary:
    rows: int
    sink: str
    error: str | None = None
    """Where and why it has stopped."""


@dataclass(frozen=True)
class StreamSummary:
    late: int
    dead: int


@dataclass(frozen=True)
class RunTotals:
    batches: int
    input_rows: int
    seconds: float
    cells: int


@dataclass(frozen=True)
class RunSummary:
    """What a run did. `checkpoint` and `command` are None if nothing can be continued."""

    outcome: Outcome
    queries: dict[str, QuerySummary]
    streams: dict[str, StreamSummary]
    totals: RunTotals
    checkpoint: str | None
    command: str | None
    exit_code: int = 0

    @property
    def has_rejected_rows(self) -> bool:
        return any(stream.late or stream.dead for stream in self.streams.values())

    def without_checkpoint(self) -> RunSummary:
        return replace(self, checkpoint=None, command=None)

    def with_exit_code(self, code: int) -> RunSummary:
        return replace(self, exit_code=code)

    def format_lines(self) -> Iterator[str]:
        totals = self.totals
        counts = f"{totals.batches} micro-batches, {totals.input_rows:,} rows read, {totals.seconds:.1f} s in all"
        yield f"{self.outcome}: {counts}"
        for name, query in self.queries.items():
            yield f"  {name}: {query.rows} results, {query.sink}"
            if query.error is not None:
                yield f"  {name}: {query.error}"
        for name, stream in self.streams.items():
            for kind, rows in (("late", stream.late), ("dead", stream.dead)):
                if rows:
                    yield f"  {name}: {rows} {kind} rows, parquet files in {self._locate(kind, name)}"
        if self.command is not None:
            yield f"continue with: {self.command}"

    def as_json(self) -> dict[str, Any]:
        return {
            "outcome": self.outcome,
            "queries": {
                name: {"rows": each.rows, "sink": each.sink, "error": each.error} for name, each in self.queries.items()
            },
            "streams": {
                name: {
                    "late": each.late,
                    "dead": each.dead,
                    "lateRows": self._locate("late", name) if each.late else None,
                    "deadRows": self._locate("dead", name) if each.dead else None,
                }
                for name, each in self.streams.items()
            },
            "microBatches": self.totals.batches,
            "inputRows": self.totals.input_rows,
            "seconds": round(self.totals.seconds, 3),
            "cells": self.totals.cells,
            "checkpoint": self.checkpoint,
            "continue": self.command,
        }

    def _locate(self, kind: str, stream: str) -> str:
        return f"{self.checkpoint}/{kind}/{as_file_name(stream)}"


def summarize_runs(runs: Sequence[RunProgress], options: RunOptions, outcome: Outcome, seconds: float) -> RunSummary:
    """The sums over the runs of one script."""
    with suppress(*JAVA_ENDED):  # Java may have ended by the same signal
        for each in runs:
            each.read_lines()
    last = runs[-1].run
    metrics = [each.run.metrics() for each in runs]
    ended = outcome == "completed" and options.finish
    return RunSummary(
        outcome,
        {
            name: QuerySummary(
                _sum(metrics, "queries", name, "emitted"), sink, metrics[-1]["queries"].get(name, {}).get("error")
            )
            for name, sink in last.sinks.items()
        },
        {
            name: StreamSummary(_sum(metrics, "streams", name, "late"), _sum(metrics, "streams", name, "dead"))
            for name in metrics[-1]["streams"]
        },
        RunTotals(sum(each.batches for each in runs), sum(each.input_rows for each in runs), seconds, last.cells),
        last.checkpointLocation,
        None if ended else options.format_command(last.checkpointLocation),
    )


def _sum(metrics: Sequence[dict[str, Any]], kind: str, name: str, what: str) -> int:
    return sum(part[kind][name][what] for part in metrics if name in part[kind])
