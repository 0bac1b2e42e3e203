"""A running query: its operators in the graph, its plan, its results and its saved state."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property

import pyarrow as pa

from penstock.cql import Query, Stream, View
from penstock.engine.checked_query import CheckedQuery
from penstock.engine.compiler import CompiledQuery
from penstock.engine.join_figures import add_up_joins
from penstock.engine.join_registry import JoinRegistry
from penstock.engine.parts import DumpedJoins, JoinQueryPart, QueryPart
from penstock.engine.query_output import Matches, ResultLayout
from penstock.engine.query_plan import RunningPlan
from penstock.engine.saved_arcs import SavedArc, WrittenRows, read_arcs, restore_outlet_rows
from penstock.errors import QueryError
from penstock.graph import Graph, Node
from penstock.join import POLICIES, DemandFilter, JoinOperator
from penstock.ops import SavedState
from penstock.state import ALWAYS


class RunningQuery:
    """One continuous query of an engine."""

    def __init__(self, spec: CheckedQuery, compiled: CompiledQuery, graph: Graph, joins: JoinRegistry) -> None:
        self.spec = spec
        self.plan = RunningPlan(spec.name, spec.plan, compiled)
        self.output = compiled.output
        self._parts = compiled.parts
        self.nodes: Sequence[Node] = tuple(part.node for part in compiled.parts)
        """The operators of the query."""
        self.input_names = tuple(source.relation.name for source in spec.query.body.inputs)
        """The streams, tables and views that it reads; one that it reads twice is there twice."""
        self._graph = graph
        self._join_registry = joins
        self._policy: tuple[str, DemandFilter] = spec.state, spec.demand

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def query(self) -> Query:
        return self.spec.query

    @property
    def derived_stream(self) -> Stream | None:
        return self.spec.derived_stream

    @property
    def view(self) -> View | None:
        return self.spec.view

    @property
    def is_relation(self) -> bool:
        """Whether other queries read its results, as a stream or a view, and the user does not."""
        return self.spec.is_relation

    # ── joins ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def joins(self) -> list[JoinOperator]:
        """The joins that probe: those of two FROM items or more."""
        return self.plan.joins

    @property
    def join_parts(self) -> Sequence[JoinQueryPart]:
        return self.plan.parts

    def list_shapes(self, join: JoinOperator) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """See `RunningPlan.list_shapes`."""
        return self.plan.list_shapes(join)

    def own_aliases(self, join: JoinOperator) -> Mapping[str, str]:
        """The query's alias for each of a join's."""
        return next(part.own_aliases for part in self.join_parts if part.join is join)

    def is_nested_in(self, join: JoinOperator) -> bool:
        """Whether it reads a node of a join, not all of it."""
        return any(part.join is join and part.is_nested for part in self.join_parts)

    def reads_join_alone(self, join: JoinOperator) -> bool:
        """Whether the new rows of a join are its results, and nothing stands above them."""
        return not self.is_relation and len(self._parts) == 1 and self.joins == [join]

    def require_single_join(self) -> JoinQueryPart:
        """The only join; QueryError if there is not exactly one."""
        if len(self.join_parts) != 1:
            message = f"{self.name} has {len(self.join_parts)} joins, not one"
            raise QueryError("NO_SINGLE_PLAN", message, query=self.name)
        return self.join_parts[0]

    # ── state policy ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def state(self) -> str:
        """The name of the state policy: that of its joins, which another query that shares them may have changed."""
        return self.join_parts[0].join.state if self.join_parts else self._policy[0]

    @property
    def demand(self) -> DemandFilter:
        """How its joins keep demand."""
        return self.join_parts[0].join.demand if self.join_parts else self._policy[1]

    @property
    def own_demand(self) -> DemandFilter | None:
        """How its joins keep demand, None if its state policy keeps none."""
        return None if POLICIES[self.state].gated == "never" else self.demand

    def set_policy(self, state: str, demand: DemandFilter) -> None:
        """Change the state policy of the joins."""
        self._policy = state, demand
        for part in self.join_parts:
            self._join_registry.set_policy(part.join, state, demand)

    # ── results ──────────────────────────────────────────────────────────────────────────────────────────────────

    def results(self, matches: Matches) -> pa.Table:
        """What became certain since the last call, in temporal order; `matches` are those of the last push."""
        tables = self.output.read(matches, self._layout)
        if len(self._parts) > 1 and any(part.failure is not None for part in self._parts[:-1]):
            tables = []  # what the parts above make of the missing rows is not the answer
        return self._layout.combine(tables)

    @cached_property
    def _layout(self) -> ResultLayout:
        return self.output.find_layout(self.query.schema)

    @property
    def failure(self) -> QueryError | None:
        """Why the query stopped; None while it runs."""
        for part in self._parts:
            if (failure := part.failure) is not None:
                return failure
        return None

    def metrics(self) -> dict[str, object]:
        measured = {part.name: part.metrics() for part in self._parts}
        last, joins = measured[self._parts[-1].name], self.join_parts
        figures: dict[str, object] = {}
        if len(joins) == 1:
            figures = self._collect_join_metrics(joins[0])
        elif joins:
            figures = add_up_joins(joins, [measured[part.name] for part in joins])
        failure = self.failure
        return {
            "plan": self.plan.text,
            "state": self.state,
            "demand": self.demand,
            **figures,
            **({"emitted": last["emitted"]} if "emitted" in last else {}),
            "operators": measured,
            **({} if failure is None else {"error": str(failure)}),
        }

    def _collect_join_metrics(self, join: JoinQueryPart) -> dict[str, object]:
        return {**join.metrics(), "complete_since": self.complete_since}

    @property
    def complete_since(self) -> int | None:
        """The time from which on no result is missing; None if none is missing, and for a query of several joins."""
        since = self.join_parts[0].member.complete_since if len(self.join_parts) == 1 else int(ALWAYS)
        if since == ALWAYS:
            return None
        for part in self._parts:
            since = part.find_complete_since(since)
        return since

    def remove(self) -> None:
        """Remove the query from the graph."""
        self.output.close()
        for part in reversed(self._parts):
            part.remove(self._graph, self._join_registry)

    # ── saved state ──────────────────────────────────────────────────────────────────────────────────────────────

    def dump(self, dumped: DumpedJoins) -> list[SavedState]:
        """The saved state of every part, and how its operator is scheduled. A shared join is saved once."""
        return [
            part.dump(dumped).with_values(run_settings=self._graph.run_settings(part.node.id)) for part in self._parts
        ]

    def restore(self, saved_states: Sequence[SavedState]) -> None:
        """Continue from a snapshot."""
        arcs: defaultdict[QueryPart, list[SavedArc]] = defaultdict(list)
        for part, saved in zip(self._parts, saved_states, strict=True):
            for below, arc in zip(part.inputs, read_arcs(saved), strict=True):
                arcs[below].append(arc)
        written: dict[QueryPart, WrittenRows] = {}
        for part, saved in zip(self._parts, saved_states, strict=True):
            rows = part.restore(saved, [written[below] for below in part.inputs])
            if part.outlet is not None:
                written[part] = restore_outlet_rows(part.outlet, arcs[part], rows)
            self._graph.restore_settings(part.node.id, saved.values["run_settings"])
