"""The parts of a running query in the graph: operators of its own, and places in joins that queries share.

A snapshot holds base data only: windows, rows that wait for time, and unread rows of arcs between operators. `restore`
rebuilds everything else from the current rows, part by part, inputs first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.engine.join_registry import JoinRegistry
from penstock.engine.saved_arcs import WrittenRows, dump_arcs, rewind_arcs
from penstock.engine.saved_join import dump_join, restore_join
from penstock.errors import QueryError
from penstock.expr import FunctionError
from penstock.graph import Buffer, Graph, Node, Reader
from penstock.join import JoinOperator, Member, describe_nodes
from penstock.ops import Batch, Changes, Operator, OperatorId, SavedState, as_changes, make_evaluation_error
from penstock.plan import (
    Eddy,
    ExplainNode,
    JoinPart,
    JoinPlan,
    PlanShape,
    Properties,
    Tree,
    describe_join,
    list_joins,
    list_leaves,
    rename_leaves,
    replace_subtree,
    require_tree,
)
from penstock.state import ALWAYS

DumpedJoins = dict[tuple[JoinOperator, frozenset[str] | None], int]
"""The numbers of the joins dumped so far. The queries that read one node of a join are saved as a join of their own."""


class QueryPart(Protocol):
    """A part of a query in the graph."""

    @property
    def id(self) -> OperatorId: ...

    @property
    def name(self) -> str:
        """What metrics call it."""

    @property
    def node(self) -> Node: ...

    @property
    def inputs(self) -> tuple[ReadablePart, ...]:
        """The parts of the query that it reads."""

    @property
    def failure(self) -> QueryError | None:
        """Why it stopped; None while it runs."""

    def metrics(self) -> dict[str, object]:
        """The metrics of its operator, in the aliases of the query."""

    def find_complete_since(self, since: int) -> int:
        """The time from which on it lacks no row, if its input lacks none from `since` on."""

    def dump(self, dumped: DumpedJoins) -> SavedState:
        """The saved state; a join that is in `dumped` already is saved as its number."""

    @property
    def outlet(self) -> Buffer | None:
        """The buffer that other parts or the user read; None if there is none."""

    def restore(self, saved: SavedState, inputs: Sequence[WrittenRows]) -> Changes | None:
        """Continue from a dump, given what the inputs had written.

        Returns its current rows, None if they are not known.
        """

    def remove(self, graph: Graph, joins: JoinRegistry) -> None:
        """Remove it from the graph."""


class ReadablePart(QueryPart, Protocol):
    """A part that writes to a buffer, for other operators or for the user."""

    @property
    def outlet(self) -> Buffer: ...


class PartOperator(Operator, Protocol):
    """An operator of one query; see `QueryOperator`."""

    failure: QueryError | None
    current_inputs: int | None

    def dump(self) -> SavedState: ...
    def restore(self, saved: SavedState, current: Sequence[Changes] | None) -> Changes | None: ...
    def find_complete_since(self, since: int) -> int: ...


@dataclass(frozen=True, eq=False)
class OperatorQueryPart:
    """An operator of its own. `arcs` are its readers of the `inputs`."""

    id: OperatorId
    node: Node
    operator: PartOperator
    inputs: tuple[ReadablePart, ...]
    arcs: tuple[Reader, ...]

    @property
    def name(self) -> str:
        return self.node.id

    @property
    def outlet(self) -> Buffer:
        return self.node.outlet

    @property
    def failure(self) -> QueryError | None:
        return self.operator.failure

    def metrics(self) -> dict[str, object]:
        return self.operator.metrics()

    def find_complete_since(self, since: int) -> int:
        return self.operator.find_complete_since(since)

    def dump(self, dumped: DumpedJoins) -> SavedState:  # noqa: ARG002
        state = self.operator.dump()
        values, tables = dump_arcs(self.arcs)
        failure = _dump_failure(self.failure)
        return SavedState({**state.values, **values, "failure": failure}, {**state.tables, **tables})

    def restore(self, saved: SavedState, inputs: Sequence[WrittenRows]) -> Changes | None:
        seen = rewind_arcs(self.arcs, saved, inputs)[: self.operator.current_inputs]
        known = [batch for batch in seen if batch is not None]
        try:
            rows = self.operator.restore(saved, known if len(known) == len(seen) else None)
        except FunctionError as error:  # a user-defined function fails on the rows of the snapshot
            self.operator.failure, rows = make_evaluation_error(str(self.id), error), None
        if saved.values["failure"] is not None:
            self.operator.failure = QueryError(*saved.values["failure"])
        return rows

    def remove(self, graph: Graph, joins: JoinRegistry) -> None:  # noqa: ARG002
        graph.remove(self.node)


@dataclass(frozen=True, eq=False)
class JoinSubqueries:
    """The subqueries that a join reads: their aliases, their parts, and the readers of these."""

    aliases: tuple[str, ...] = ()
    parts: tuple[ReadablePart, ...] = ()
    arcs: tuple[Reader, ...] = ()


@dataclass(frozen=True, eq=False)
class JoinQueryPart:
    """A query's place in a join that other queries may share. Its rows are built when the user reads them."""

    node: Node
    plan_part: JoinPart
    join: JoinOperator
    member: Member
    subqueries: JoinSubqueries

    @property
    def id(self) -> OperatorId:
        return self.member.id

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def outlet(self) -> Buffer | None:
        return None

    @property
    def inputs(self) -> tuple[ReadablePart, ...]:
        return self.subqueries.parts

    @property
    def failure(self) -> QueryError | None:
        return self.member.find_failure()

    # ── its plan ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def own_aliases(self) -> dict[str, str]:
        """The query's alias for each of the join's."""
        return {theirs: mine for mine, theirs in self.member.renaming.items()}

    @property
    def is_nested(self) -> bool:
        """Whether the query reads a node of the join, not all of it."""
        return self.member.need.scope is not None

    @property
    def running_shape(self) -> PlanShape:
        """The shape of the join in its own aliases."""
        early = self.join.tree.early_node if self.is_nested else None
        return self.join.tree.plan.tree if early is None else early.plan.tree

    def own_tree(self) -> PlanShape:
        """The shape of the join in the query's aliases."""
        return rename_leaves(self.running_shape, self.own_aliases)

    def build_plan(self, tree: PlanShape) -> JoinPlan:
        """The plan of the join in another shape, given in the query's aliases."""
        shape = rename_leaves(tree, self.member.renaming)
        if self.is_nested:
            shape = replace_subtree(require_tree(self.join.tree.plan.tree), require_tree(shape))
        return self.join.shared_join.needs.build_plan(shape)

    def would_break(self, tree: PlanShape) -> bool:
        """Whether a shape, given in the query's aliases, lacks a node that other queries read."""
        early = self.join.tree.early_aliases
        if early is None or self.is_nested:
            return early is not None and isinstance(tree, Eddy)
        nodes = () if isinstance(tree, Eddy) else list_joins(rename_leaves(tree, self.member.renaming))
        return early not in {frozenset(list_leaves(node)) for node in nodes}

    # ── what it reports ──────────────────────────────────────────────────────────────────────────────────────────

    def explain(self, allowances: Mapping[Tree, str], subqueries: Sequence[ExplainNode]) -> ExplainNode:
        """The join as it runs now; `allowances`: how often the rows of a node may probe."""
        plan, notes = self.plan_part.plan_shape(self.own_tree()), self._describe_nodes(allowances)
        return describe_join(plan, notes, dict(zip(self.subqueries.aliases, subqueries, strict=True)))

    def _describe_nodes(self, allowances: Mapping[Tree, str]) -> dict[str, Properties]:
        found = describe_nodes(self.join.tree, self.own_aliases)
        for tree, allowed in allowances.items():
            name = str(rename_leaves(tree, self.own_aliases))
            found[name] = (*found.get(name, ()), ("probes", allowed))
        return found

    def metrics(self) -> dict[str, object]:
        own_figures = {
            "living": self.member.count_living(),
            "held_back": self.member.count_held(),
            "emitted": self.join.shared_join.counts.count_emitted(self.member),
            "stale": self.member.stale,
            "complete_since": None if self.member.complete_since == ALWAYS else self.member.complete_since,
        }
        return {**self.join.metrics(self.own_aliases), **own_figures}

    def find_complete_since(self, since: int) -> int:
        return since

    # ── saved state ──────────────────────────────────────────────────────────────────────────────────────────────

    def dump(self, dumped: DumpedJoins) -> SavedState:
        """The first query that is dumped also saves the join."""
        place = self.join, self.member.need.scope
        known = place in dumped
        number = dumped.setdefault(place, len(dumped))
        values, tables = ({}, {}) if known else dump_join(self.join, self.member, self.plan_part)
        arcs, unread = dump_arcs(self.subqueries.arcs)
        failure = _dump_failure(self.failure)
        return SavedState({**values, **arcs, "join_id": number, "failure": failure}, {**tables, **unread})

    def restore(self, saved: SavedState, inputs: Sequence[WrittenRows]) -> Changes | None:
        seen = rewind_arcs(self.subqueries.arcs, saved, inputs)
        relations = {alias: rows for alias, rows in zip(self.subqueries.aliases, seen, strict=True) if rows is not None}
        if "members" in saved.values:
            windows = {alias: saved.tables[alias] for alias in saved.values["kept_after"]}
            restore_join(self.join, saved.values, windows, relations)
        if saved.values["failure"] is not None:
            self.member.failure = QueryError(*saved.values["failure"])
        rows = None if self.failure is not None else self._build_live_rows()
        return None if rows is None else as_changes(rows)

    def _build_live_rows(self) -> Batch | None:
        try:
            return self.join.output.build_live_rows(self.member)
        except FunctionError as error:  # a user-defined function fails on the rows of the snapshot
            self.member.failure = make_evaluation_error(self.member.name, error)
            return None

    def remove(self, graph: Graph, joins: JoinRegistry) -> None:
        """Leave the join; the last query that leaves removes it."""
        self.join.remove_member(self.member)
        if not self.join.shared_join.members:
            joins.remove(self.join)
            graph.remove(self.node)


@dataclass(frozen=True, eq=False)
class BufferedJoinPart(JoinQueryPart):
    """A query's place in a join, whose rows are written to a buffer as they are found."""

    buffer: Buffer

    @property
    def outlet(self) -> Buffer:
        return self.buffer


@dataclass(frozen=True, eq=False)
class GroupedJoinPart(BufferedJoinPart):
    """A query's place in a join of one stream that also groups the rows, for all queries that share it."""

    def dump(self, dumped: DumpedJoins) -> SavedState:
        return super().dump(dumped).with_values(grouped=True)

    def _build_live_rows(self) -> Batch | None:
        """Not known: readers of its outlet get the rows that enter only."""
        return None


def _dump_failure(failure: QueryError | None) -> tuple[str, str] | None:
    return None if failure is None else (failure.condition, failure.message)
