"""A running query: its plan, its operators in the graph, and the results nobody has taken yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.compile import Compiler, JoinStage, Rest, Stage
from penstock.cql.bound import Query
from penstock.cql.catalog import Stream
from penstock.errors import QueryError
from penstock.graph.graph import Graph
from penstock.ops.aggregate import AggregateOperator, SlidingAggregateOperator
from penstock.ops.emit import DerivedStreamOperator
from penstock.ops.join import JoinOperator, Migration
from penstock.ops.join_tree import POLICIES
from penstock.ops.operator import Batch
from penstock.plan.explain import Description
from penstock.plan.physical import JoinPlan
from penstock.plan.picture import picture
from penstock.plan.query import JoinPart, Part, joins, plan_body, split_plans
from penstock.state.instants import as_times
from penstock.state.kernels import FOREVER


class RunningQuery:
    """One continuous query of an engine.

    `ranks` is the order in which streams were declared, `classes` are the user-defined aggregates. With `feeds` the
    results go to other queries, as a stream of that declaration.
    """

    def __init__(
        self,
        name: str,
        query: Query,
        plan: str | None,
        state: str,
        graph: Graph,
        tables: Mapping[str, pa.Table],
        ranks: Mapping[str, int],
        classes: Mapping[str, type],
        feeds: Stream | None = None,
    ) -> None:
        self.name = name
        self.query = query
        self.state = state
        self.feeds = feeds
        self._graph = graph
        rows = {table: data.num_rows for table, data in tables.items()}
        self._part = plan_body(query.body, plan, rows, ranks)
        compiler = Compiler(name, graph, tables, state, classes)
        last = compiler.query(self._part, query.emit)
        if feeds is not None:
            last = compiler.derived(last, lambda inlet, outlet: DerivedStreamOperator(feeds, inlet, outlet))
        self._stages = compiler.stages
        self.last = last.node
        self._sink = last.node.outlet.open() if feeds is None else None

    # ── plans ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _joins(self) -> list[tuple[JoinStage, JoinPart]]:
        stages = [stage for stage in self._stages if isinstance(stage, JoinStage)]
        return list(zip(stages, joins(self._part), strict=True))

    @property
    def plan(self) -> JoinPlan:
        """The plan of the query's join."""
        found = [stage.join.tree.plan for stage, _ in self._joins]
        if len(found) != 1:
            raise QueryError("NO_SINGLE_PLAN", f"{self.name} has {len(found)} joins; see its picture", query=self.name)
        return found[0]

    @property
    def plan_text(self) -> str | None:
        """The shapes of the query's joins as a plan string."""
        return "; ".join(str(stage.join.tree.plan.tree) for stage, _ in self._joins) or None

    @property
    def part(self) -> Part:
        """The plan of the whole query."""
        return self._part

    @property
    def joins(self) -> list[JoinOperator]:
        """The joins that probe: those of two FROM items or more."""
        return [stage.join for stage, part in self._joins if len(part.sources) > 1]

    def planned(self, plan: str) -> list[JoinPlan]:
        """The physical plans for a plan string."""
        found = self._joins
        shapes = split_plans(plan, len(found))
        return [part.replanned(shape or "") for (_, part), shape in zip(found, shapes, strict=True)]

    def migrate(self, plans: Sequence[JoinPlan], how: Migration) -> None:
        for (stage, _), plan in zip(self._joins, plans, strict=True):
            stage.join.migrate(plan, how)

    def adopt(self, state: str, node: str | None) -> None:
        """Change what the joins keep, or what one node of them keeps."""
        if node is None:
            self.state = state
            for stage, _ in self._joins:
                stage.join.adopt(POLICIES[state])
            return
        for stage, _ in self._joins:
            for part in stage.join.tree.plan.nodes():
                if str(part.tree) == node and part is not stage.join.tree.plan.root:
                    stage.join.adopt(POLICIES[state], frozenset(part.aliases))
                    return
        raise QueryError(
            "UNKNOWN_NODE", f"{self.name} has no node {node} that keeps rows; its plan is {self.plan_text}", node=node
        )

    def picture(self, allowances: Mapping[str, str] | None = None) -> Description:
        """What the query does, for people; `allowances` says by tree text how often rows of a node may probe."""
        plans = {id(part): replace(part, plan=stage.join.tree.plan) for stage, part in self._joins}
        keeps = "keeps its rows" if self.state != "none" else "keeps no rows, looks them up"
        return picture(self._part, plans, keeps, allowances or {})

    # ── results ──────────────────────────────────────────────────────────────────────────────────────────────────

    def results(self) -> pa.Table:
        """What became certain since the last call, in temporal order."""
        schema = self.query.schema
        tables = []
        for batch in self._sink.read(int(FOREVER)) if self._sink is not None else ():
            times = as_times(batch.times, schema.field("_ts").type)
            tables.append(pa.Table.from_arrays([*batch.columns.values(), times], schema=schema))
        return pa.concat_tables(tables) if tables else schema.empty_table()

    @property
    def failure(self) -> QueryError | None:
        """Why the query stopped, None if it did not."""
        return next((each.failure for each in self._aggregates if each.failure is not None), None)

    @property
    def _aggregates(self) -> list[AggregateOperator | SlidingAggregateOperator]:
        operators = (stage.node.operator for stage in self._stages)
        return [op for op in operators if isinstance(op, (AggregateOperator, SlidingAggregateOperator))]

    def remove(self) -> None:
        """Take the query out of the graph."""
        if self._sink is not None:
            self._sink.buffer.close(self._sink)
        for stage in reversed(self._stages):
            self._graph.remove(stage.node)

    def metrics(self) -> dict[str, object]:
        found = self._joins
        operators = {stage.node.id: stage.node.operator.metrics() for stage in self._stages}
        single = found[0][0].join.metrics() if len(found) == 1 else {}
        last = self.last.operator.metrics()
        error = {} if self.failure is None else {"error": str(self.failure)}
        return {
            "plan": self.plan_text,
            "state": self.state,
            **single,
            **{key: value for key, value in last.items() if key == "emitted"},
            "operators": operators,
            **error,
        }

    # ── rest ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def dump(self) -> list[Rest]:
        """The base data of every stage."""
        return [stage.dump() for stage in self._stages]

    def revive(self, rests: Sequence[Rest], failed: str | None = None) -> None:
        """Go on where a snapshot stopped, or stay stopped."""
        living: dict[str, Batch | None] = {}
        for stage, rest in zip(self._stages, rests, strict=True):
            living[stage.node.id] = stage.revive(rest, [living[_id(below)] for below in stage.inputs])
        for aggregate in self._aggregates:
            if failed is not None:
                aggregate.failure = QueryError("AGGREGATE_FAILED", failed)


def _id(stage: Stage) -> str:
    return stage.node.id
