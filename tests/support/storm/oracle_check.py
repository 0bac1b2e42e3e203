"""The comparison of a storm's results with the oracle.

Law: a query gives the results of the oracle for the tuples that arrive while it runs. A dropped query has given all
results before the frontier of its streams. A query with history gives at least these, at most the results of a query
from the start, and all of those from `complete_since` on. Under a budget rows may be missing, but none is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from penstock.testing import Advance
from penstock.testing.case import to_ticks
from penstock.testing.row_evaluator import to_plain
from storm.embedded_run import QueryPeriod
from storm.query_texts import PLAIN
from storm.scenario import Scenario

Span = tuple[float, float]  # open at both ends


def find_fault(scenario: Scenario, segments: Iterable[QueryPeriod]) -> str | None:
    """The first fault in the results of a storm, or None."""
    frontiers = Frontiers(scenario)
    for segment in segments:
        fault = _check_period(scenario, segment, frontiers)
        if fault is not None:
            end = "the end" if segment.last is None else segment.last
            return f"{segment.name}, steps {segment.first} to {end}: {segment.text.text}\n{fault}"
    return None


class Frontiers:
    """The frontier of every stream before each step; advances take effect with the next push."""

    def __init__(self, scenario: Scenario) -> None:
        known = {stream.name: -math.inf for stream in scenario.case.declarations}
        promised = dict(known)
        lateness = {stream.name: stream.lateness for stream in scenario.case.declarations}
        times = scenario.case.times
        self.before_step: list[dict[str, float]] = []
        for step in scenario.case.steps:
            self.before_step.append(dict(known))
            if isinstance(step, Advance):
                promised[step.stream] = max(promised[step.stream], to_ticks(step.value))
                continue
            for name, batch in step.batches.items():
                late = promised[name]
                found = [t for t in to_plain(batch.column(times[name])) if t is not None and t >= late]
                promised[name] = max([late, *(t - lateness[name] for t in found)])
            known = dict(promised)
        self.before_step.append(dict(known))

    def find_frontier(self, segment: QueryPeriod, step: int) -> float:
        """The time up to which the results of a query were certain before a step."""
        return min(self.before_step[step][stream] for stream in segment.text.streams)


def _check_period(scenario: Scenario, segment: QueryPeriod, frontiers: Frontiers) -> str | None:
    text = segment.text
    own = scenario.expected(text, segment.first)
    answer = pa.concat_tables([own.schema.empty_table(), *segment.answers])
    fault = _find_disorder(answer)
    if fault is not None:
        return fault
    exact = _find_exact_spans(scenario, segment, frontiers)
    if exact is None:
        return None
    fault = _compare(answer, own, None, "more than the oracle allows")
    if fault is not None and segment.has_history and text.kind == PLAIN:
        fault = _compare(answer, scenario.expected(text), None, "more than the oracle allows from the start on")
    fault = fault or _compare(own, answer, exact, "missing")
    if fault is not None or text.kind != PLAIN or not text.is_istream or text.reads:
        return fault
    for since in segment.complete_since:
        at = -math.inf if since is None else since
        spans = [(max(low, at - 1), high) for low, high in exact]
        fault = _compare(scenario.expected(text), answer, spans, f"missing, though complete since {since}")
        if fault is not None:
            return fault
    return None


def _find_disorder(answer: pa.Table) -> str | None:
    times = answer.column("_ts").cast(pa.int64()).to_numpy()
    back = (times[1:] < times[:-1]).nonzero()[0]
    if not back.size:
        return None
    return f"row {back[0] + 1} of time {times[back[0] + 1]} came after one of {times[back[0]]}"


def _find_exact_spans(scenario: Scenario, segment: QueryPeriod, frontiers: Frontiers) -> list[Span] | None:
    """The spans in which no row may be missing; None if a budget makes the results incomparable."""
    end = math.inf if segment.last is None else frontiers.find_frontier(segment, segment.last)
    limits = [event for event in scenario.events if event.action in ("budget", "lift")]
    last = len(scenario.case.steps) + 1 if segment.last is None else segment.last
    begins = next((event.step for event in limits if event.action == "budget"), last)
    if begins >= last:
        return [(-math.inf, end)]
    lifted = next((event.step for event in limits if event.action == "lift"), last)
    if lifted <= segment.first and begins <= lifted:
        return [(-math.inf, end)]
    if segment.text.kind != PLAIN:
        return None
    spans: list[Span] = [(-math.inf, min(end, frontiers.find_frontier(segment, begins)))]
    if lifted < last and segment.text.is_istream and not segment.text.reads:
        spans.append((frontiers.find_frontier(segment, lifted), end))
    return spans


def _compare(part: pa.Table, whole: pa.Table, spans: list[Span] | None, what: str) -> str | None:
    """Whether `whole` contains every row of `part` inside the spans, as often."""
    if spans is not None:
        part = _filter_spans(part, spans)
    if _is_same(part, whole):
        return None
    extra = _subtract(part, whole)
    if not extra.num_rows:
        return None
    shown = "\n".join(f"  {row}" for row in extra.slice(0, 5).to_pylist())
    return f"{extra.num_rows} rows {what} ({part.num_rows} beside {whole.num_rows}):\n{shown}"


def _filter_spans(table: pa.Table, spans: list[Span]) -> pa.Table:
    if spans == [(-math.inf, math.inf)]:
        return table
    times = table.column("_ts").cast(pa.int64()).to_numpy()
    mask = np.zeros(times.size, np.bool_)
    for low, high in spans:
        mask |= (times > np.float64(low)) & (times < np.float64(high))
    return table.filter(pa.array(mask))


def _is_same(one: pa.Table, other: pa.Table) -> bool:
    if one.num_rows != other.num_rows:
        return False
    order = [(name, "ascending") for name in one.column_names]
    return bool(one.sort_by(order).equals(other.sort_by(order)))


def _subtract(part: pa.Table, whole: pa.Table) -> pa.Table:
    """The rows of `part` that `whole` lacks, as a multiset."""
    import duckdb

    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("part", part)
        connection.register("whole", whole)
        return connection.sql("SELECT * FROM part EXCEPT ALL SELECT * FROM whole ORDER BY _ts").to_arrow_table()
