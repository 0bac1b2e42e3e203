"""Runs of random cases on cells without a Spark session, with attempts that fail and workers that lose their state."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from cell_support import Cluster
from spark_support import merge_pushes, run_embedded

from penstock.engine import Engine
from penstock.join import JoinOperator, JoinTree, LeafStore, Member
from penstock.join.match_batch import PayloadView
from penstock.join.sharing.result_counts import ResultCounts
from penstock.ops import SourceOperator
from penstock.spark.control_command import ControlCommand
from penstock.spark.worker.cell_state import CellCache, OutputRow
from penstock.state import SHIPPED, Maintenance
from penstock.state.maintenance import SMALLEST
from penstock.testing import Case, Push, another_query, difference, random_case

FIRST = int(os.environ.get("PENSTOCK_FIRST_SEED", "0"))


CHUNKS = range(FIRST, FIRST + int(os.environ.get("PENSTOCK_SEEDS", "40")), 10)


class InjectedError(Exception):
    pass


def choose_maintenance(seed: int) -> Maintenance:
    """Odd seeds use the smallest thresholds."""
    return SMALLEST if seed % 2 else SHIPPED


def list_pushes(case: Case) -> list[Push]:
    return [step for step in case.steps if isinstance(step, Push)]


def check(seed: int, case: Case, cluster: Cluster, outputs: list[OutputRow], queries: dict[str, str]) -> None:
    wanted = run_embedded(case, queries)
    for name, text in queries.items():
        tables = cluster.decode_tables(outputs, "result", name)
        found = pa.concat_tables([wanted[name].schema.empty_table(), *tables])
        fault = difference(found, wanted[name])
        assert fault is None, f"seed {seed}, {len(cluster.states)} cells, {name}: {text}\n{fault}"


def draw_case(seed: int, most: int) -> tuple[Case, dict[str, str], random.Random]:
    rng = random.Random(seed)
    case = merge_pushes(random_case(seed, limit=1000), most)
    return case, {"q": case.query, **{f"q{i}": another_query(case, 10 * seed + i) for i in range(2)}}, rng


def push_until_committed(
    cluster: Cluster, step: Push, rng: random.Random, commands: Sequence[ControlCommand] = ()
) -> list[OutputRow]:
    """Repeat a micro-batch until it commits; attempts fail at random stages, on workers that change and lose caches."""
    while True:
        fault = (rng.choice(("ready", "mutated", "stored", "published")), rng.randrange(3), rng.random() < 0.3)

        def passed(stage: str, cell: int, version: int, fault: tuple[str, int, bool] = fault) -> None:
            del version
            if (stage, cell, True) == fault:
                raise InjectedError

        if rng.random() < 0.1:
            cluster.caches[rng.randrange(2)] = CellCache()
        try:
            return cluster.push(step, lambda: rng.randrange(2), passed, commands)
        except InjectedError:
            continue


INSIDE = (
    (JoinTree, "step"),
    (JoinOperator, "_emit"),
    (Member, "build_inserts"),
    (LeafStore, "ingest"),
    (ResultCounts, "distribute"),
    (PayloadView, "materialize"),
    (SourceOperator, "run"),
    (Engine, "query"),
    (JoinOperator, "metrics"),
)


class FailingCalls:
    """Makes one call of some method of the engine raise."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.left = -1
        self.error: BaseException = MemoryError()
        for owner, name in INSIDE:
            patch.setattr(owner, name, self._wrapped(getattr(owner, name)))

    def _wrapped(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left == -1:
                raise self.error
            return method(*args, **kwargs)

        return call
