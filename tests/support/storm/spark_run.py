"""A storm on a Spark session: a few micro-batches, with queries added, dropped and changed between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from spark_support import declare_pipeline, merge_pushes, write_case

from penstock.errors import QueryError, UnsupportedError
from penstock.spark import sinks
from penstock.spark.pipeline import Pipeline
from penstock.state import SHIPPED
from penstock.state.maintenance import SMALLEST
from penstock.testing import Push
from storm.embedded_run import QueryPeriod
from storm.oracle_check import find_fault
from storm.scenario import Event, Scenario, draw_scenario

BATCHES = 3
CHANGES = 4  # each is a micro-batch or two


def draw_for_spark(seed: int, most: int) -> Scenario:
    """A storm whose pushes are merged into a few micro-batches; events happen between these."""
    scenario = draw_scenario(seed, most=most)
    pushes = [isinstance(step, Push) for step in scenario.case.steps]
    case = merge_pushes(scenario.case, BATCHES)
    size = -(-sum(pushes) // BATCHES)

    def moved(event: Event) -> Event:
        return replace(event, step=min(len(case.steps), -(-sum(pushes[: event.step]) // size)))

    events = [moved(event) for event in scenario.events if event.action in ("derive", "query", "drop", "migrate")]
    started = [event for event in events if event.step == 0 and event.action in ("derive", "query")]
    changes = [event for event in events if event not in started and event.step < len(case.steps)][:CHANGES]
    return replace(scenario, case=case, events=(*started, *changes), expected_cache={})


class SparkRun:
    """Runs a storm as one pipeline and collects the results of every query."""

    def __init__(self, spark: Any, scenario: Scenario, folder: Path) -> None:
        self.scenario, self.folder = scenario, folder
        self.running: dict[str, QueryPeriod] = {}
        self.result_sinks: list[tuple[QueryPeriod, Any]] = []
        upkeep = SMALLEST if scenario.smallest_maintenance else SHIPPED
        self.pipe = declare_pipeline(spark, scenario.case, folder, partial(Pipeline, maintenance=upkeep))
        for event in scenario.events:
            if event.step == 0 and event.action == "derive":
                self.pipe.derive(event.query, scenario.texts[event.query].text)
        for event in scenario.events:
            if event.step == 0 and event.action == "query":
                self._start_period(event.query, 0, lambda name, text, sink: self.pipe.query(name, text, sink=sink))

    def _start_period(self, name: str, number: int, start: Callable[[str, str, Any], None]) -> None:
        sink = sinks.memory()
        start(name, self.scenario.texts[name].text, sink)
        self.running[name] = QueryPeriod(name, self.scenario.texts[name], number)
        self.result_sinks.append((self.running[name], sink))

    def run(self, cells: int) -> list[QueryPeriod]:
        run = self.pipe.start(self.folder / "checkpoint", cells=cells)
        try:
            for number in range(len(self.scenario.case.steps)):
                for event in self.scenario.events:
                    if event.step == number:
                        self._apply_event(run, event)
                write_case(self.scenario.case, self.folder, range(number, number + 1))
                run.processAllAvailable()
            run.finish()
            run.processAllAvailable()
        finally:
            run.stop()
        for segment, sink in self.result_sinks:
            segment.answers = [sink.table().sort_by("_ts")] if sink.table().num_rows else []
        return [segment for segment, _ in self.result_sinks]

    def _apply_event(self, run: Any, event: Event) -> None:
        """Apply an event that a running pipeline supports; other events are left out."""
        try:
            match event.action, event.args:
                case "query", (plan, _, _) if event.query not in self.running and event.step:
                    self._start_period(
                        event.query, event.step, lambda n, text, sink: run.add(n, text, sink=sink, plan=plan)
                    )
                case "drop", _ if event.query in self.running:
                    run.drop(event.query)
                    self.running.pop(event.query).last = event.step
                case "migrate", (str(plan), _) if event.query in self.running:
                    run.migrate(event.query, plan)
        except QueryError as error:
            if error.condition != "LAST_QUERY":
                raise
        except UnsupportedError:
            return


def find_spark_fault(spark: Any, scenario: Scenario, folder: Path) -> str | None:
    """The fault of a storm on Spark, or None."""
    segments = SparkRun(spark, scenario, folder).run(scenario.seed % 3 + 1)
    for segment in segments:
        segment.answers = [pa.concat_tables(segment.answers)] if segment.answers else []
    return find_fault(scenario, segments)
