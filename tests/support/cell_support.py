"""The cells of a pipeline without Spark: packing, shuffle, state and retries in this process."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.spark.cell_keys import find_cell_keys
from penstock.spark.control_command import ControlCommand
from penstock.spark.layout import ALWAYS, Layout
from penstock.spark.pipeline_config import QuerySpec
from penstock.spark.spec import PipelineSpec
from penstock.spark.static_tables import StaticTable
from penstock.spark.worker.cell_state import METRICS, CellCache, CellState, OutputRow
from penstock.spark.worker.pack import COMMAND, Packer
from penstock.state import decode_table
from penstock.testing import Case, Push

StageHook = Callable[[str, int, int], None]


class FakeMapState:
    """The state that Spark keeps for one cell; an attempt works on a copy."""

    def __init__(self) -> None:
        self.map: dict[Any, Any] = {}

    def getValue(self, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        return self.map.get(key)

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        self.map[key] = value

    def removeKey(self, key: tuple[Any, ...]) -> None:
        del self.map[key]


def build_spec(case: Case, queries: Mapping[str, str], cells: int, plan: str | None = None) -> PipelineSpec:
    listed = tuple(QuerySpec(name, text, plan if name == "q" else None) for name, text in queries.items())
    tables = {name: StaticTable.of(table) for name, table in case.tables.items()}
    return PipelineSpec(case.declarations, tables, listed, cells)


class Cluster:
    """Workers with their caches, cells with their states."""

    def __init__(self, spec: PipelineSpec, workers: int = 1) -> None:
        self.layout = Layout(spec)
        self.states = [FakeMapState() for _ in range(spec.cells)]
        self.caches = [CellCache() for _ in range(workers)]
        self.cache_outcomes: list[str] = []

    def push(
        self,
        step: Push,
        worker: Callable[[], int] | None = None,
        on_stage: StageHook | None = None,
        commands: Sequence[ControlCommand] = (),
    ) -> list[OutputRow]:
        """One micro-batch with the commands read in it; if an attempt raises, nothing is committed."""
        spec = self.layout.spec
        inbox: dict[int, list[Any]] = {key: [] for key in find_cell_keys(spec.cells)}
        for stream in spec.streams:
            table = step.batches.get(stream.name)
            if table is not None and table.num_rows:
                packer = Packer(self.layout, stream, spec.maintenance.packed_bytes)
                halves = [table.slice(0, table.num_rows // 2), table.slice(table.num_rows // 2)]
                for part, half in enumerate(halves):
                    rows = packer.pack(half, part, 0).to_pylist() if half.num_rows else []
                    for row in reversed(rows):  # the shuffle keeps no order
                        inbox[row.pop("cell")].append(tuple(row.values()))
        for command in commands:
            for rows in inbox.values():
                rows.append((-1, COMMAND, 0, 0, ALWAYS, command.encode()))
        attempt = copy.deepcopy(self.states)
        out: list[OutputRow] = []
        for number, key in enumerate(find_cell_keys(spec.cells)):
            if inbox[key]:
                cache = self.caches[worker() if worker else 0]
                state = CellState("run", self.layout, attempt[number], cache)
                for written in state.step(number, inbox[key], on_stage or _do_nothing):
                    out += written
        self.states = attempt
        self.cache_outcomes += [json.loads(data)["how"] for _, kind, _, _, data in out if kind == METRICS]
        return out

    def decode_tables(self, outputs: list[OutputRow], kind: str, name: str) -> list[pa.Table]:
        return [decode_table(data) for _, k, n, _, data in outputs if (k, n) == (kind, name)]


def _do_nothing(stage: str, cell: int, version: int) -> None:
    del stage, cell, version
