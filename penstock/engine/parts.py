"""Stages: the parts of a running query in the graph, what they tell of themselves, and how they rest.

A stage is an operator of the graph, or a place in a join that queries share. It rests as base data only (windows,
waiting tuples, unread tuples of arcs between operators); `revive` rebuilds everything else from the rows that live,
stage by stage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa

from penstock.engine.join_registry import dump_join, restore_join
from penstock.graph.buffers import Buffer, Reader
from penstock.graph.graph import Node
from penstock.join.join_metrics import describe_nodes
from penstock.join.match_batch import MatchBatch
from penstock.join.operator import JoinOperator
from penstock.join.running_trees import Migration
from penstock.join.sharing.member import Member
from penstock.join.sharing.slices import Slice, list_slices
from penstock.ops.aggregate.operator import AggregateOperator, SlidingAggregateOperator
from penstock.ops.changelog import as_batch, as_table, undo
from penstock.ops.difference import DifferenceOperator
from penstock.ops.distinct import DistinctOperator
from penstock.ops.emit import DStreamOperator, IStreamOperator, RStreamOperator
from penstock.ops.protocol import Batch
from penstock.ops.sequence.operator import SequenceOperator
from penstock.ops.union import UnionOperator
from penstock.plan.explain import Properties, format_duration
from penstock.plan.physical import JoinPlan
from penstock.plan.query import JoinPart
from penstock.plan.tree import (
    Eddy,
    PlanShape,
    Tree,
    list_joins,
    list_leaves,
    rename_leaves,
    replace_subtree,
    require_tree,
)
from penstock.state.kernels import ALWAYS

_MAX_LISTED = 10

DumpedJoins = dict[tuple[JoinOperator, frozenset[str] | None], int]
"""The numbers of joins that were dumped; those who read only a node of one rest apart, as a join of their own."""


@dataclass(frozen=True)
class SavedState:
    """A stage at rest: plain values and tables."""

    values: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, pa.Table] = field(default_factory=dict)

    def with_values(self, **values: Any) -> SavedState:
        """With some values more."""
        return SavedState({**self.values, **values}, self.tables)


class QueryPart(Protocol):
    """A part of a query in the graph."""

    @property
    def node(self) -> Node: ...

    @property
    def inputs(self) -> tuple[QueryPart, ...]: ...

    @property
    def outlet(self) -> Buffer: ...

    def metrics(self) -> dict[str, object]:
        """The metrics of its operator, as the query sees them."""

    def dump(self, shared: DumpedJoins) -> SavedState:
        """`shared` numbers the joins that were dumped already."""

    def restore(self, saved: SavedState, living: Sequence[Batch | None]) -> Batch | None:
        """Come back from a dump, given the living rows of the inputs; returns those of the stage, None if unknown."""


@dataclass(frozen=True)
class JoinQueryPart:
    """A query's place in a join over its sources, which others may share."""

    node: Node
    plan_part: JoinPart
    join: JoinOperator
    member: Member
    buffer: Buffer | None
    """Where the member writes; None if it shows its rows when asked."""
    inputs: tuple[QueryPart, ...] = ()

    @property
    def outlet(self) -> Buffer:
        assert self.buffer is not None, "nothing is read behind a query that shows its rows when asked"
        return self.buffer

    @property
    def own_aliases(self) -> dict[str, str]:
        """The query's alias for each of the join's."""
        return {theirs: mine for mine, theirs in self.member.renaming.items()}

    def own_tree(self) -> PlanShape:
        """The shape of the join in the query's own aliases."""
        tapped = self.join.tree.early_node if self.member.need.scope is not None else None
        return rename_leaves(self.join.tree.plan.tree if tapped is None else tapped.plan.tree, self.own_aliases)

    def build_plan(self, tree: PlanShape) -> JoinPlan:
        """The plan of the join in another shape, given in the query's own aliases."""
        shape = rename_leaves(tree, self.member.renaming)
        if self.member.need.scope is not None:
            shape = replace_subtree(require_tree(self.join.tree.plan.tree), require_tree(shape))
        return self.join.shared_join.needs.build_plan(shape)

    def migrate(self, tree: PlanShape, how: Migration) -> None:
        """Go on with another shape, given in the query's own aliases, for all who share the join."""
        self.join.migrate(self.build_plan(tree), how)

    def would_break(self, tree: PlanShape) -> bool:
        """Whether others read a node that the join has not in another shape, given in the query's own aliases."""
        tap = self.join.tree.early_aliases
        if tap is None or self.member.need.scope is not None:
            return tap is not None and isinstance(tree, Eddy)
        nodes = () if isinstance(tree, Eddy) else list_joins(rename_leaves(tree, self.member.renaming))
        return tap not in {frozenset(list_leaves(node)) for node in nodes}

    def notes(self, allowances: Mapping[Tree, str]) -> dict[str, Properties]:
        """What the parts of the join keep and did, by their text in the query's own aliases, and how they may probe."""
        found = describe_nodes(self.join.tree, self.own_aliases)
        for tree, allowed in allowances.items():
            name = str(rename_leaves(tree, self.own_aliases))
            found[name] = (*found.get(name, ()), ("probes", allowed))
        return found

    def metrics(self) -> dict[str, object]:
        own_figures = {
            "living": len(self.member.expirations),
            "emitted": self.join.shared_join.counts.count_emitted(self.member),
            "stale": self.member.stale,
            "complete_since": None if self.member.complete_since == ALWAYS else self.member.complete_since,
        }
        return {**self.join.metrics(self.own_aliases), **own_figures}

    def slices(self) -> list[Slice]:
        """The slices of the join, with the query's own aliases."""
        own = self.own_aliases
        return [
            replace(each, rows={own[alias]: rows for alias, rows in each.rows.items() if alias in own})
            for each in list_slices(self.join.shared_join, self.join.done)
        ]

    def format_readers(self) -> Iterator[str]:
        """Who reads a node of the join, as lines."""
        tapped, members = self.join.tree.early_node, self.join.shared_join.members
        if tapped is None:
            return
        readers = _format_queries([member.name for member in members if member.need.scope is not None])
        if self.member.need.scope is None:
            yield f"{rename_leaves(tapped.plan.tree, self.own_aliases)} is read by {readers}"
        else:
            whole = _format_queries([member.name for member in members if member.need.scope is None])
            yield f"reads a node of the join of {whole}; it is read by {readers}"

    def format_slices(self, time_type: pa.DataType) -> Iterator[str]:
        """The slices as lines: the first ones, and how many more there are."""
        found = self.slices()
        for each in found[:_MAX_LISTED]:
            ages = f"{format_duration(each.low, time_type)} to {format_duration(each.high, time_type)}"
            held = ", ".join(f"{alias} {rows}" for alias, rows in each.rows.items())
            yield f"age {ages}: tuples {held}; results {each.results}; up to here read {_format_queries(each.readers)}"
        if len(found) > _MAX_LISTED:
            yield f"and {len(found) - _MAX_LISTED} slices more"

    def results(self, match_batches: Sequence[MatchBatch]) -> list[Batch]:
        """What the member shows of harvests."""
        shown = (
            self.member.build_output(each) for each in match_batches if each.origin.scope == self.member.need.scope
        )
        return [batch for batch in shown if batch is not None]

    def dump(self, shared: DumpedJoins) -> SavedState:
        """The join as it rests is told by the first of those who share it."""
        place = self.join, self.member.need.scope
        if place in shared:
            return SavedState({"join_id": shared[place]})
        shared[place] = len(shared)
        values, tables = dump_join(self.join, self.member, self.plan_part)
        return SavedState({"join_id": shared[place], **values}, tables)

    def restore(self, saved: SavedState, living: Sequence[Batch | None]) -> Batch | None:  # noqa: ARG002
        if "members" in saved.values:
            restore_join(self.join, saved.values, saved.tables)
        return self.join.output.build_live_rows(self.member)


def _format_queries(members: Sequence[str]) -> str:
    """The queries of some members, the first of them by name."""
    names = [name.rpartition(": ")[0] for name in members]
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more


@dataclass(frozen=True)
class _OwnOperatorPart:
    """A stage that is an operator of its own."""

    node: Node

    @property
    def outlet(self) -> Buffer:
        return self.node.outlet

    def metrics(self) -> dict[str, object]:
        return self.node.operator.metrics()


@dataclass(frozen=True)
class SequenceQueryPart(_OwnOperatorPart):
    """One step of a sequence; `readers` are those of its streams."""

    operator: SequenceOperator
    readers: tuple[Reader, ...]
    inputs: tuple[QueryPart, ...]
    arcs: tuple[Reader, ...]

    def dump(self, shared: DumpedJoins) -> SavedState:  # noqa: ARG002
        values = {"unread": [reader.waiting() for reader in self.readers], "since": self.operator.since()}
        return SavedState({**values, **_dump_frontiers(self.arcs)}, {**self.operator.dump(), **_dump_unread(self.arcs)})

    def restore(self, saved: SavedState, living: Sequence[Batch | None]) -> Batch | None:
        for reader, rows in zip(self.readers, saved.values["unread"], strict=True):
            reader.rewind(rows)
        _restore_arcs(self.arcs, saved, living)
        return self.operator.restore(saved.tables, saved.values["since"])


@dataclass(frozen=True)
class OperatorQueryPart(_OwnOperatorPart):
    """An operator that reads other stages only."""

    inputs: tuple[QueryPart, ...]
    arcs: tuple[Reader, ...]

    def dump(self, shared: DumpedJoins) -> SavedState:  # noqa: ARG002
        return SavedState(_dump_frontiers(self.arcs), _dump_unread(self.arcs))

    def restore(self, saved: SavedState, living: Sequence[Batch | None]) -> Batch | None:
        before = _restore_arcs(self.arcs, saved, living)
        if None in before:
            return None
        known = [batch for batch in before if batch is not None]
        match self.node.operator:
            case UnionOperator() | DifferenceOperator() as merging:
                return merging.restore(known)
            case AggregateOperator() | SlidingAggregateOperator() | DistinctOperator() as changing:
                return changing.restore(known[0])
            case IStreamOperator() | DStreamOperator() | RStreamOperator() as emitting:
                emitting.restore(known[0])
        return None


def _dump_unread(arcs: Sequence[Reader]) -> dict[str, pa.Table]:
    """What waits on arcs between the operators of a query."""
    waiting = {f"arc {place}": arc.buffer.unread() for place, arc in enumerate(arcs)}
    return {name: as_table(batch) for name, batch in waiting.items() if batch is not None}


def _dump_frontiers(arcs: Sequence[Reader]) -> dict[str, list[int]]:
    """How far the producers of arcs have come: what merges them by time goes on from there."""
    return {"frontiers": [arc.frontier for arc in arcs]}


def _restore_arcs(arcs: Sequence[Reader], saved: SavedState, living: Sequence[Batch | None]) -> list[Batch | None]:
    """Put back what waited on the arcs; returns what lived, by input, when the reader stopped."""
    for arc, frontier in zip(arcs, saved.values["frontiers"], strict=True):
        arc.buffer.advance(frontier)
    before = list(living)
    for place, (arc, rows) in enumerate(zip(arcs, living, strict=True)):
        table = saved.tables.get(f"arc {place}")
        if table is None:
            continue
        unread = as_batch(table)
        if rows is not None:
            before[place], unread = undo(rows, unread)
        arc.buffer.append(unread)
    return before
