"""What tests read of an engine that its public interface does not show, and the few ways they reach into it.

Tests use public behaviour first: results, `metrics()`, `explain()`. The rest is here, so that a change of the engine's
inner structure changes one file of the tests.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from threading import Thread
from typing import Any

import pyarrow as pa

import penstock as ps
from penstock.adapt import Controller, Decision
from penstock.engine.budgets import Budgets
from penstock.engine.query import RunningQuery
from penstock.graph import Buffer
from penstock.join import JoinOperator, JoinTree
from penstock.ops import SourceOperator
from penstock.state import Maintenance


def joins_of(engine: ps.Engine) -> list[JoinOperator]:
    """The join operators of an engine; queries that share a join have one together."""
    return list(engine._join_registry)


def tree_of(engine: ps.Engine) -> JoinTree:
    """The tree of the first join in the graph."""
    return next(node.operator.tree for node in engine._graph if isinstance(node.operator, JoinOperator))


def has_sorted_index(engine: ps.Engine, alias: str) -> bool:
    """Whether a leaf of the first join has a sorted index."""
    return bool(tree_of(engine).stores[alias].indexes._sorted)


def swap_some_sides(engine: ps.Engine, rng: random.Random) -> None:
    """Exchange driver and lazy child of some joins of two joins, where both may have a gate."""
    for join in joins_of(engine):
        for tree in join.trees.all:
            for node in tree.walk_joins():
                if node.joins_two_joins and node.lazy.gate is not None and rng.random() < 0.5:
                    tree.swap_sides(frozenset(node.plan.aliases))


def change_some_states(engine: ps.Engine, rng: random.Random) -> None:
    """Let some joins drop their states, and others have one again, where measurements may decide that."""
    for join in joins_of(engine):
        for tree in join.trees.all:
            for node in tree.walk_joins():
                measured = tree.find_policy(node.plan).states == "measured" and tree.shedding is None
                if measured and node.state_key is not None and rng.random() < 0.5:
                    tree.keep_rows(frozenset(node.plan.aliases), keeps=node.state is None)


def purged_until(tree: JoinTree) -> int:
    """The time until which rows that ended count as removed from a tree."""
    return tree._purged_until


def running_query(engine: ps.Engine, name: str) -> RunningQuery:
    return engine._registry[name]


def query_names(engine: ps.Engine) -> list[str]:
    """The names of running queries, in the order in which they were added."""
    return [running.name for running in engine._registry.queries.values()]


def operator_ids(engine: ps.Engine) -> list[str]:
    """The ids of the operators in the graph, in the order of the graph."""
    return [node.id for node in engine._graph]


def watch_steps(engine: ps.Engine, watch: Callable[[], None]) -> None:
    """Call a function after each step of the scheduler; it may call methods of the engine."""

    def nested(_node: Any, _done: int) -> None:
        with engine._guard.allow_nesting():
            watch()

    engine.scheduler.on_step = nested


def source_of(engine: ps.Engine, stream: str) -> SourceOperator:
    return engine._relations.streams[stream]


# ── options that a snapshot keeps ────────────────────────────────────────────────────────────────────────────────────


def maintenance_of(engine: ps.Engine) -> Maintenance:
    return engine._components.options.maintenance


def demand_of(engine: ps.Engine) -> str:
    """How the engine's queries keep demanded keys unless they choose another way."""
    return engine._components.options.demand


def slicing_of(engine: ps.Engine) -> str:
    """How new joins of an engine are sliced."""
    return engine._join_registry.slicing


# ── budgets and adaptation ───────────────────────────────────────────────────────────────────────────────────────────


def budgets_of(engine: ps.Engine) -> Budgets:
    return engine._budgets


def queries_with_own_budget(engine: ps.Engine) -> set[str]:
    """The queries with a budget of their own, and those exempt from the budget of the engine."""
    return set(engine._budgets._query_scopes)


def partners_found(engine: ps.Engine, query: str) -> int:
    """How many matches the probes of a query's joins have found under its budget."""
    return sum(each.shedding._partners_found for each in engine.overloads(query))


def controller_of(engine: ps.Engine) -> Controller | None:
    return engine._adaptation.controller


def decision_thread_of(engine: ps.Engine) -> Thread | None:
    controller = engine._adaptation.controller
    return None if controller is None else controller.decision_thread.thread


def deliver_decisions(engine: ps.Engine, decisions: Sequence[Decision]) -> None:
    """Give the controller decisions as if its thread had made them; the next push carries them out."""
    controller = engine._adaptation.controller
    assert controller is not None
    controller._outbox.put((list(decisions), 0.0))
    controller._pending = True


# ── parts ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def stored_batches(arc: Buffer) -> int:
    """How many batches an arc still holds for its readers."""
    return len(arc.held_batches)


def forecast_results(engine: ps.Engine, data: Mapping[str, pa.Table], *, width: int, room: float) -> float:
    """The results that the joins of an engine without states forecast for a push. `width`: the streams of each."""
    arrivals = engine._memory._list_arrivals(engine._relations.streams.prepare_rows(data))
    return engine._memory._forecast.estimate_bytes(joins_of(engine), arrivals, room) / (16 * (width + 2))
