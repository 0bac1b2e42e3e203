"""Ways to run many queries over one join, on the same windows and kernels: State-Slice and its rivals.

All of them take the same pushes and give every query its table. Each rival works on whole columns; that it does so
once for every result and query is what sharing without slices costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.engine import Engine
from penstock.lab.papers.state_slice.streams import PushTables, SliceQuery, build_engine, build_select
from penstock.state.code_set import Mask


@dataclass(frozen=True)
class StateSize:
    """The state of all joins: rows, the bytes of those rows, and the bytes of the rings that were made for them."""

    rows: int
    row_bytes: float
    allocated_bytes: int


class SharingStrategy(Protocol):
    """Some queries that are running."""

    def push(self, data: PushTables) -> list[pa.Table]:
        """What became certain, by query; all tables are made."""

    def measure_state(self) -> StateSize: ...


def measure_engine_state(running: Engine) -> StateSize:
    stores = [store for join in running._join_registry for store in join.tree.stores.values()]
    return StateSize(
        sum(len(store) for store in stores),
        sum(store.row_bytes * len(store) for store in stores),
        sum(store.nbytes for store in stores),
    )


class EngineStrategy:
    """The queries as they are written: State-Slice, or each on its own."""

    share: bool

    def __init__(self, queries: Sequence[SliceQuery]) -> None:
        self.engine = build_engine(share=self.share, queries=queries)

    def push(self, data: PushTables) -> list[pa.Table]:
        return list(self.engine.push(data).values())

    def measure_state(self) -> StateSize:
        return measure_engine_state(self.engine)


class StateSlice(EngineStrategy):
    """One join for all: tuples are kept as long as somebody wants them, results are found by age."""

    share = True


class CpuOpt(StateSlice):
    """State-Slice whose slices are merged for the least work, once it has seen some pushes."""

    _RESLICE_AFTER = 10
    _pushes = 0

    def push(self, data: PushTables) -> list[pa.Table]:
        self._pushes += 1
        if self._pushes == self._RESLICE_AFTER:
            self.engine.reslice("cpu-opt")
        return super().push(data)


class Unshared(EngineStrategy):
    """A join for each query."""

    share = False


class PullUp:
    """One join over the largest window, nothing filtered below it; a router gives each query its results."""

    def __init__(self, queries: Sequence[SliceQuery]) -> None:
        self._queries = queries
        self._longest = max(query.window for query in queries)
        self.engine = build_engine(queries=[SliceQuery(self._longest)])

    def push(self, data: PushTables) -> list[pa.Table]:
        joined = self.engine.push(data)["q0"]
        ages, values = _compute_ages(joined), joined.column("v").to_numpy()
        return [self._route_results(joined, query, ages, values) for query in self._queries]

    def _route_results(self, joined: pa.Table, query: SliceQuery, ages: Mask, values: Mask) -> pa.Table:
        wanted = [ages < query.window] if query.window < self._longest else []
        wanted += [values < query.share] if query.share < 1 else []
        return _filter_rows(joined, wanted)

    def measure_state(self) -> StateSize:
        return measure_engine_state(self.engine)


class PushDown:
    """A is divided by who wants its tuples; each part has a join over the window it needs, with a copy of B's.

    A query unites the results of its parts in temporal order.
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

    def _unite_parts(self, query: SliceQuery, joined: Sequence[pa.Table], ages: Sequence[Mask]) -> pa.Table:
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


def _compute_ages(joined: pa.Table) -> Mask:
    ages: Mask = np.abs(joined.column("a_ts").to_numpy() - joined.column("b_ts").to_numpy())
    return ages


def _filter_rows(table: pa.Table, masks: Iterable[Mask]) -> pa.Table:
    masks = list(masks)
    return table.take(pa.array(np.flatnonzero(reduce(np.logical_and, masks)))) if masks else table
