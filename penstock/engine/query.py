"""A running query: its plan, its operators in the graph, and the results nobody has taken yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from penstock.cql.bound import Query
from penstock.cql.catalog import Stream
from penstock.engine.compiler import Compiler
from penstock.engine.join_registry import JoinRegistry
from penstock.engine.parts import DumpedJoins, JoinQueryPart, QueryPart, SavedState
from penstock.errors import QueryError
from penstock.graph.graph import Graph, Node
from penstock.join.demand.gate import DemandFilter
from penstock.join.match_batch import MatchBatch
from penstock.join.operator import JoinOperator
from penstock.join.running_trees import Migration
from penstock.join.state_policy import POLICIES
from penstock.ops.aggregate.operator import AggregateOperator, SlidingAggregateOperator
from penstock.ops.difference import DifferenceOperator
from penstock.ops.emit import DerivedStreamOperator
from penstock.ops.protocol import Batch
from penstock.plan.explain import ExplainNode, describe_join
from penstock.plan.explain_query import describe_query
from penstock.plan.physical import JoinPlan
from penstock.plan.query import JoinPart, PlanPart, list_difference_parts, list_join_parts, list_planned_joins, replan
from penstock.plan.tree import Tree, rename_leaves
from penstock.state.instants import as_times
from penstock.state.kernels import FOREVER
from penstock.state.maintenance import Maintenance


class RunningQuery:
    """One continuous query of an engine.

    `part` is its plan, `planned` whether that was asked for; `classes` are the user-defined aggregates. With `feeds`
    the results go to other queries, as a stream of that declaration.
    """

    def __init__(
        self,
        name: str,
        query: Query,
        logical_plan: PlanPart,
        state: str,
        demand: DemandFilter,
        graph: Graph,
        tables: Mapping[str, pa.Table],
        aggregate_classes: Mapping[str, type],
        join_registry: JoinRegistry,
        feeds: Stream | None = None,
        *,
        plan_given: bool = False,
        maintenance: Maintenance,
        history: bool = False,
    ) -> None:
        self.name = name
        self.query = query
        self._state, self._demand = state, demand
        self.derived_stream = feeds
        self._graph = graph
        self._logical_plan = logical_plan
        self._join_registry = join_registry
        compiler = Compiler(
            name, graph, tables, state, demand, aggregate_classes, join_registry, plan_given, history, maintenance
        )
        last = compiler.compile_query(self._logical_plan, query.emit, read_on=feeds is not None)
        if feeds is not None:
            last = compiler.compile_derived(last, lambda inlet, outlet: DerivedStreamOperator(feeds, inlet, outlet))
        self._parts = compiler.parts
        self.last_node = last.node
        asked = isinstance(last, JoinQueryPart) and last.buffer is None
        self.pull_part = last if asked and isinstance(last, JoinQueryPart) else None
        """The join whose results are shown when somebody asks for them, if the query is no more than that."""
        self._result_reader = last.outlet.open() if feeds is None and not asked else None

    # ── plans ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _join_parts(self) -> list[JoinQueryPart]:
        return [stage for stage in self._parts if isinstance(stage, JoinQueryPart)]

    @property
    def _join_plans(self) -> list[tuple[JoinQueryPart, JoinPart]]:
        return list(zip(self._join_parts, list_join_parts(self._logical_plan), strict=True))

    @property
    def state(self) -> str:
        """The name of its state policy: that of its joins, which those who share them may have changed."""
        return self._join_parts[0].join.state if self._join_parts else self._state

    @property
    def demand(self) -> DemandFilter:
        """How its joins keep demand."""
        return self._join_parts[0].join.demand if self._join_parts else self._demand

    @property
    def nodes(self) -> list[Node]:
        """The operators of the query."""
        return [stage.node for stage in self._parts]

    @property
    def plan(self) -> JoinPlan:
        """The plan of the query's join."""
        found = [stage.join.tree.plan for stage in self._join_parts]
        if len(found) != 1:
            raise QueryError("NO_SINGLE_PLAN", f"{self.name} has {len(found)} joins; see its picture", query=self.name)
        return found[0]

    @property
    def plan_text(self) -> str | None:
        """The shapes of the query's joins as a plan string."""
        shapes = {id(part): str(stage.own_tree()) for stage, part in self._join_plans}
        return "; ".join(shapes[id(part)] for part in list_planned_joins(self._logical_plan)) or None

    def list_shapes(self, join: JoinOperator) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """The shapes of all joins, in the order of its plan text, and which of them are of this one."""
        stages = {id(part): stage for stage, part in self._join_plans}
        order = [stages[id(part)] for part in list_planned_joins(self._logical_plan)]
        places = (place for place, stage in enumerate(order) if stage.join is join)
        return tuple(str(stage.own_tree()) for stage in order), tuple(places)

    @property
    def logical_plan(self) -> PlanPart:
        """The plan of the whole query."""
        return self._logical_plan

    @property
    def joins(self) -> list[JoinOperator]:
        """The joins that probe: those of two FROM items or more."""
        return [stage.join for stage in self._join_parts if len(stage.plan_part.sources) > 1]

    def own_aliases(self, join: JoinOperator) -> dict[str, str]:
        """The query's alias for each of a join's."""
        return next(stage.own_aliases for stage in self._join_parts if stage.join is join)

    @property
    def keeps_demand(self) -> bool:
        """Whether its policy keeps demand."""
        return POLICIES[self.state].gated != "never"

    def list_broken_joins(self, plan: str) -> list[JoinOperator]:
        """The joins that would lose a node others read by another plan, which must fit."""
        shapes = (join.plan.tree for join in list_join_parts(replan(self._logical_plan, plan)))
        return [stage.join for stage, shape in zip(self._join_parts, shapes, strict=True) if stage.would_break(shape)]

    def is_nested_in(self, join: JoinOperator) -> bool:
        """Whether it reads a node of a join, not all of it."""
        return any(stage.join is join and stage.member.need.scope is not None for stage in self._join_parts)

    def check_migration(self, plan: str, how: Migration) -> None:
        """Refuse a plan that does not fit, or that one of the joins cannot go on with."""
        for stage, join in zip(self._join_parts, list_join_parts(replan(self._logical_plan, plan)), strict=True):
            stage.join.check_migration(stage.build_plan(join.plan.tree), how)

    def migrate(self, plan: str, how: Migration) -> None:
        """Go on with another plan, which `check_migration` must have let pass."""
        part = replan(self._logical_plan, plan)
        for stage, join in zip(self._join_parts, list_join_parts(part), strict=True):
            stage.migrate(join.plan.tree, how)
        operators = [stage.node.operator for stage in self._parts]
        subtracting = (each for each in operators if isinstance(each, DifferenceOperator))
        for operator, difference in zip(subtracting, list_difference_parts(part), strict=True):
            operator.order = difference.order
        self._logical_plan = part

    def set_policy(self, state: str, demand: DemandFilter) -> None:
        """Change what the joins keep."""
        self._state, self._demand = state, demand
        for stage in self._join_parts:
            self._join_registry.set_policy(stage.join, state, demand)

    def find_node(self, node: str) -> tuple[JoinOperator, frozenset[str]]:
        """The join and the aliases of one node of the plan, which must not be a root."""
        for stage in self._join_parts:
            own = stage.own_aliases
            for part in stage.join.tree.plan.nodes():
                if str(rename_leaves(part.tree, own)) == node and part is not stage.join.tree.plan.root:
                    return stage.join, frozenset(part.aliases)
        raise QueryError(
            "UNKNOWN_NODE", f"{self.name} has no node {node} that keeps rows; its plan is {self.plan_text}", node=node
        )

    def build_description(self, allowances: Mapping[JoinOperator, Mapping[Tree, str]] | None = None) -> ExplainNode:
        """What the query does, for people; `allowances` says for joins how often rows of a node may probe."""
        allowed = allowances or {}
        running = {
            id(part): describe_join(part.replan(str(stage.own_tree())), stage.notes(allowed.get(stage.join, {})))
            for stage, part in self._join_plans
        }
        return describe_query(self._logical_plan, running)

    # ── sharing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def check_single_join(self) -> None:
        """Refuse to tell the slices of a query that has several joins, or none."""
        if len(self._join_parts) != 1:
            raise QueryError(
                "NO_SINGLE_PLAN", f"{self.name} has {len(self._join_parts)} joins, not one", query=self.name
            )

    def slices(self) -> pa.Table:
        """The slices of its join, youngest first, with the tuples they hold by alias and the results they brought."""
        found = self._join_parts[0].slices()
        span = pa.duration("us") if pa.types.is_timestamp(self.query.time_type) else pa.int64()
        ages = {
            "from": pa.array([each.low for each in found], pa.int64()).cast(span),
            "to": pa.array([each.high for each in found], pa.int64()).cast(span),
            "queries": pa.array([each.readers for each in found], pa.list_(pa.string())),
        }
        aliases = found[0].rows if found else {}
        rows = {f"rows of {alias}": pa.array([each.rows[alias] for each in found], pa.int64()) for alias in aliases}
        return pa.table({**ages, **rows, "results": pa.array([each.results for each in found], pa.int64())})

    def format_sharing(self) -> list[str]:
        """Who it shares its joins with, and by which slices, as lines to read."""
        lines: list[str] = []
        for stage in self._join_parts:
            group = stage.join.shared_join
            lines += stage.format_readers()
            if len(group.members) > 1:
                parties = len(group.needs.filter_groups)
                told = "the same tuples" if parties == 1 else f"{parties} sets of tuples"
                lines.append(f"shared: one join for {len(group.members)} queries that want {told}")
                lines += [f"  {line}" for line in stage.format_slices(self.query.time_type)]
        return lines

    # ── results ──────────────────────────────────────────────────────────────────────────────────────────────────

    def results(self, match_batches: Sequence[MatchBatch] = ()) -> pa.Table:
        """What became certain since the last call, in temporal order; `harvests` are those of the join it asks."""
        schema = self.query.schema
        tables = []
        waiting = self._result_reader.read(int(FOREVER)) if self._result_reader is not None else []
        for batch in waiting if self.pull_part is None else self.pull_part.results(match_batches):
            times = as_times(batch.times, schema.field("_ts").type)
            tables.append(pa.Table.from_arrays([*batch.columns.values(), times], schema=schema))
        if len(tables) == 1:
            return tables[0]
        return pa.concat_tables(tables) if tables else schema.empty_table()

    @property
    def failure(self) -> QueryError | None:
        """Why the query stopped, None if it did not."""
        joins = [stage.member.find_failure() for stage in self._join_parts]
        return next((each for each in (*joins, *(a.failure for a in self._aggregates)) if each is not None), None)

    def stop(self, failure: QueryError | None) -> None:
        """Show nothing any more, for a reason."""
        for stage in self._join_parts:
            stage.member.failure = failure

    @property
    def _aggregates(self) -> list[AggregateOperator | SlidingAggregateOperator]:
        operators = (stage.node.operator for stage in self._parts)
        return [op for op in operators if isinstance(op, (AggregateOperator, SlidingAggregateOperator))]

    def remove(self) -> None:
        """Take the query out of the graph."""
        if self._result_reader is not None:
            self._result_reader.buffer.close(self._result_reader)
        for stage in reversed(self._parts):
            if isinstance(stage, JoinQueryPart):
                stage.join.remove_member(stage.member)
                if stage.join.shared_join.members:
                    continue
                self._join_registry.remove(stage.join)
            self._graph.remove(stage.node)

    def metrics(self) -> dict[str, object]:
        last = self._parts[-1]
        emitted = {key: value for key, value in last.metrics().items() if key == "emitted"}
        error = {} if self.failure is None else {"error": str(self.failure)}
        return {
            "plan": self.plan_text,
            "state": self.state,
            "demand": self.demand,
            **(self._collect_join_metrics(self._join_parts[0]) if len(self._join_parts) == 1 else {}),
            **emitted,
            "operators": {_part_id(stage): stage.metrics() for stage in self._parts},
            **error,
        }

    def _collect_join_metrics(self, stage: JoinQueryPart) -> dict[str, object]:
        told = stage.metrics()
        since = told["complete_since"]
        slides = [each for each in self._aggregates if isinstance(each, SlidingAggregateOperator)]
        if slides and isinstance(since, int):
            told["complete_since"] = slides[0].find_complete_since(since)
        return told

    # ── rest ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def dump(self, shared: DumpedJoins) -> list[SavedState]:
        """The base data of every stage, of joins that queries share once; and how it is run."""
        return [
            stage.dump(shared).with_values(run_settings=self._graph.run_settings(stage.node.id))
            for stage in self._parts
        ]

    def restore(self, saved_states: Sequence[SavedState], failed: str | None = None) -> None:
        """Go on where a snapshot stopped, or stay stopped."""
        living: dict[str, Batch | None] = {}
        for stage, rest in zip(self._parts, saved_states, strict=True):
            living[_part_id(stage)] = stage.restore(rest, [living[_part_id(below)] for below in stage.inputs])
            self._graph.restore_settings(stage.node.id, rest.values["run_settings"])
        if failed is None:
            return
        for aggregate in self._aggregates:
            aggregate.failure = QueryError("AGGREGATE_FAILED", failed)
        if not self._aggregates:
            self.stop(QueryError("EVALUATION_FAILED", failed))


def _part_id(stage: QueryPart) -> str:
    return stage.member.name if isinstance(stage, JoinQueryPart) else stage.node.id
