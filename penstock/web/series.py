"""Time lines: one point for each pair of statuses. Pure functions over frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.engine import EngineStatus


@dataclass(frozen=True)
class SeriesPoint:
    """What happened between two readings."""

    time: float
    """Seconds since the epoch."""
    rows_in: float
    """Tuples per second."""
    results: float
    """Results per second."""
    latency: float | None
    """Milliseconds that a push or a micro-batch took on average; None if there was none."""
    memory: int
    """Bytes of windows, states and demand."""
    suppressed: float
    """Rows per second that were not built because no result can use them yet."""
    completeness: float
    """The least complete query."""
    freshness: float
    """The part of results that were fresh when they were found."""
    lags: Mapping[str, float]
    """By stream, how far its frontier is behind that of the furthest one, in seconds or ticks."""


def measure_lags(status: EngineStatus) -> dict[str, float]:
    """How far each stream is behind the furthest one: the first in this order holds the joins back."""
    frontiers = {each.name: each.frontier for each in status.streams if not each.derived and each.frontier is not None}
    newest = max(frontiers.values(), default=0.0)
    return {name: newest - frontier for name, frontier in frontiers.items()}


def measure_point(before: EngineStatus, after: EngineStatus, seconds: float, now: float) -> SeriesPoint:
    """The point between two statuses of the same engine, which are `seconds` apart."""
    span = max(seconds, 1e-6)
    arrived = _count_arrived(after) - _count_arrived(before)
    found = _count_found(before, after)
    hidden = {each.id: each.suppressed for each in before.operators}
    suppressed = sum(max(0, each.suppressed - hidden.get(each.id, 0)) for each in after.operators)
    pushes = after.pushes - before.pushes
    stale, emitted = sum(after.counts.stale.values()), sum(after.counts.emitted)
    return SeriesPoint(
        now, max(0, arrived) / span, found / span,
        (after.busy - before.busy) * 1000 / pushes if pushes > 0 else None,
        sum(each.bytes for each in after.operators), suppressed / span,
        min(after.counts.completeness.values(), default=1.0),
        1.0 if not stale else emitted / (emitted + stale), measure_lags(after),
    )  # fmt: skip


def _count_found(before: EngineStatus, after: EngineStatus) -> int:
    """The results between two statuses; those of a query that has begun again count from its begin."""
    counted = after.counts.emitted
    if before.facts is after.facts:
        risen = sum(counted) - sum(before.counts.emitted)
        derived = [place for place, facts in enumerate(after.facts) if facts.derived]
        return risen - sum(counted[place] - before.counts.emitted[place] for place in derived)
    known = {each.name: each.emitted for each in before.queries}
    return sum(max(0, each.emitted - known.get(each.name, 0)) for each in after.queries if not each.derived)


def _count_arrived(status: EngineStatus) -> int:
    return sum(each.arrived for each in status.streams if not each.derived)


@dataclass(frozen=True)
class GraphEvent:
    """Something that changed: a query, a plan, or a decision of the controller with its numbers."""

    time: float
    kind: str
    """added, dropped, altered, plan, or decision."""
    query: str
    text: str
    before: str | None = None
    after: str | None = None
    numbers: Mapping[str, float] | None = None


def list_changes(before: EngineStatus, after: EngineStatus, now: float) -> list[GraphEvent]:
    """What changed between two statuses: queries that came, went, or have another text or plan."""
    if before.facts is after.facts:
        return []
    old, new = ({each.name: each for each in status.facts} for status in (before, after))
    events = [GraphEvent(now, "added", name, f"{name} added", after=new[name].plan) for name in new if name not in old]
    events += [GraphEvent(now, "dropped", name, f"{name} dropped") for name in old if name not in new]
    for name in new.keys() & old.keys():
        was, now_is = old[name], new[name]
        if was.text != now_is.text:
            events.append(GraphEvent(now, "altered", name, f"{name} has another text", was.text, now_is.text))
        elif was.plan != now_is.plan:
            text = f"{name} continues with the plan {now_is.plan}"
            events.append(GraphEvent(now, "plan", name, text, was.plan, now_is.plan))
        if was.error is None and now_is.error is not None:
            events.append(GraphEvent(now, "failed", name, f"{name} stopped: {now_is.error}"))
    return events
