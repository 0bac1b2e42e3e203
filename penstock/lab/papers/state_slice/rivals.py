"""Strategies to run many queries over one join, on the same windows and kernels: State-Slice and its rivals.

All strategies process the same pushes and build the result table of every query. The rivals work on whole columns, but
once for every result and query: that is the cost of sharing without slices.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.engine import Engine
from penstock.join import JoinOperator
from penstock.lab.papers.state_slice.streams import SliceQuery, build_engine, build_select
from penstock.lab.workloads import Integers, PushTables


@dataclass(frozen=True)
class StateSize:
    """The state of all joins: rows, the bytes of the rows, and the bytes of the rings allocated for them."""

    rows: int
    row_bytes: float
    allocated_bytes: int


class SharingStrategy(Protocol):
    """A set of running queries."""

    def push(self, data: PushTables) -> list[pa.Table]:
        """Process a push; returns the new results of each query."""

    def measure_state(self) -> StateSize: ...


def measure_engine_state(engine: Engine) -> StateSize:
    joins = [node.operator for node in engine.graph if isinstance(node.operator, JoinOperator)]
    stores = [store for join in joins for store in join.tree.stores.values()]
    return StateSize(
        sum(len(store) for store in stores),
        sum(store.row_bytes * len(store) for store in stores),
        sum(store.nbytes for store in stores),
    )


class EngineStrategy:
    """The queries as written, in an engine that shares joins or does not."""

    share: bool

    def __init__(self, queries: Sequence[SliceQuery]) -> None:
        self.engine = build_engine(share=self.share, queries=queries)

    def push(self, data: PushTables) -> list[pa.Table]:
        return list(self.engine.push(data).values())

    def measure_state(self) -> StateSize:
        return measure_engine_state(self.engine)


class StateSlice(EngineStrategy):
    """State-Slice: one join for all queries. A tuple is kept until no query needs it; results are selected by age."""

    share = True


class Unshared(EngineStrategy):
    """One join for each query."""

    share = False


class PullUp:
    """Selection pull-up: one join over the largest window without filters, and a router that selects results."""

    def __init__(self, queries: Sequence[SliceQuery]) -> None:
        self._queries = queries
        self._longest = max(query.window for query in queries)
        self.engine = build_engine(queries=[SliceQuery(self._longest)])

    def push(self, data: PushTables) -> list[pa.Table]:
        joined = self.engine.push(data)["q0"]
        ages, values = _compute_ages(joined), joined.column("v").to_numpy()
        return [self._route_results(joined, query, ages, values) for query in self._queries]

    def _route_results(
        self, joined: pa.Table, query: SliceQuery, ages: Integers, values: NDArray[np.float64]
    ) -> pa.Table:
        masks = [ages < query.window] if query.window < self._longest else []
        masks += [values < query.share] if query.share < 1 else []
        return _filter_rows(joined, masks)

    def measure_state(self) -> StateSize:
        return measure_engine_state(self.engine)


class PushDown:
    """Push-down by stream partition: A is divided by the filters that its tuples pass.

    Each part has a join over the largest window of its queries, with a copy of the window of B. The results of a query
    are those of its parts, merged by time.
    """

    def __init__(self, queries: Sequence[SliceQuery]) -> None:
        self._queries = queries
        highs = sorted({query.share for query in queries})
        lows = [0.0, *highs[:-1]]
        self._parts = [(high, max(q.window for q in queries if q.share >= high)) for high in highs]
        self.engine = build_engine(share=False)
        for place, (low, (high, window)) in enumerate(zip(lows, self._parts, strict=True)):
            tests = [f" AND a.v >= {low}"] if low > 0 else []
            tests += [f" AND a.v < {high}"] if high < 1 else []
            self.engine.query(f"part{place}", build_select(window, "".join(tests)))

    def push(self, data: PushTables) -> list[pa.Table]:
        out = self.engine.push(data)
        joined = [out[f"part{place}"] for place in range(len(self._parts))]
        ages = [_compute_ages(table) for table in joined]
        return [self._unite_parts(query, joined, ages) for query in self._queries]

    def _unite_parts(self, query: SliceQuery, joined: Sequence[pa.Table], ages: Sequence[Integers]) -> pa.Table:
        own = [
            _filter_rows(table, [age < query.window] if query.window < window else [])
            for table, age, (high, window) in zip(joined, ages, self._parts, strict=True)
            if high <= query.share
        ]
        if len(own) == 1:
            return own[0]
        table = pa.concat_tables(own)
        return table.take(pa.array(np.argsort(table.column("_ts").to_numpy(), kind="stable")))

    def measure_state(self) -> StateSize:
        return measure_engine_state(self.engine)


SHARING_STRATEGIES: dict[str, type[StateSlice | PullUp | PushDown | Unshared]] = {
    "state_slice": StateSlice,
    "pull_up": PullUp,
    "push_down": PushDown,
    "unshared": Unshared,
}


def _compute_ages(joined: pa.Table) -> Integers:
    ages: Integers = np.abs(joined.column("a_ts").to_numpy() - joined.column("b_ts").to_numpy())
    return ages


def _filter_rows(table: pa.Table, masks: Iterable[NDArray[np.bool_]]) -> pa.Table:
    masks = list(masks)
    return table.take(pa.array(np.flatnonzero(reduce(np.logical_and, masks)))) if masks else table
