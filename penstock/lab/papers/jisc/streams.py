"""The workload of the JISC paper's experiments: n joins on one attribute, windows of equal size, uniform data.

Each stream has one tuple per tick and repeats all keys in a random order, which differs between streams. So every
window has each key exactly once, every tuple finds one match in every other stream, and all states have the size of a
window. Independently drawn keys would also be uniform, but the sizes of the states of 20 joins would have a standard
deviation of ten times their mean (E[N²]ⁿ = 2ⁿ for Poisson counts), which would dominate the measurement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from penstock.cql import Catalog, Select, Stream, bind_query
from penstock.lab.workloads import Integers
from penstock.plan import JoinPlan, Tree, build_join_graph, build_left_deep, plan_join

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64())])

StreamOrder = tuple[str, ...]


@dataclass(frozen=True)
class TickBatch:
    """The tuples of some ticks: the times, the same for all streams, and the keys of each stream."""

    times: Integers
    keys: Mapping[str, pa.Array]

    def __len__(self) -> int:
        return self.times.size * len(self.keys)


@dataclass(frozen=True)
class RoundRobinStreams:
    """Streams for `joins` joins with windows of `window` tuples each."""

    joins: int
    window: int
    seed: int = 7

    @property
    def names(self) -> StreamOrder:
        return tuple(f"s{number:02}" for number in range(self.joins + 1))

    @property
    def cql(self) -> str:
        sources = ", ".join(f"{name} [RANGE {self.window}]" for name in self.names)
        equal = " AND ".join(f"{self.names[0]}.k = {name}.k" for name in self.names[1:])
        return f"SELECT {self.names[0]}.k FROM {sources} WHERE {equal}"

    def plan_order(self, order: Sequence[str]) -> JoinPlan:
        """The left-deep plan of an order."""
        return self.plan_tree(build_left_deep(order))

    def plan_tree(self, tree: Tree) -> JoinPlan:
        select = self._select
        graph = build_join_graph(self.names, select.where)
        return plan_join(graph, select.sources, tuple(item.expr for item in select.items), tree)

    @cached_property
    def _select(self) -> Select:
        catalog = Catalog()
        for name in self.names:
            catalog.relations.add(Stream(name, SCHEMA, "ts"))
        body = bind_query(self.cql, catalog).body
        assert isinstance(body, Select)
        return body

    def generate_ticks(self, begin: int, end: int) -> TickBatch:
        times = np.arange(begin, end)
        return TickBatch(
            times, {name: pa.array(order[times % self.window]) for name, order in self._key_orders.items()}
        )

    @cached_property
    def _key_orders(self) -> dict[str, Integers]:
        rng = np.random.default_rng(self.seed)
        return {name: rng.permutation(self.window) for name in self.names}

    def cut_batches(self, begin: int, end: int, size: int) -> Iterator[TickBatch]:
        """The ticks from begin to end in batches of about `size` tuples over all streams."""
        length = max(1, size // len(self.names))
        return (self.generate_ticks(first, min(first + length, end)) for first in range(begin, end, length))

    def swap_order(self, states: str) -> StreamOrder:
        """An order whose plan has `one` new state, the one below the root, or in which `all` states are new."""
        names = self.names
        return (*names[:-2], names[-1], names[-2]) if states == "one" else names[::-1]
