"""A running query: its plan, its operators in the graph, and the results nobody has taken yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from penstock.cql.bound import Query
from penstock.cql.catalog import Stream
from penstock.engine.compiler import Compiler
from penstock.engine.join_registry import Groups
from penstock.engine.parts import JoinStage, Rest, Stage, Told
from penstock.errors import QueryError
from penstock.graph.graph import Graph, Node
from penstock.join.demand.gate import Kept
from penstock.join.match_batch import Harvest
from penstock.join.operator import JoinOperator, Migration
from penstock.join.state_policy import POLICIES
from penstock.ops.aggregate.operator import AggregateOperator, SlidingAggregateOperator
from penstock.ops.difference import DifferenceOperator
from penstock.ops.emit import DerivedStreamOperator
from penstock.ops.protocol import Batch
from penstock.plan.explain import Description, describe
from penstock.plan.explain_query import picture
from penstock.plan.physical import JoinPlan
from penstock.plan.query import JoinPart, Part, differences, joins, planned_joins, replanned
from penstock.plan.tree import Tree, renamed
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
        part: Part,
        state: str,
        demand: Kept,
        graph: Graph,
        tables: Mapping[str, pa.Table],
        classes: Mapping[str, type],
        groups: Groups,
        feeds: Stream | None = None,
        *,
        planned: bool = False,
        maintenance: Maintenance,
        history: bool = False,
    ) -> None:
        self.name = name
        self.query = query
        self._state, self._demand = state, demand
        self.feeds = feeds
        self._graph = graph
        self._part = part
        self._groups = groups
        compiler = Compiler(name, graph, tables, state, demand, classes, groups, planned, history, maintenance)
        last = compiler.query(self._part, query.emit, read_on=feeds is not None)
        if feeds is not None:
            last = compiler.derived(last, lambda inlet, outlet: DerivedStreamOperator(feeds, inlet, outlet))
        self._stages = compiler.stages
        self.last = last.node
        asked = isinstance(last, JoinStage) and last.buffer is None
        self.asked = last if asked and isinstance(last, JoinStage) else None
        """The join whose results are shown when somebody asks for them, if the query is no more than that."""
        self._sink = last.outlet.open() if feeds is None and not asked else None

    # ── plans ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _joins(self) -> list[JoinStage]:
        return [stage for stage in self._stages if isinstance(stage, JoinStage)]

    @property
    def _planned(self) -> list[tuple[JoinStage, JoinPart]]:
        return list(zip(self._joins, joins(self._part), strict=True))

    @property
    def state(self) -> str:
        """The name of its state policy: that of its joins, which those who share them may have changed."""
        return self._joins[0].join.state if self._joins else self._state

    @property
    def demand(self) -> Kept:
        """How its joins keep demand."""
        return self._joins[0].join.demand if self._joins else self._demand

    @property
    def nodes(self) -> list[Node]:
        """The operators of the query."""
        return [stage.node for stage in self._stages]

    @property
    def plan(self) -> JoinPlan:
        """The plan of the query's join."""
        found = [stage.join.tree.plan for stage in self._joins]
        if len(found) != 1:
            raise QueryError("NO_SINGLE_PLAN", f"{self.name} has {len(found)} joins; see its picture", query=self.name)
        return found[0]

    @property
    def plan_text(self) -> str | None:
        """The shapes of the query's joins as a plan string."""
        shapes = {id(part): str(stage.tree()) for stage, part in self._planned}
        return "; ".join(shapes[id(part)] for part in planned_joins(self._part)) or None

    def shapes_of(self, join: JoinOperator) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """The shapes of all joins, in the order of its plan text, and which of them are of this one."""
        stages = {id(part): stage for stage, part in self._planned}
        order = [stages[id(part)] for part in planned_joins(self._part)]
        places = (place for place, stage in enumerate(order) if stage.join is join)
        return tuple(str(stage.tree()) for stage in order), tuple(places)

    @property
    def part(self) -> Part:
        """The plan of the whole query."""
        return self._part

    @property
    def joins(self) -> list[JoinOperator]:
        """The joins that probe: those of two FROM items or more."""
        return [stage.join for stage in self._joins if len(stage.part.sources) > 1]

    def own_names(self, join: JoinOperator) -> dict[str, str]:
        """The query's alias for each of a join's."""
        return next(stage.own for stage in self._joins if stage.join is join)

    @property
    def demanding(self) -> bool:
        """Whether its policy keeps demand."""
        return POLICIES[self.state].gated != "never"

    def broken_by(self, plan: str) -> list[JoinOperator]:
        """The joins that would lose a node others read by another plan, which must fit."""
        shapes = (join.plan.tree for join in joins(replanned(self._part, plan)))
        return [stage.join for stage, shape in zip(self._joins, shapes, strict=True) if stage.breaks(shape)]

    def nested_in(self, join: JoinOperator) -> bool:
        """Whether it reads a node of a join, not all of it."""
        return any(stage.join is join and stage.member.need.scope is not None for stage in self._joins)

    def check_migration(self, plan: str, how: Migration) -> None:
        """Refuse a plan that does not fit, or that one of the joins cannot go on with."""
        for stage, join in zip(self._joins, joins(replanned(self._part, plan)), strict=True):
            stage.join.check_migration(stage.planned(join.plan.tree), how)

    def migrate(self, plan: str, how: Migration) -> None:
        """Go on with another plan, which `check_migration` must have let pass."""
        part = replanned(self._part, plan)
        for stage, join in zip(self._joins, joins(part), strict=True):
            stage.migrate(join.plan.tree, how)
        operators = [stage.node.operator for stage in self._stages]
        subtracting = (each for each in operators if isinstance(each, DifferenceOperator))
        for operator, difference in zip(subtracting, differences(part), strict=True):
            operator.order = difference.order
        self._part = part

    def adopt(self, state: str, demand: Kept) -> None:
        """Change what the joins keep."""
        self._state, self._demand = state, demand
        for stage in self._joins:
            self._groups.adopt(stage.join, state, demand)

    def node(self, node: str) -> tuple[JoinOperator, frozenset[str]]:
        """The join and the aliases of one node of the plan, which must not be a root."""
        for stage in self._joins:
            own = stage.own
            for part in stage.join.tree.plan.nodes():
                if str(renamed(part.tree, own)) == node and part is not stage.join.tree.plan.root:
                    return stage.join, frozenset(part.aliases)
        raise QueryError(
            "UNKNOWN_NODE", f"{self.name} has no node {node} that keeps rows; its plan is {self.plan_text}", node=node
        )

    def picture(self, allowances: Mapping[JoinOperator, Mapping[Tree, str]] | None = None) -> Description:
        """What the query does, for people; `allowances` says for joins how often rows of a node may probe."""
        allowed = allowances or {}
        running = {
            id(part): describe(part.replanned(str(stage.tree())), stage.notes(allowed.get(stage.join, {})))
            for stage, part in self._planned
        }
        return picture(self._part, running)

    # ── sharing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def check_sliced(self) -> None:
        """Refuse to tell the slices of a query that has several joins, or none."""
        if len(self._joins) != 1:
            raise QueryError("NO_SINGLE_PLAN", f"{self.name} has {len(self._joins)} joins, not one", query=self.name)

    def slices(self) -> pa.Table:
        """The slices of its join, youngest first, with the tuples they hold by alias and the results they brought."""
        found = self._joins[0].slices()
        span = pa.duration("us") if pa.types.is_timestamp(self.query.time_type) else pa.int64()
        ages = {
            "from": pa.array([each.low for each in found], pa.int64()).cast(span),
            "to": pa.array([each.high for each in found], pa.int64()).cast(span),
            "queries": pa.array([each.readers for each in found], pa.list_(pa.string())),
        }
        aliases = found[0].rows if found else {}
        rows = {f"rows of {alias}": pa.array([each.rows[alias] for each in found], pa.int64()) for alias in aliases}
        return pa.table({**ages, **rows, "results": pa.array([each.results for each in found], pa.int64())})

    def shared(self) -> list[str]:
        """Who it shares its joins with, and by which slices, as lines to read."""
        lines: list[str] = []
        for stage in self._joins:
            group = stage.join.group
            lines += stage.told_taps()
            if len(group.members) > 1:
                parties = len(group.sharing.parties)
                told = "the same tuples" if parties == 1 else f"{parties} sets of tuples"
                lines.append(f"shared: one join for {len(group.members)} queries that want {told}")
                lines += [f"  {line}" for line in stage.told_slices(self.query.time_type)]
        return lines

    # ── results ──────────────────────────────────────────────────────────────────────────────────────────────────

    def results(self, harvests: Sequence[Harvest] = ()) -> pa.Table:
        """What became certain since the last call, in temporal order; `harvests` are those of the join it asks."""
        schema = self.query.schema
        tables = []
        waiting = self._sink.read(int(FOREVER)) if self._sink is not None else []
        for batch in waiting if self.asked is None else self.asked.results(harvests):
            times = as_times(batch.times, schema.field("_ts").type)
            tables.append(pa.Table.from_arrays([*batch.columns.values(), times], schema=schema))
        if len(tables) == 1:
            return tables[0]
        return pa.concat_tables(tables) if tables else schema.empty_table()

    @property
    def failure(self) -> QueryError | None:
        """Why the query stopped, None if it did not."""
        joins = [stage.join.failure(stage.member) for stage in self._joins]
        return next((each for each in (*joins, *(a.failure for a in self._aggregates)) if each is not None), None)

    def stop(self, failure: QueryError | None) -> None:
        """Show nothing any more, for a reason."""
        for stage in self._joins:
            stage.member.failure = failure

    @property
    def _aggregates(self) -> list[AggregateOperator | SlidingAggregateOperator]:
        operators = (stage.node.operator for stage in self._stages)
        return [op for op in operators if isinstance(op, (AggregateOperator, SlidingAggregateOperator))]

    def remove(self) -> None:
        """Take the query out of the graph."""
        if self._sink is not None:
            self._sink.buffer.close(self._sink)
        for stage in reversed(self._stages):
            if isinstance(stage, JoinStage):
                stage.join.leave(stage.member)
                if stage.join.group.members:
                    continue
                self._groups.remove(stage.join)
            self._graph.remove(stage.node)

    def metrics(self) -> dict[str, object]:
        last = self._stages[-1]
        emitted = {key: value for key, value in last.told().items() if key == "emitted"}
        error = {} if self.failure is None else {"error": str(self.failure)}
        return {
            "plan": self.plan_text,
            "state": self.state,
            "demand": self.demand,
            **(self._told_of_join(self._joins[0]) if len(self._joins) == 1 else {}),
            **emitted,
            "operators": {_id(stage): stage.told() for stage in self._stages},
            **error,
        }

    def _told_of_join(self, stage: JoinStage) -> dict[str, object]:
        told = stage.told()
        since = told["complete_since"]
        slides = [each for each in self._aggregates if isinstance(each, SlidingAggregateOperator)]
        if slides and isinstance(since, int):
            told["complete_since"] = slides[0].whole_after(since)
        return told

    # ── rest ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def dump(self, shared: Told) -> list[Rest]:
        """The base data of every stage, of joins that queries share once; and how it is run."""
        return [stage.dump(shared).but(habits=self._graph.habits(stage.node.id)) for stage in self._stages]

    def revive(self, rests: Sequence[Rest], failed: str | None = None) -> None:
        """Go on where a snapshot stopped, or stay stopped."""
        living: dict[str, Batch | None] = {}
        for stage, rest in zip(self._stages, rests, strict=True):
            living[_id(stage)] = stage.revive(rest, [living[_id(below)] for below in stage.inputs])
            self._graph.resume(stage.node.id, rest.values["habits"])
        if failed is None:
            return
        for aggregate in self._aggregates:
            aggregate.failure = QueryError("AGGREGATE_FAILED", failed)
        if not self._aggregates:
            self.stop(QueryError("EVALUATION_FAILED", failed))


def _id(stage: Stage) -> str:
    return stage.member.name if isinstance(stage, JoinStage) else stage.node.id
