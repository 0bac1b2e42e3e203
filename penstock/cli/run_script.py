"""`penstock run`: run a script on Spark, and print a line for each micro-batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from penstock.cql import Script
from penstock.spark.run import Run
from penstock.spark.script_pipeline import build_pipeline
from penstock.spark.session import create_log_file, local_session

_POLL_SECONDS = 1


def run_script(
    script: Script, *, once: bool, cells: int | None, checkpoint: Path | None, evolve: bool, console: Console
) -> None:
    """Run until the end of the data (`once`) or until interrupted. Raises the error of a failed query."""
    log = create_log_file()
    console.print(f"starting Spark; its log is {log}", soft_wrap=True, markup=False)
    pipe = build_pipeline(script, local_session(log=log))
    trigger = {"availableNow": True} if once else None
    run = pipe.start(checkpointLocation=checkpoint, trigger=trigger, cells=cells, evolve=evolve)
    runs = [run]
    console.print(pipe.explain(run.cells), soft_wrap=True, markup=False)
    try:
        _show_progress(run, console)
        if once and checkpoint is None:  # no later run can continue, so the streams end here
            run.finish()
            run = pipe.start(checkpointLocation=run.checkpointLocation, trigger=trigger, cells=run.cells)
            runs.append(run)
            _show_progress(run, console)
    except KeyboardInterrupt:
        console.print("stopping ...")
    finally:
        run.stop()
    _print_summary([run.metrics() for run in runs], console)


def _show_progress(run: Run, console: Console) -> None:
    shown = -1
    while True:
        ended = run.awaitTermination(_POLL_SECONDS)
        progress = run.lastProgress
        if progress is not None and progress["batchId"] > shown and progress["numInputRows"]:
            shown = progress["batchId"]
            rate = progress["processedRowsPerSecond"] or 0.0
            console.print(f"batch {shown}: {progress['numInputRows']} rows, {rate:,.0f} rows/s")
        if ended:
            return


def _print_summary(metrics: list[dict[str, Any]], console: Console) -> None:
    for name in metrics[0]["queries"]:
        console.print(f"{name}: {_sum_metric(metrics, 'queries', name, 'emitted')} results", markup=False)
    for name in metrics[0]["streams"]:
        late, dead = (_sum_metric(metrics, "streams", name, kind) for kind in ("late", "dead"))
        if late or dead:
            console.print(f"{name}: {late} late rows, {dead} bad rows, kept in the checkpoint", markup=False)


def _sum_metric(metrics: list[dict[str, Any]], kind: str, name: str, what: str) -> int:
    return sum(part[kind][name][what] for part in metrics)
