"""The graphs of the query-graph paper's experiments as queries of the engine, run in virtual time.

Each graph is one query in CQL, with derived streams below it. The operators, their arcs and the scheduler are those of
the engine. Signals differ in how time reaches an operator that waits for it: with the tuples that operators write
(`NO_SIGNALS`), with heartbeats of the sources (`build_heartbeats`), on demand from the clock of a source (`ETS_ARCS`).
The rivals are the same operators with a part taken away: without signals an outlet only has the time of its rows; with
punctuation and heartbeats the ETS arcs are cut, and each operator carries time in steps of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine import Engine
from penstock.graph import Buffer, Node
from penstock.lab.papers.query_graph.virtual_time import Event, StepCost, VirtualRunner
from penstock.lab.workloads import SECOND, Integers
from penstock.ops import Batch, FrontierBypass, SourceOperator
from penstock.state import ALWAYS

SCHEMA = {"ts": "bigint", "v": "double"}
SELECTED = 0.95
"""The part of the tuples that a selection keeps."""
_FREE = "stream "
"""Operators that only pass on the rows of a derived stream cost nothing."""


@dataclass(frozen=True)
class Signals:
    """How time moves through the graph."""

    name: str
    on_demand: bool = False
    """Whether idle operators can request a timestamp from the sources."""
    arcs: bool = True
    """Whether frontiers bypass operators that do not merge by time."""
    by_rows: bool = False
    """Whether only the rows that an operator writes move the time of its outlet."""
    period: int | None = None
    """Microseconds between two heartbeats."""


NO_SIGNALS = Signals("none", by_rows=True)
PUNCTUATION = Signals("punctuation", on_demand=True, arcs=False)
ETS_ARCS = Signals("ETS arcs", on_demand=True)


def build_heartbeats(period: int) -> Signals:
    return Signals(f"heartbeat {period / 1000:g} ms", arcs=False, period=period)


@dataclass(frozen=True)
class QueryTexts:
    """A query, and the derived streams below it, in CQL."""

    query: str
    streams: Mapping[str, str]


def _unite(first: str, second: str) -> str:
    return " UNION ALL ".join(f"SELECT v FROM {name} [NOW] WHERE v < {SELECTED}" for name in (first, second))


SIMPLE_UNION = QueryTexts(_unite("a", "b"), {})
"""Figure 1: a union of two selections."""
NESTED_UNIONS = QueryTexts(
    _unite("s1", "s2"),
    {
        "u1": _unite("a", "b"),
        "u2": _unite("c", "d"),
        "s1": "SELECT MAX(v) AS v FROM u1 [ROWS 1]",
        "s2": "SELECT MAX(v) AS v FROM u2 [ROWS 1]",
    },
)
"""Figures 5 and 10: two unions of selections, each followed by an aggregate and a selection, and their union."""


def write_slide_union(slide: int) -> QueryTexts:
    """Figure 16: a union of a selection and an aggregate with SLIDE, counted in tuples."""
    summed = f"SELECT MAX(v) AS v FROM b [ROWS {slide} SLIDE {slide}]"
    return QueryTexts(f"SELECT v FROM a [NOW] WHERE v < {SELECTED} UNION ALL {summed}", {})


class RowTimedBuffer(Buffer):
    """An outlet whose time is that of the last row written."""

    def write(self, batch: Batch) -> None:
        super().write(batch)
        if len(batch):
            super().advance(int(batch.times[-1]))

    def advance(self, frontier: int) -> None:
        """Time without rows is lost."""


class PunctuationOperator:
    """An operator whose frontier is processed like a tuple, in place of its ETS arc."""

    def __init__(self, node: Node) -> None:
        self._operator, (self._reader,), self._outlet = node.operator, node.readers, node.outlet
        self._last_frontier = int(ALWAYS)

    @property
    def id(self) -> str:
        return self._operator.id

    def has_work(self) -> bool:
        return self._operator.has_work() or self._reader.frontier > self._last_frontier

    def run(self, budget: int) -> int:
        done = self._operator.run(budget) if self._operator.has_work() else 0
        if not self._operator.has_work():
            self._last_frontier = self._reader.frontier
            self._outlet.advance(self._last_frontier)
        return done

    def metrics(self) -> dict[str, object]:
        return self._operator.metrics()


def play(
    texts: QueryTexts,
    signals: Signals,
    arrivals: Mapping[str, Integers],
    strategy: str = "dfs",
    cost: StepCost | None = None,
    seed: int = 1,
) -> VirtualRunner:
    """Run the query in virtual time on tuples that arrive at these instants, each with a random value."""
    virtual: VirtualRunner | None = None
    engine = Engine(batch=1, schedule=strategy, warn=False, clock=lambda: 0 if virtual is None else virtual.clock())
    for name in arrivals:
        engine.stream(name, SCHEMA, time="ts", timestamps="internal" if signals.on_demand else "external")
    for name, text in texts.streams.items():
        engine.derive(name, text)
    engine.query("out", texts.query)
    *_, last = engine.graph
    virtual = VirtualRunner(engine.graph, last.outlet.open(), cost or build_unit_cost(1))
    if signals.by_rows:
        _ignore_time(engine)
    if not signals.arcs:
        _cut_arcs(engine)
    sources = {
        node.operator.stream.name: node.operator for node in engine.graph if isinstance(node.operator, SourceOperator)
    }
    virtual.run_events([*_list_arrivals(sources, arrivals, seed), *_list_heartbeats(sources, arrivals, signals.period)])
    return virtual


def _cut_arcs(engine: Engine) -> None:
    for node in engine.graph:
        if isinstance(node.operator, FrontierBypass):
            node.replace_bypass(PunctuationOperator(node))


def _ignore_time(engine: Engine) -> None:
    """Let the rows that an operator writes be all that moves the time of its outlet."""
    for node in engine.graph:
        for reader in node.readers:
            reader.cut_bypass()
        if node.readers:
            node.outlet.__class__ = RowTimedBuffer


def _list_arrivals(
    sources: Mapping[str, SourceOperator], arrivals: Mapping[str, Integers], seed: int
) -> Iterator[Event]:
    rng = np.random.default_rng(seed)
    for name, times in arrivals.items():
        for at, value in zip(times, rng.random(times.size), strict=True):
            columns = {"ts": pa.array([at]), "v": pa.array([value])}
            yield Event(int(at), _make_feed(sources[name], np.array([at]), columns))


def _list_heartbeats(
    sources: Mapping[str, SourceOperator], arrivals: Mapping[str, Integers], period: int | None
) -> Iterator[Event]:
    if period is not None:
        end = max(int(times[-1]) for times in arrivals.values())
        for at in range(period, end + period, period):
            for source in sources.values():
                yield Event(at, _make_advance(source, at))


def _make_feed(source: SourceOperator, times: Integers, columns: dict[str, pa.Array]) -> Callable[[], object]:
    return lambda: source.feed(times, columns)


def _make_advance(source: SourceOperator, at: int) -> Callable[[], object]:
    return lambda: source.advance(at)


# ── arrivals, costs, measures ────────────────────────────────────────────────────────────────────────────────────────


def generate_poisson(rate: float, seconds: float, seed: int, burst: int = 1) -> Integers:
    """Poisson arrivals at a mean rate, in bursts of tuples that are one microsecond apart."""
    rng = np.random.default_rng(seed)
    count = max(1, int(rate * seconds / burst))
    starts = np.cumsum(rng.exponential(burst / rate * SECOND, count)).astype(np.int64)
    return np.sort((starts[:, np.newaxis] + np.arange(burst)).ravel())


def is_free(node: Node) -> bool:
    """Whether the steps of an operator cost nothing: a source, or the rows of a derived stream."""
    return not node.readers or node.id.startswith(_FREE)


def build_unit_cost(cost: int) -> StepCost:
    """The same cost for every tuple, and for every step that only moves time."""
    return lambda node, done: 0 if is_free(node) else cost * max(done, 1)


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
