"""`penstock run`: run a script on Spark until the end of its data, a signal or a stop by `penstock ctl`."""

from __future__ import annotations

import logging
import shlex
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from rich.console import Console

from penstock.cli.interrupts import StopRequest, note_signals
from penstock.cli.run_options import RunOptions, SessionOptions
from penstock.cli.run_progress import RunProgress, show_run_progress
from penstock.cli.run_summary import Outcome, RunSummary, summarize_runs
from penstock.cql import Script
from penstock.errors import PenstockError, ResourceError
from penstock.spark.java_process import JAVA_ENDED
from penstock.spark.pipeline import Pipeline
from penstock.spark.run import Run
from penstock.spark.script_pipeline import build_pipeline
from penstock.spark.session import create_log_file, local_session
from penstock.web import record_run, serve_run

if TYPE_CHECKING:
    from penstock.web.monitor import PageMonitor
    from penstock.web.server import PageServer

_LOG = logging.getLogger(__name__)
_POLL_SECONDS = 0.2
_STOP_ERRORS: tuple[type[Exception], ...] = (PenstockError, *JAVA_ENDED)


def run_script(script: Script, options: RunOptions, console: Console) -> RunSummary:
    """Run the script and say how it ended. Raises the error of a failed query."""
    begun = time.perf_counter()
    spark = _start_session(options.session, console)
    checkpoint = options.start.checkpoint or tempfile.mkdtemp(prefix="penstock-")
    try:
        with note_signals() as signals:
            pipe = build_pipeline(script, spark, options.make_sink, options.start.memory)
            runner = ScriptRunner(pipe, options, checkpoint, console)
            outcome = runner.run_to_end(signals)
    except PenstockError:
        _remove_unused(options, checkpoint)
        raise
    summary = summarize_runs(runner.runs, options, outcome, time.perf_counter() - begun)
    if options.start.checkpoint is None and summary.command is None and not summary.has_rejected_rows:
        shutil.rmtree(checkpoint, ignore_errors=True)
        summary = summary.without_checkpoint()
    if summary.outcome == "interrupted":
        summary = summary.with_exit_code(signals.exit_code)
    return summary


def _start_session(options: SessionOptions, console: Console) -> SparkSession:
    """Start Spark. Its log goes to a file, because Java and the workers would write to the terminal."""
    log = create_log_file()
    console.print(f"starting Spark; its log is {log}", soft_wrap=True, markup=False)
    try:
        return local_session(options.master, options.settings, log)
    except PenstockError:
        raise
    except Exception as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise ResourceError("SPARK_NOT_STARTED", f"Spark cannot be started: {said[0]}; see {log}") from error


def _remove_unused(options: RunOptions, checkpoint: str) -> None:
    """Remove the temporary checkpoint of a run that was refused before its first micro-batch."""
    if options.start.checkpoint is None and not (Path(checkpoint) / "offsets").exists():
        shutil.rmtree(checkpoint, ignore_errors=True)


class ScriptRunner:
    """The runs of one script: one, or a second one that ends the streams after the first."""

    def __init__(self, pipe: Pipeline, options: RunOptions, checkpoint: str, console: Console) -> None:
        self._pipe = pipe
        self._options = options
        self._checkpoint = checkpoint
        self._console = console
        self.runs: list[RunProgress] = []
        self._page: PageServer | PageMonitor | None = None

    def run_to_end(self, signals: StopRequest) -> Outcome:
        run = self._start()
        self._print_start(run)
        outcome = self._follow(run, signals)
        if outcome == "completed" and self._options.finish:
            run.finish()
            outcome = self._follow(self._start({"once": True}), signals)
        return outcome

    def _start(self, trigger: Mapping[str, Any] | None = None) -> Run:
        """`trigger`: another one than that of the options.

        The run that ends the streams is one micro-batch: rows that have arrived in the meantime come before the end.
        """
        given = self._options.start
        run = self._pipe.start(
            checkpointLocation=self._checkpoint,
            trigger=trigger or given.trigger,
            cells=given.cells,
            adapt=given.adapt,
            evolve=given.evolve,
        )
        run.serve_requests()
        self.runs.append(RunProgress(run))
        self._page = self._show_page(run)
        return run

    def _show_page(self, run: Run) -> PageServer | PageMonitor | None:
        """Serve the page of the run, or only save what `penstock ui` shows later."""
        port = self._options.start.ui
        if port is None:
            try:
                return record_run(run)
            except Exception as error:  # a run does not depend on its record
                _LOG.warning("the run is not recorded for `penstock ui`: %s", error)
                return None
        try:
            page = serve_run(run, port)
        except PenstockError:
            run.stop()
            raise
        self._print(f"page: {page.url}")
        return page

    def _print_start(self, run: Run) -> None:
        lasting = "" if self._options.start.checkpoint else " (temporary; name a lasting one with --checkpoint)"
        self._print(self._pipe.explain(run.cells))
        self._print(f"checkpoint: {self._checkpoint}{lasting}")
        if not self._options.ends:
            status = shlex.join(["penstock", "ctl", self._checkpoint, "status"])
            self._print(f"stop with Ctrl-C; look into the run with: {status}")

    def _follow(self, run: Run, signals: StopRequest) -> Outcome:
        """Show the progress of a run until it ends."""
        progress = self.runs[-1]
        try:
            with show_run_progress(self._console) as show:
                while run.isActive and not signals.sleep(_POLL_SECONDS):
                    for line in progress.read_lines():
                        show(line)
            if signals.is_set:
                self._stop_in_order(run)
                return "interrupted"
            run.awaitTermination()  # raises the error of a failed run
            return "completed" if self._options.ends else "stopped"
        except PenstockError:
            self._print(f"continue with: {self._options.format_command(self._checkpoint)}")
            raise
        except JAVA_ENDED as error:
            command = self._options.format_command(self._checkpoint)
            raise ResourceError("SPARK_ENDED", f"the process of Spark has ended; continue with: {command}") from error
        finally:
            with suppress(*JAVA_ENDED):  # there is nothing to stop if Java has ended
                run.stop()
            if self._page is not None:
                self._page.close()

    def _stop_in_order(self, run: Run) -> None:
        self._print("stopping after the current micro-batch; a second signal stops at once")
        try:
            run.stop_after_batch()
        except _STOP_ERRORS as error:  # Spark may have got the signal too
            _LOG.debug("Spark ended first: %s", error)
            self._print("Spark ended before the micro-batch did; the next start repeats it")

    def _print(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False)
