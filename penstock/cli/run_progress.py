"""The progress of a run: one line per micro-batch, or a status line on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from penstock.spark.run import Run


class RunProgress:
    """Counts the micro-batches and input rows of a run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._rows: dict[int, int] = {}

    @property
    def batches(self) -> int:
        return len(self._rows)

    @property
    def input_rows(self) -> int:
        return sum(self._rows.values())

    def read_lines(self) -> list[str]:
        """A line for every micro-batch with rows since the last call."""
        last = self.run.lastProgress
        if last is None or last["batchId"] in self._rows:
            return []
        lines = []
        for progress in self.run.recentProgress:  # micro-batches may be shorter than the time between two calls
            batch, rows = progress["batchId"], _count_rows(progress)
            if batch not in self._rows and "addBatch" in progress["durationMs"]:
                self._rows[batch] = rows
                lines += [f"{_format_batch(progress, rows)}, {self._count_results():,} results so far"] if rows else []
        return lines

    def _count_results(self) -> int:
        queries = self.run.metrics()["queries"]
        return sum(queries[name]["emitted"] for name in self.run.sinks if name in queries)


def _count_rows(progress: Any) -> int:
    """The rows read from streams; the last source is that of commands."""
    return sum(source["numInputRows"] for source in progress["sources"][:-1])


def _format_batch(progress: Any, rows: int) -> str:
    seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
    rate = f", {rows / seconds:,.0f} rows/s" if seconds else ""
    return f"batch {progress['batchId']}: {rows:,} rows in {seconds:.1f} s{rate}"


@contextmanager
def show_run_progress(console: Console) -> Iterator[Callable[[str], None]]:
    """Yields a function that shows a line: in place on a terminal, one below the other elsewhere."""
    if not console.is_terminal:
        yield lambda line: console.print(line, soft_wrap=True, markup=False)
        return
    with console.status("waiting for rows") as status:
        yield status.update
