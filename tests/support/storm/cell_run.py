"""A storm on the cells of a pipeline, in this process: pushes are micro-batches, restarts lose the workers' caches.

Events that a running pipeline does not support (`alter`, `history`, break nodes) are left out.
"""

from __future__ import annotations

import random

import pyarrow as pa
from cell_support import Cluster

from penstock.adapt import (
    AddQuery,
    AdvanceStream,
    DropQuery,
    EndStreams,
    Migrate,
    QueryCommand,
    SetBudget,
    SetPolicy,
    SetSchedule,
    TimeCommand,
)
from penstock.adapt.commands import Reslice
from penstock.errors import PenstockError, QueryError, UnsupportedError
from penstock.spark.control_command import ControlCommand
from penstock.spark.layout import Layout
from penstock.spark.pipeline_config import QuerySpec
from penstock.spark.spec import PipelineSpec
from penstock.spark.static_tables import StaticTable
from penstock.spark.worker.cell import Cell
from penstock.spark.worker.cell_state import RESULT, CellCache
from penstock.state import SHIPPED, decode_table
from penstock.state.maintenance import SMALLEST
from penstock.testing import Advance, Push
from penstock.testing.case import to_ticks
from storm.embedded_run import QueryPeriod, StormRun
from storm.oracle_check import find_fault
from storm.scenario import Event, Scenario, draw_scenario

MOST = 3_000  # tuples
WORKERS = 2


class CellRun(StormRun):
    """Runs a storm on cells and collects the results of every query."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.rng = random.Random(f"cells {scenario.seed}")
        self.last_times: dict[tuple[str, int], int] = {}
        self.generation = 0
        self.commands: list[ControlCommand] = []
        case = scenario.case
        first = [
            self._build_spec(event)
            for event in scenario.events
            if event.step == 0 and event.action in ("query", "derive")
        ]
        tables = {name: StaticTable.of(table) for name, table in case.tables.items()}
        upkeep = SMALLEST if scenario.smallest_maintenance else SHIPPED
        self.cluster = Cluster(
            PipelineSpec(case.declarations, tables, tuple(first), self.rng.choice((1, 1, 2, 3, 4, 6)),
                 scenario.options["state"], maintenance=upkeep), WORKERS,
        )  # fmt: skip
        for query in first:
            self._start_period(query.name, 0)

    def _build_spec(self, event: Event) -> QuerySpec:
        plan, state, _ = event.args
        return QuerySpec(
            event.query, self.scenario.texts[event.query].text, plan, state=state, derived=event.action == "derive"
        )

    def _start_period(self, name: str, number: int) -> None:
        self.running[name] = QueryPeriod(name, self.scenario.texts[name], number)
        if not self.running[name].text.is_derived:
            self.periods.append(self.running[name])

    def _run_steps(self) -> None:
        for step in self.iter_steps():
            if isinstance(step, Push):
                self._push(step)
            elif step is None:
                self._push(Push({}), EndStreams())
            else:
                assert isinstance(step, Advance)
                self._push(Push({}), AdvanceStream(step.stream, to_ticks(step.value)))

    def _push(self, push: Push, *given: TimeCommand) -> None:
        commands = [ControlCommand(self._next_generation(), command) for command in given]
        worker = self.rng.randrange(WORKERS) if self.rng.random() < 0.2 else 0
        for cell, kind, name, _, data in self.cluster.push(push, lambda: worker, commands=commands):
            if kind == RESULT and name in self.running:
                self._collect(self.running[name], cell, decode_table(data))

    def _next_generation(self) -> int:
        self.generation += 1
        return self.generation

    def _collect(self, segment: QueryPeriod, cell: int, table: pa.Table) -> None:
        """Keep the results of a cell and check their temporal order."""
        times = table.column("_ts").cast(pa.int64()).to_pylist()
        before = self.last_times.get((segment.name, cell))
        ordered = times == sorted(times) and (before is None or not times or times[0] >= before)
        assert ordered, f"{segment.name} in cell {cell}: results of {times[:3]} came after one of {before}"
        if times:
            self.last_times[segment.name, cell] = times[-1]
        if not segment.text.is_derived:
            segment.answers.append(table)

    def _apply_event(self, event: Event, number: int) -> None:
        if event.action == "restart":
            self.cluster.caches = [CellCache() for _ in range(WORKERS)]
            return
        command = self._build_command(event)
        if command is None or (event.query and event.action != "query" and event.query not in self.running):
            return
        before = self.cluster.layout
        try:
            plan = command.configure(before.spec.config, self._next_generation())
            layout = Layout(before.spec.with_config(plan))
            Cell(layout)  # a pipeline refuses here what its cells would refuse
            self.cluster.layout = layout
        except (UnsupportedError, QueryError) as error:
            if not isinstance(error, UnsupportedError) and error.condition != "LAST_QUERY":
                raise
            return
        if isinstance(command, AddQuery):
            self._start_period(event.query, number)
        elif isinstance(command, DropQuery):
            self.running.pop(event.query).last = number

    def _build_command(self, event: Event) -> QueryCommand | None:
        """The command of a pipeline for an event, if it has one."""
        match event.action, event.args:
            case "query", (plan, _, _) if event.query not in self.running:
                return AddQuery(event.query, self.scenario.texts[event.query].text, plan)
            case "drop", _:
                return DropQuery(event.query)
            case "migrate", (str(plan), _):
                return Migrate(event.query, plan)
            case "policy", (state, _):
                return SetPolicy(event.query, state)
            case "schedule", (strategy,) if not event.query:
                return SetSchedule(strategy)
            case "reslice", (slicing,):
                return Reslice(slicing)
            case "budget", (probes, policy, sample):
                return SetBudget(probes, policy, sample=sample)
            case "lift", _:
                return SetBudget(None)
        return None


def find_cells_fault(scenario: Scenario) -> str | None:
    """The fault of a storm on cells, or None."""
    try:
        segments = CellRun(scenario).run()
    except PenstockError as error:
        return None if isinstance(error, UnsupportedError) else str(error)
    except AssertionError as error:
        return str(error)
    for segment in segments:
        if segment.answers:
            segment.answers = [pa.concat_tables(segment.answers).sort_by("_ts")]
    return find_fault(scenario, segments)


def check_cells(seed: int, most: int = MOST) -> None:
    scenario = draw_scenario(seed, most=most)
    fault = find_cells_fault(scenario)
    assert fault is None, f"on cells: {scenario}\n{fault}"
