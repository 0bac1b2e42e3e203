"""The graphs of the query-graph paper's experiments, run in virtual time, and the rivals of ETS arcs.

The rivals differ in how time moves through an operator that does not merge by time. From the slowest to the fastest:
with tuples only (`NO_SIGNALS`); with every heartbeat or on-demand punctuation through each operator
(`build_heartbeats`, `PUNCTUATION`); directly to the next operator that merges (`ETS_ARCS`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.cql import Stream
from penstock.graph import Buffer, Graph, Node
from penstock.lab.papers.query_graph.virtual_time import Event, StepCost, VirtualRunner
from penstock.lab.workloads import SECOND, Integers
from penstock.ops import Batch, ClockedSource, FrontierBypass, Inlet, Outlet, SourceOperator, UnionOperator
from penstock.state import ALWAYS

SCHEMA = pa.schema([("ts", pa.int64()), ("v", pa.float64())])

BatchFunction = Callable[[Batch], Batch]


class UnaryOperator:
    """An operator with one input that does not merge by time. Only the tuples it writes move the time of its outlet."""

    def __init__(self, id_: str, inlet: Inlet, outlet: Outlet, work: BatchFunction) -> None:
        self.id = id_
        self._inlet = inlet
        self._outlet = outlet
        self._function = work

    def has_work(self) -> bool:
        return self._inlet.next_time() is not None

    def run(self, budget: int) -> int:
        done = 0
        for batch in self._inlet.take(budget):
            out = self._function(batch)
            self._outlet.write(out)
            self._advance_outlet(batch, out)
            done += len(batch)
        return done

    def metrics(self) -> dict[str, object]:
        return {}

    def _advance_outlet(self, batch: Batch, out: Batch) -> None:  # noqa: ARG002 - subclasses use the tuples read
        if len(out):
            self._outlet.advance(int(out.times[-1]))


class EtsOperator(UnaryOperator, FrontierBypass):
    """The operator of the engine: the tuples it reads move the time of its outlet, and frontiers bypass it."""

    def _advance_outlet(self, batch: Batch, out: Batch) -> None:  # noqa: ARG002
        self._outlet.advance(self._inlet.frontier if self._inlet.next_time() is None else int(batch.times[-1]))


class PunctuationOperator(EtsOperator):
    """Punctuation: every operator processes a frontier like a tuple."""

    _last_frontier = int(ALWAYS)

    def has_work(self) -> bool:
        return super().has_work() or self._inlet.frontier > self._last_frontier

    def run(self, budget: int) -> int:
        done = super().run(budget)
        if self._inlet.next_time() is None:
            self._last_frontier = self._inlet.frontier
            self._outlet.advance(self._last_frontier)
        return done


def build_selection(part: float) -> BatchFunction:
    """A selection that keeps this share of uniform values."""

    def select(batch: Batch) -> Batch:
        chosen = pc.less(batch.columns["v"], part).to_numpy(zero_copy_only=False)
        return batch if chosen.all() else batch.take(np.flatnonzero(chosen))

    return select


class SlideAggregate:
    """An aggregate that writes one tuple for every `size` tuples it reads."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._seen = 0

    def __call__(self, batch: Batch) -> Batch:
        numbers = np.arange(self._seen + 1, self._seen + len(batch) + 1)
        self._seen += len(batch)
        return batch.take(np.flatnonzero(numbers % self._size == 0))


@dataclass(frozen=True)
class Signals:
    """How time moves through the graph."""

    name: str
    operator: type[UnaryOperator]
    """The class of the operators that do not merge by time."""
    on_demand: bool = False
    """Whether idle operators can request a timestamp from the sources."""
    period: int | None = None
    """Microseconds between two heartbeats."""


NO_SIGNALS = Signals("none", UnaryOperator)
PUNCTUATION = Signals("punctuation", PunctuationOperator, on_demand=True)
ETS_ARCS = Signals("ETS arcs", EtsOperator, on_demand=True)
BY_DATA = Signals("by data", EtsOperator)
"""The engine without a clock."""


def build_heartbeats(period: int) -> Signals:
    return Signals(f"heartbeat {period / 1000:g} ms", PunctuationOperator, period=period)


@dataclass
class GraphBuilder:
    """Builds a graph and runs it in virtual time."""

    signals: Signals
    strategy: str = "dfs"
    schema: pa.Schema = SCHEMA
    graph: Graph = field(default_factory=Graph)
    sources: dict[str, SourceOperator] = field(default_factory=dict)
    _clock: Callable[[], int] = lambda: 0

    def add_source(self, name: str) -> Node:
        outlet, stream = Buffer(), Stream(name, self.schema, "ts", timestamps="internal")
        if self.signals.on_demand:
            operator: SourceOperator = ClockedSource(name, stream, outlet, self.clock)
        else:
            operator = SourceOperator(name, stream, outlet)
        self.sources[name] = operator
        return self.graph.add(operator, outlet)

    def add_operator(self, name: str, before: Node, work: BatchFunction) -> Node:
        reader, outlet = before.outlet.open(), Buffer()
        return self.graph.add(self.signals.operator(name, reader, outlet, work), outlet, {reader: before})

    def add_union(self, name: str, *before: Node) -> Node:
        readers, outlet = {node.outlet.open(): node for node in before}, Buffer()
        return self.graph.add(UnionOperator(name, list(readers), outlet, self.schema.names), outlet, readers)

    def clock(self) -> int:
        return self._clock()

    def play(self, last: Node, arrivals: dict[str, Integers], cost: StepCost, seed: int = 1) -> VirtualRunner:
        """Run the graph with tuples that arrive at these instants, each with a random value."""
        self.graph.schedule(self.strategy)
        virtual = VirtualRunner(self.graph, last.outlet.open(), cost)
        self._clock = virtual.clock
        virtual.run_events([*self._generate_arrivals(arrivals, seed), *self._generate_heartbeats(arrivals)])
        return virtual

    def _generate_arrivals(self, arrivals: dict[str, Integers], seed: int) -> Iterator[Event]:
        rng = np.random.default_rng(seed)
        for name, times in arrivals.items():
            for at, value in zip(times, rng.random(times.size), strict=True):
                columns = {"ts": pa.array([at]), "v": pa.array([value])}
                yield Event(int(at), _make_feed(self.sources[name], np.array([at]), columns))

    def _generate_heartbeats(self, arrivals: dict[str, Integers]) -> Iterator[Event]:
        if self.signals.period is not None:
            end = max(int(times[-1]) for times in arrivals.values())
            for at in range(self.signals.period, end + self.signals.period, self.signals.period):
                for source in self.sources.values():
                    yield Event(at, _make_advance(source, at))


def _make_feed(source: SourceOperator, times: Integers, columns: dict[str, pa.Array]) -> Callable[[], object]:
    return lambda: source.feed(times, columns)


def _make_advance(source: SourceOperator, at: int) -> Callable[[], object]:
    return lambda: source.advance(at)


def generate_poisson(rate: float, seconds: float, seed: int, burst: int = 1) -> Integers:
    """Poisson arrivals at a mean rate, in bursts of tuples that are one microsecond apart."""
    rng = np.random.default_rng(seed)
    count = max(1, int(rate * seconds / burst))
    starts = np.cumsum(rng.exponential(burst / rate * SECOND, count)).astype(np.int64)
    return np.sort((starts[:, np.newaxis] + np.arange(burst)).ravel())


def build_simple_union(bench: GraphBuilder) -> Node:
    """Figure 1: a union of two selections of 95 %."""
    selected = (bench.add_operator(f"σ{name}", bench.add_source(name), build_selection(0.95)) for name in "ab")
    return bench.add_union("∪", *selected)


def build_nested_unions(bench: GraphBuilder, slide: int = 1) -> Node:
    """Figures 5 and 10: two unions of selections, each followed by an aggregate and a selection, and their union."""
    halves = []
    for number, names in enumerate(("ab", "cd"), start=1):
        selected = [bench.add_operator(f"σ{name}", bench.add_source(name), build_selection(0.95)) for name in names]
        summed = bench.add_operator(f"Σ{number}", bench.add_union(f"∪{number}", *selected), SlideAggregate(slide))
        halves.append(bench.add_operator(f"σ{number}", summed, build_selection(0.95)))
    return bench.add_union("∪", *halves)


def build_slide_union(bench: GraphBuilder, slide: int) -> Node:
    """Figure 16: a union of a selection and an aggregate with SLIDE."""
    selected = bench.add_operator("σa", bench.add_source("a"), build_selection(0.95))
    return bench.add_union("∪", selected, bench.add_operator("Σb", bench.add_source("b"), SlideAggregate(slide)))


def build_path(bench: GraphBuilder, length: int) -> Node:
    """Figure 3: a path of operators."""
    node = bench.add_source("a")
    for number in range(1, length + 1):
        node = bench.add_operator(f"Q{number}", node, build_selection(1.0))
    return node


def build_unit_cost(cost: int) -> StepCost:
    """The same cost for every tuple, and for every step that only moves time; sources cost nothing."""
    return lambda node, done: cost * max(done, 1) if node.readers else 0


def build_measured_cost() -> StepCost:
    """The measured cost of a step: the time since the step before it ended, in microseconds, at least one."""
    last = time.perf_counter_ns()

    def cost(node: Node, done: int) -> int:  # noqa: ARG001
        nonlocal last
        now = time.perf_counter_ns()
        last, begin = now, last
        return max(1, (now - begin) // 1000)

    return cost


def compute_latencies(out: Sequence[tuple[int, int]]) -> Integers:
    """The latency of each result: the time it left less its timestamp."""
    return np.array([left - stamp for left, stamp in out], np.int64)


def compute_burstiness(out: Sequence[tuple[int, int]], width: int = SECOND // 50) -> float:
    """(max - min) / mean of the results per 0.02 s. The first and the last interval do not count."""
    counts = np.bincount([left // width for left, _ in out])[1:-1]
    return float((counts.max() - counts.min()) / counts.mean())
