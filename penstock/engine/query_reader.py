"""The facts and the counters of the queries of an engine, read again and again for a page.

Law: what is read is what a new reader would read.

Cost: for each query a comparison of what its facts were made of, and the sum of its results. Its facts are built again
only if one of them has changed, for all queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import is_not
from typing import Any

from penstock.engine.components import EngineComponents
from penstock.engine.join_figures import estimate_completeness
from penstock.engine.query import RunningQuery
from penstock.engine.status_values import QueryCounts, QueryFacts
from penstock.join import JoinOperator, Member


@dataclass(frozen=True)
class Emitted:
    """The results so far."""

    by_place: tuple[int, ...]
    """Those of each query."""
    most: Mapping[str, int]
    """For each operator that has results of queries, those of the query with the most."""


class QueryReader:
    """Reads the queries of one engine."""

    def __init__(self, components: EngineComponents) -> None:
        self._components = components
        self._queries: list[RunningQuery] = []
        self._joins: list[JoinOperator] = []
        self._members: dict[JoinOperator, tuple[list[int], list[Member]]] = {}
        """By join, the places of the queries that read their results from it, and their members."""
        self._others: list[int] = []
        """The places of the other queries."""
        self._bounded: list[int] = []
        """The places of queries with a bound of freshness."""
        self._made_of: list[object] | None = None
        """What the facts were made of."""
        self._facts: tuple[QueryFacts, ...] = ()

    def count_results(self) -> Emitted:
        """The results of every query so far. Counting merges the counts of shared joins, so it is a change."""
        queries = list(self._components.queries)
        if queries != self._queries:
            self._arrange(queries)
        found, most = [0] * len(queries), dict[str, int]()
        for join, (places, members) in self._members.items():
            counts = join.shared_join.counts.count_members(members)
            for place, count in zip(places, counts, strict=True):
                found[place] = count
            most[join.id] = max(counts)
        for place in self._others:
            node = queries[place].nodes[-1]
            metrics = node.operator.metrics()
            found[place] = most[node.id] = add_up(metrics.get("emitted", metrics.get("arrived")))
        return Emitted(tuple(found), most)

    def _arrange(self, queries: list[RunningQuery]) -> None:
        self._queries, self._made_of = queries, None
        self._joins = list({part.join: None for running in queries for part in running.join_parts})
        self._members, self._others, self._bounded = {}, [], []
        for place, running in enumerate(queries):
            last = running.nodes[-1].operator
            if isinstance(last, JoinOperator):
                places, members = self._members.setdefault(last, ([], []))
                places.append(place)
                members.append(running.join_parts[-1].member)
            else:
                self._others.append(place)
            needs = [part.member.need for part in running.join_parts]
            if any(need.freshness_checks or need.clock_checks for need in needs):
                self._bounded.append(place)

    def read_facts(self) -> tuple[QueryFacts, ...]:
        """The facts of the queries that were counted last; the same value as before if none has changed."""
        made_of = self._list_ingredients()
        if self._made_of is None or len(made_of) != len(self._made_of) or any(map(is_not, made_of, self._made_of)):
            self._made_of = made_of
            self._facts = tuple(map(self._read_facts, self._queries))
        return self._facts

    def _list_ingredients(self) -> list[object]:
        """What facts are made of. Values that change are replaced, so that it is enough to compare identities."""
        found: list[object] = [running.plan.logical_plan for running in self._queries]
        found += [running.failure for running in self._queries]
        found += [self._queries[place].state for place in self._others]
        for join in self._joins:
            early = join.tree.early_node
            found += (join.state, join.tree.plan, early and early.plan)
        return [*found, *self._components.budgets.list_scopes_by_query()]

    def _read_facts(self, running: RunningQuery) -> QueryFacts:
        budgets = self._components.budgets.join_budgets(running)
        return QueryFacts(
            running.name, running.query.text, running.plan.text, running.state, running.nodes[-1].id,
            None if running.failure is None else str(running.failure), running.is_relation,
            f"{len(budgets)} joins under a budget" if budgets else None,
        )  # fmt: skip

    def read_counts(self, emitted: Emitted) -> QueryCounts:
        """The counters that belong to results. Only a query under a budget is incomplete."""
        completeness = {
            place: share
            for place, facts in enumerate(self._facts)
            if facts.budget and (share := _estimate_completeness(self._queries[place])) < 1
        }
        stale = {place: sum(part.member.stale for part in self._queries[place].join_parts) for place in self._bounded}
        return QueryCounts(emitted.by_place, completeness, stale)


def _estimate_completeness(running: RunningQuery) -> float:
    parts = running.join_parts
    return estimate_completeness(parts, [part.metrics() for part in parts])


def add_up(value: Any) -> int:
    """A figure as a number; one by stream or node is added up."""
    if isinstance(value, Mapping):
        return sum(map(add_up, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(add_up, value))
    return int(value) if isinstance(value, int | float) else 0
