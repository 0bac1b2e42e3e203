"""Runs a case on an engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from penstock.cql import Stream
from penstock.testing.case import Advance, Case
from penstock.testing.row_evaluator import to_plain

Events = Callable[[Any, int], Any]
QUERY_NAME = "q"


def run(
    engine_factory: Callable[[], Any], case: Case, *, plan: str | None = None, events: Events | None = None
) -> pa.Table:
    """All results of the case's query, in the order of output: `run_all(...)["q"]`."""
    return run_all(engine_factory, case, plan=plan, events=events)[QUERY_NAME]


def run_all(
    engine_factory: Callable[[], Any], case: Case, *, plan: str | None = None, events: Events | None = None
) -> dict[str, pa.Table]:
    """All results of every query by its name, in the order of output.

    The name of the case's query is "q". `events(engine, i)` is called before step i (and once more before the final
    flush, with i = the number of steps): it can add and drop queries, migrate, snapshot; if it returns an engine,
    the run continues with that one. A result that goes back in time is an AssertionError.
    """
    engine = engine_factory()
    declare(engine, case)
    engine.query(QUERY_NAME, case.query, **({"plan": plan} if plan is not None else {}))
    answers: defaultdict[str, _ResultCollector] = defaultdict(_ResultCollector)
    for i, step in enumerate(case.steps):
        engine = _call_events(events, engine, i)
        if isinstance(step, Advance):
            _collect_results(answers, engine.advance(step.stream, step.value))
        else:
            out = engine.push(dict(step.batches))
            assert QUERY_NAME in out, f"push gave an entry for {sorted(out)}, none for the query"
            _collect_results(answers, out)
    engine = _call_events(events, engine, len(case.steps))
    _collect_results(answers, engine.flush())
    return {name: pa.concat_tables(answer.tables) for name, answer in answers.items()}


def declare(engine: Any, case: Case) -> None:
    """Declare the case's streams and tables to an engine."""
    for stream in case.declarations:
        late: dict[str, Any] = {"lateness": _to_lateness(stream)} if stream.lateness else {}
        if stream.key:
            engine.table(stream.name.removesuffix("_changes"), stream.schema, key=stream.key, time=stream.time, **late)
        else:
            engine.stream(stream.name, stream.schema, time=stream.time, **late)
    for name, table in case.tables.items():
        engine.table(name, table)


def _to_lateness(stream: Stream) -> int | timedelta:
    return timedelta(microseconds=stream.lateness) if pt.is_timestamp(stream.time_type) else stream.lateness


def _call_events(events: Events | None, engine: Any, at: int) -> Any:
    other = events(engine, at) if events is not None else None
    return engine if other is None else other


class _ResultCollector:
    """The results of one query so far; checks that they are in temporal order."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []
        self.latest = float("-inf")

    def add(self, table: pa.Table) -> None:
        for given in to_plain(table.column("_ts")):
            time = float("inf") if given is None else given
            assert time >= self.latest, f"a result of {time} came after one of {self.latest}"
            self.latest = time
        self.tables.append(table)


def _collect_results(answers: defaultdict[str, _ResultCollector], out: dict[str, pa.Table] | None) -> None:
    """Keep the results of a call; an `advance` can return none."""
    for name, table in (out or {}).items():
        answers[name].add(table)
